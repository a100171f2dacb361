"""Adjusted Pareto sampling: the adjustment, and where it is none."""

import pytest
import torch

import khot
from khot.sampling.adjusted_pareto import _exp


def test_the_exponential_is_within_5e_10():
    x = torch.linspace(-1, 1, 10_001).double()
    assert float((_exp(x) / x.exp() - 1).abs().max()) < 5e-10
    assert float(_exp(torch.zeros(1))) == 1


def test_equal_probabilities_are_drawn_as_pareto_draws_them():
    pi, seeds = torch.full((50, 12), 0.25), khot.row_seeds(0, 50)
    assert torch.equal(khot.adjusted_pareto(pi, seeds=seeds), khot.pareto(pi, seeds=seeds))


def test_others_are_not(generator):
    """The two differ in about one row of two hundred."""
    rows = 5000
    pi = khot.sigmoid_topk(torch.randn(rows, 12, generator=generator), 3)
    seeds = khot.row_seeds(0, rows)
    other = khot.adjusted_pareto(pi, seeds=seeds) != khot.pareto(pi, seeds=seeds)
    assert 5 <= int(other.any(-1).sum()) <= 100


@pytest.mark.parametrize(("n", "k"), [(10, 5), (20, 5)])
def test_it_is_nearer_to_pi_than_pareto(n, k):
    pi = khot.sigmoid_topk(torch.linspace(-4, 4, n).double(), k)
    draws = 400_000
    off = [
        float(((design(pi, num_samples=draws, seeds=torch.tensor(0)).mean(0) - pi) ** 2).sum())
        for design in (khot.pareto, khot.adjusted_pareto)
    ]
    assert off[1] < off[0]


def test_rows_with_hardly_any_freedom_keep_their_size_and_their_likely_units():
    pi = torch.tensor([1e-9, 1 - 1e-9, 1e-5, 1 - 1e-5], dtype=torch.float64)
    z = khot.adjusted_pareto(pi, num_samples=1000, seeds=torch.tensor(0))
    assert bool((z.sum(-1) == 2).all()) and float(z[:, 1].mean()) > 0.99
