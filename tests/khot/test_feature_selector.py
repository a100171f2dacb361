"""The feature selector: masks in training, the k best in evaluation, raw x in both."""

import math

import pytest
import torch

import khot
from khot.models import FeatureSelector
from khot.models.feature_selector import ESTIMATORS


@pytest.mark.parametrize(("estimator", "roots"), [("pi_st", ()), ("gumbel_sigmoid", (100,))])
def test_every_example_has_a_mask_of_its_own_in_training(estimator, roots):
    model = FeatureSelector(20, 3, 5, estimator=estimator)
    seed = torch.tensor(7)
    masks, diagnostics = model.draw(100, seeds=seed)
    assert torch.allclose(masks.sum(-1), torch.tensor(5.0)) and len(masks.unique(dim=0)) > 90
    assert diagnostics.iterations.shape == roots, "one of a row, or of each sample of it"
    x = torch.ones(100, 20)
    assert torch.equal(model(x, seeds=seed), model.predict(x, masks))


@pytest.mark.parametrize("estimator", ["gumbel_sigmoid", "softsub"])
def test_hard_masks_have_the_gradients_of_relaxed_ones(estimator):
    masks, gradients = [], []
    for hard in (False, True):
        model = FeatureSelector(20, 3, 5, estimator=estimator, hard=hard)
        drawn, _ = model.draw(100, seeds=torch.tensor(7))
        (drawn * torch.arange(20)).sum().backward()
        masks.append(drawn.detach())
        gradients.append(model.logits.grad)
    soft, hard = masks
    assert bool(((hard == 0) | (hard == 1)).all()) and not torch.equal(soft, hard)
    assert bool((hard.sum(-1) == 5).all())
    assert torch.allclose(*gradients)


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
    model(torch.ones(10, 20), seeds=torch.tensor(0))[:, 0].sum().backward()
    assert bool((model.logits.grad != 0).any())


def test_randomness_is_given_or_global(generator):
    model, x = FeatureSelector(20, 3, 5), torch.ones(10, 20)
    first = model(x, generator=generator)
    assert torch.equal(first, model(x, generator=generator.manual_seed(0)))


def test_raw_examples_are_standardised(generator):
    x = torch.randn(500, 3, generator=generator) * torch.tensor([1.0, 1e3, 1e-3]) + 7.0
    model = FeatureSelector(3, 2, 2)
    assert model.fit(x).tolist() == []
    scaled = model.standardized(x)
    assert scaled.mean(0).tolist() == pytest.approx([0, 0, 0], abs=1e-3)
    assert scaled.std(0, correction=0).tolist() == pytest.approx([1, 1, 1], rel=1e-3)
    model.eval()
    wanted = model.network(scaled * model.mask())
    assert torch.equal(model(x), wanted)


def test_a_regression_answers_in_the_units_of_its_targets(generator):
    x, y = (
        torch.randn(100, 4, generator=generator),
        1e3 + 50 * torch.randn(100, generator=generator),
    )
    model = FeatureSelector(4, None, 2).eval()
    model.fit(x, y, standardize=False)
    assert torch.equal(model.standardized(x), x)
    raw = model.network(x * model.mask()).squeeze(-1)
    assert model(x).shape == (100,)
    wanted = raw * y.std(correction=0) + y.mean()
    assert model(x).tolist() == pytest.approx(wanted.tolist(), rel=1e-6)


def test_a_reconstruction_answers_with_the_logits_of_all_features(generator):
    x = torch.rand(30, 6, generator=generator)
    model = FeatureSelector(6, None, 2, reconstructs=True).eval()
    assert torch.equal(model(x), model.network(x * model.mask())) and model(x).shape == (30, 6)


def with_constants(estimator, k, n=6):
    model = FeatureSelector(n, 2, k, estimator=estimator)
    x = torch.randn(50, n, generator=torch.Generator().manual_seed(3))
    x[:, [1, 4]] = torch.tensor([0.0, 2.5])
    assert model.fit(x).tolist() == [1, 4]
    return model, x


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_what_is_constant_is_never_drawn_and_gradients_stay_finite(estimator):
    model, x = with_constants(estimator, ESTIMATORS[estimator].only_k or 3)
    masks, _ = model.draw(200, seeds=torch.tensor(1))
    assert bool((masks[:, [1, 4]] == 0).all()) and bool((masks[:, [0, 2, 3, 5]] > 0).any(0).any())
    out = model.network(model.standardized(x).repeat(4, 1) * masks)
    khot.with_losses(masks, out.square().sum(-1)).mean().backward()
    assert bool(model.logits.grad.isfinite().all())
    assert model.logits.grad[[1, 4]].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_inclusion_probabilities_are_those_of_hard_draws(estimator):
    row = ESTIMATORS[estimator]
    model, _ = with_constants(estimator, row.only_k or 3)
    model.tau = 0.5
    with torch.no_grad():
        model.logits.copy_(torch.tensor([1.0, 9.0, 0.5, 0.0, 9.0, -1.0]))
        pi = model.inclusion_probabilities()
        hard = {"hard": True} if "hard" in row.options else {}
        seeds, draws = khot.row_seeds(1, 1)[0], 20_000
        z = row.function(model.scores(), model.k, tau=0.5, num_samples=draws, seeds=seeds, **hard)
    error = math.sqrt(0.25 / draws + 0.25 / 4096)
    assert float((z.mean(0) - pi).abs().max()) < 5 * error
    assert pi[[1, 4]].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("k", [None, 3, 4])
def test_what_is_constant_is_never_chosen(k):
    model, _ = with_constants("pi_st_implicit", k)
    with torch.no_grad():
        model.logits[[1, 4]] = 9.0
        model.logits[[0, 2, 3, 5]] = 0.7 if k is None else -1.0
    pi = model.inclusion_probabilities().detach()
    assert pi[[1, 4]].tolist() == [0.0, 0.0]
    assert model.scores()[1].item() == -math.inf
    # four times sigmoid(0.7) are 2.7
    assert len(model.chosen()) == (k or 3) and not {1, 4} & set(model.chosen().tolist())
    assert float(pi.sum()) == pytest.approx(k or 2.67, abs=0.01)


def test_a_learned_k_is_at_least_one_and_falls_with_the_temperature():
    model = FeatureSelector(10, 2, None, estimator="pi_st_implicit", tau=2.0)
    with torch.no_grad():
        model.logits.fill_(-1.0)
    assert len(model.chosen()) == round(10 * torch.sigmoid(torch.tensor(-0.5)).item()) == 4
    model.tau = 0.1
    assert len(model.chosen()) == 1
    fresh = FeatureSelector(10, 2, None, estimator="pi_st_implicit")
    fresh.load_state_dict(model.state_dict())
    assert fresh.tau == 0.1


def test_constant_data_are_refused():
    model = FeatureSelector(3, 2, 2)
    with pytest.raises(ValueError, match="a feature must not be constant; got all constant"):
        model.fit(torch.ones(5, 3))
    x = torch.ones(5, 3)
    x[:, 1] = torch.arange(5.0)
    with pytest.raises(ValueError, match=r"k must be in \[1, 1\].* not constant; got 2"):
        model.fit(x)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, r"k must be in \[1, 20\].*; got 0"),
        ({"k": 21}, r"k must be in \[1, 20\].*; got 21"),
        ({"classes": 1}, "classes must be at least 2, or None for numbers; got 1"),
        ({"reconstructs": True}, "classes must be None where features are reconstructed; got 3"),
        ({"estimator": "magic"}, "estimator must be one of pi_st, .*; got 'magic'"),
        ({"estimator": "reinmax"}, "k must be 1 with the estimator reinmax; got 5"),
        ({"k": None}, "estimator must be pi_st_implicit where k is learned; got 'gumbel_sigmoid'"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=f"^FeatureSelector: {message}"):
        FeatureSelector(**{"n": 20, "classes": 3, "k": 5, **arguments})
