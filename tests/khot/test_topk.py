"""Hard top-k: the k largest, by index where they are equal."""

import torch

import khot


def test_it_is_the_k_largest(generator):
    x = torch.randn(20, 50, generator=generator)
    wanted = torch.zeros(20, 50).scatter_(-1, x.topk(7).indices, 1.0)
    assert torch.equal(khot.topk(x, 7), wanted)
    assert torch.equal(khot.topk(khot.sigmoid_topk(x, 7)), wanted)


def test_ties_go_to_the_lower_index():
    assert khot.topk(torch.tensor([1.0, 2, 1, 2, 1]), 3).tolist() == [1, 1, 0, 1, 0]
    assert khot.topk(torch.tensor([0.2] * 5)).tolist() == [1, 0, 0, 0, 0]


def test_rows_have_their_own_k():
    x = torch.arange(5.0).expand(6, 5)
    assert khot.topk(x, torch.arange(6.0)).sum(-1).tolist() == [0, 1, 2, 3, 4, 5]


def test_small_probabilities_are_told_apart():
    pi = torch.tensor([1e-20, 2e-20, 1.0], dtype=torch.float64)
    logits = pi.log()
    assert khot.topk(logits, 2).tolist() == [0, 1, 1]


def test_randomness_changes_nothing(generator):
    x = torch.randn(3, 9, generator=generator)
    z = khot.topk(x, 2)
    assert torch.equal(z, khot.topk(x, 2, seeds=khot.row_seeds(1, 3)))
    assert torch.equal(khot.topk(x, 2, generator=generator), z)
    assert torch.equal(khot.topk(x, 2, num_samples=4), z.expand(4, 3, 9))
