"""Sampford's design: its closed law, and that it never rejects."""

import math
import sys

import pytest
import torch

import khot
from khot import testing
from khot.sampling.sampford import _tables

DRAWS = 300_000


def law(pi: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All k-hot vectors, and their probabilities by Sampford's formula."""
    subsets = testing.subsets(len(pi), k)
    odds = (pi / (1 - pi)).expand_as(subsets)
    p = torch.where(subsets > 0, odds, 1.0).prod(-1) * (subsets * (1 - pi)).sum(-1)
    return subsets, p / p.sum()


@pytest.mark.parametrize(("n", "k", "scale"), [(4, 2, 1.0), (6, 3, 3.0), (8, 2, 2.0), (5, 4, 4.0)])
def test_draws_and_pairs_follow_the_law(n, k, scale):
    pi = khot.sigmoid_topk(scale * torch.linspace(-1, 1, n).double(), k)
    subsets, p = law(pi, k)
    assert torch.allclose(p @ subsets, pi, rtol=0, atol=1e-12)
    z = khot.sampford(pi, num_samples=DRAWS, seeds=torch.tensor(n))
    place = (2.0 ** torch.arange(n)).double()
    seen = torch.bincount((z @ place).long(), minlength=2**n)[(subsets @ place).long()]
    assert int(seen.sum()) == DRAWS
    assert bool(((seen - p * DRAWS).abs() <= 5 * (p * (1 - p) * DRAWS).sqrt() + 1e-6).all())
    pairs = subsets.T @ (p.unsqueeze(-1) * subsets)
    errors = (pairs * (1 - pairs) / DRAWS).sqrt()
    assert bool(((z.T @ z / DRAWS - pairs).abs() <= 5 * errors).all())


def test_the_tables_are_those_of_enumeration():
    pi = khot.sigmoid_topk(torch.linspace(-3, 2, 7).double(), 3)
    q, h = _tables(pi.unsqueeze(0), 3)
    odds = pi / (1 - pi)
    for i in range(7):
        for m in range(1, min(3, 7 - i) + 1):
            subsets = testing.subsets(7 - i, m)
            weight = torch.where(subsets > 0, odds[i:], 1.0).prod(-1)
            weight = weight / weight.sum()
            assert float(q[i, 0, m]) == pytest.approx(float(weight @ subsets[:, 0]), abs=1e-14)
            mean = float(weight @ (subsets * (1 - pi[i:])).sum(-1))
            assert float(h[i, 0, m]) == pytest.approx(mean, abs=1e-14)


def test_it_does_not_hang_where_rejection_would(generator):
    pi = khot.sigmoid_topk(2 * torch.randn(784, generator=generator).double(), 50)
    # the chance that the 50 draws of Sampford's procedure differ
    odds = pi / (1 - pi)
    share = odds / odds.sum()
    assert 50 * 49 / 2 * float((share**2).sum()) > 10  # pairs that are equal, on average
    z = khot.sampford(pi, num_samples=500, seeds=torch.tensor(0))
    assert bool((z.sum(-1) == 50).all())
    deviations = (z.mean(0) - pi) / (pi * (1 - pi) / 500).sqrt()
    assert float(deviations[pi > 0.02].abs().max()) < 5


def test_probabilities_over_all_of_float64_are_drawn():
    pi = torch.tensor([1e-300, 1e-12, 0.5, 0.5, 1 - 1e-15, 1.0], dtype=torch.float64)
    z = khot.sampford(pi, num_samples=20_000, seeds=torch.tensor(0))
    assert bool((z.sum(-1) == 3).all()) and bool((z[:, 4:] == 1).all())
    assert abs(float(z[:, 2].mean()) - 0.5) < 5 * math.sqrt(0.25 / 20_000)


def test_rows_in_parts_are_the_rows_together(monkeypatch):
    pi, seeds = khot.sigmoid_topk(torch.randn(20, 9).double(), 4), khot.row_seeds(0, 20)
    whole = khot.sampford(pi, num_samples=3, seeds=seeds)
    monkeypatch.setattr(sys.modules["khot.sampling.sampford"], "_TABLE", 100)
    assert torch.equal(khot.sampford(pi, num_samples=3, seeds=seeds), whole)


def test_a_table_too_large_is_refused():
    with pytest.raises(ValueError, match=r"^sampford: n \(k \+ 1\) must be at most .*; got 5000"):
        khot.sampford(torch.full((100_000,), 0.5))
