"""The feature selector: masks in training, the k best in evaluation."""

import pytest
import torch

import khot
from khot.models import FeatureSelector


def test_every_example_has_a_mask_of_its_own_in_training():
    model = FeatureSelector(20, 3, 5)
    masks, diagnostics = model.draw(100, seeds=khot.row_seeds(0, 100))
    assert bool((masks.sum(-1) == 5).all()) and len(masks.unique(dim=0)) > 90
    assert diagnostics.iterations.shape == (100,)
    x = torch.ones(100, 20)
    seeds = khot.row_seeds(0, 100)
    assert torch.equal(model(x, seeds=seeds), model.classify(x, masks))


def test_evaluation_sees_the_chosen_features_only():
    model = FeatureSelector(20, 3, 5, hidden=(8, 8)).eval()
    with torch.no_grad():
        model.logits[[3, 7, 11, 2, 19]] = 1.0
    assert model.chosen().tolist() == [2, 3, 7, 11, 19]
    x = torch.zeros(4, 20)
    others = x.clone().index_fill(1, torch.tensor([0, 1, 18]), 5.0)
    assert torch.equal(model(x), model(others))
    assert not torch.equal(model(x), model(x.index_fill(1, torch.tensor([7]), 5.0)))


def test_the_mask_learns():
    model = FeatureSelector(20, 3, 5, hidden=())
    model(torch.ones(10, 20), seeds=khot.row_seeds(0, 10))[:, 0].sum().backward()
    assert bool((model.logits.grad != 0).any())


def test_randomness_is_given_or_global(generator):
    model, x = FeatureSelector(20, 3, 5), torch.ones(10, 20)
    first = model(x, generator=generator)
    assert torch.equal(first, model(x, generator=generator.manual_seed(0)))


@pytest.mark.parametrize("k", [0, 21])
def test_a_k_out_of_range_is_refused(k):
    with pytest.raises(ValueError, match=rf"FeatureSelector: k must be in \[1, 20\].*; got {k}"):
        FeatureSelector(20, 3, k)
