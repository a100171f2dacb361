"""Pivotal sampling in random order: its exact law, and kernels that draw the same bits."""

import math
from collections import defaultdict
from itertools import permutations

import pytest
import torch

import khot
from khot import testing
from khot._native import library
from khot._native import pivotal as native
from khot._random import Source

DRAWS = 400_000


def float64(values: list) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def law(pi: list[float]) -> dict[tuple[int, ...], float]:
    """The probability of each draw, by playing all outcomes of all fights in all orders."""
    found: defaultdict[tuple[int, ...], float] = defaultdict(float)
    orders = list(permutations(range(len(pi))))

    def play(order: tuple[int, ...], carrier: int, a: float, ones: frozenset[int], p: float):
        if p == 0:
            return
        if not order:
            ones |= {carrier} if a > 0.5 else set()
            found[tuple(int(i in ones) for i in range(len(pi)))] += p
            return
        unit, rest = order[0], order[1:]
        b = pi[unit]
        if a + b < 1:
            stays = a / (a + b) if b > 0 else 1.0
            play(rest, carrier, a + b, ones, p * stays)
            play(rest, unit, a + b, ones, p * (1 - stays))
        else:
            wins = (1 - b) / ((1 - a) + (1 - b)) if b < 1 else 0.0
            play(rest, unit, a + b - 1, ones | {carrier}, p * wins)
            play(rest, carrier, a + b - 1, ones | {unit}, p * (1 - wins))

    for order in orders:
        play(order[1:], order[0], pi[order[0]], frozenset(), 1 / len(orders))
    return dict(found)


def counted(z: torch.Tensor) -> torch.Tensor:
    """How often each draw was made: a dimension of two for each unit, to index by a draw."""
    n = z.shape[-1]
    codes = (z @ 2.0 ** torch.arange(n, dtype=z.dtype).flip(0)).long()
    return codes.bincount(minlength=2**n).reshape((2,) * n)


CASES = {
    "equal": [0.5, 0.5, 0.5, 0.5],
    "ties across 1/2": [0.25, 0.25, 0.75, 0.75],
    "skewed": [0.9, 0.05, 0.8, 0.15, 0.1],
    "certain units": [0.0, 0.3, 0.7, 0.0, 0.5, 0.5],
    "nearly certain units": [1e-6, 1 - 1e-6, 0.4, 0.6, 0.25, 0.75],
    "one of many": [0.5, 0.2, 0.1, 0.1, 0.1],
}


@pytest.mark.parametrize("pi", CASES.values(), ids=CASES)
def test_draws_follow_the_law(pi):
    probabilities = law(pi)
    assert sum(probabilities.values()) == pytest.approx(1, abs=1e-12)
    z = khot.pivotal(float64(pi).expand(DRAWS, -1), seeds=khot.row_seeds(1, DRAWS))
    counts = counted(z)
    # sums of the law's floats may end a rounding above 1 where those of the draw do not
    assert sum(int(counts[subset]) for subset in probabilities) == DRAWS
    for subset, p in probabilities.items():
        error = math.sqrt(max(p * (1 - p), 0.0) * DRAWS)
        assert abs(int(counts[subset]) - p * DRAWS) <= 5 * error + 1e-6, subset


def test_pairs_are_as_likely_as_the_law_says():
    pi = [0.7, 0.2, 0.55, 0.35, 0.8, 0.4]
    probabilities = law(pi)
    subsets = float64(list(probabilities))
    weights = float64(list(probabilities.values()))
    assert torch.allclose(weights @ subsets, float64(pi), rtol=0, atol=1e-12)
    pairs = subsets.T @ (weights.unsqueeze(-1) * subsets)
    z = khot.pivotal(float64(pi), num_samples=DRAWS, seeds=torch.tensor(0))
    errors = (pairs * (1 - pairs) / DRAWS).clamp(min=0).sqrt()
    assert bool(((z.T @ z / DRAWS - pairs).abs() <= 5 * errors + 1e-6).all())


needs_kernels = pytest.mark.skipif(
    not khot.native_info().in_use, reason=f"needs the C kernels: {khot.native_info().reason}"
)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("n", [1, 2, 5, 77, 784, 5000])
def test_the_kernel_draws_the_bits_of_torch(n, dtype, generator, monkeypatch):
    scores = torch.randn(24, n, generator=generator, dtype=torch.float64) * 3
    k = (torch.rand(24, generator=generator) * n).round()
    pi = khot.sigmoid_topk(scores, k).to(dtype)
    pi[::3, 0] *= 0.5  # most of these sums are not whole
    pi[:, -1] = torch.where(torch.arange(24) % 2 == 0, 0.0, 1.0)
    seeds = khot.row_seeds(n, 24)
    whole, logits = {"num_samples": 3, "seeds": seeds}, scores.float()
    fractions = k * 0.9
    got = khot.pivotal(pi, **whole), khot.pivotal(logits, fractions, **whole)
    p = khot.sigmoid_topk(logits, fractions)
    monkeypatch.setattr(library._library, "object", None)
    assert torch.equal(got[0], khot.pivotal(pi, **whole))
    # the same pi for both, for what torch solves may differ in the last bit
    monkeypatch.setattr("khot.sampling._draw.relax", lambda *_: p)
    assert torch.equal(got[1], khot.pivotal(logits, fractions, **whole))


@needs_kernels
def test_a_stateful_generator_draws_as_well():
    """What the benchmark compares with is a sampler, too."""
    pi = khot.sigmoid_topk(torch.linspace(-2, 2, 8), 3).expand(50_000, -1)
    source = Source(khot.row_seeds(0, 50_000))
    z = native.draw(pi, None, 1e-6, source, stateful=True)[0]
    errors = (pi[0] * (1 - pi[0]) / 50_000).sqrt()
    assert bool((z.sum(-1) == 3).all()) and bool(((z.mean(0) - pi[0]).abs() < 5 * errors).all())


def test_entropy_is_near_the_greatest_possible():
    pi = khot.sigmoid_topk(torch.linspace(-2, 2, 8).double(), 4)
    z = khot.pivotal(pi, num_samples=DRAWS, seeds=torch.tensor(0))
    counts = counted(z).double()
    p = counts[counts > 0] / DRAWS
    subsets, theta = testing.subsets(8, 4), pi.logit()
    for _ in range(100):
        q = (subsets @ theta).softmax(0)
        theta = theta + pi.logit() - (q @ subsets).logit()
    greatest = float(-(q * q.log()).sum())
    assert 0.98 * greatest < float(-(p * p.log()).sum()) < greatest


def test_rows_of_many_units_keep_their_size():
    """The sum of parts overflows 64 bits many times."""
    pi = khot.sigmoid_topk(torch.linspace(-1, 1, 20_000).double(), 9000)
    z = khot.pivotal(pi, num_samples=5, seeds=torch.tensor(0))
    assert z.sum(-1).tolist() == [9000] * 5


def test_a_known_draw():
    """What is drawn from a seed is part of the interface."""
    pi = torch.full((2, 12), 0.25, dtype=torch.float64)
    z = khot.pivotal(pi, seeds=torch.tensor([0, -1]))
    assert z.nonzero()[:, 1].reshape(2, 3).tolist() == [[0, 9, 11], [1, 7, 11]]
