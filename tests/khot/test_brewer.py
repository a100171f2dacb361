"""Brewer's method: its law by enumeration, and its weighted draw."""

import pytest
import torch

import khot
from khot.sampling.brewer import _pick

DRAWS = 300_000


def law(pi: list[float], k: int) -> dict[tuple[int, ...], float]:
    """The probability of each draw, over all sequences of k units."""
    found: dict[tuple[int, ...], float] = {}

    def play(drawn: tuple[int, ...], p: float) -> None:
        r = k - len(drawn)
        if r == 0:
            z = tuple(int(i in drawn) for i in range(len(pi)))
            found[z] = found.get(z, 0) + p
            return
        left = k - sum(pi[i] for i in drawn)
        weights = {
            i: x * (left - x) / (left - r * x) for i, x in enumerate(pi) if i not in drawn and x
        }
        total = sum(weights.values())
        for i, weight in weights.items():
            play((*drawn, i), p * weight / total)

    play((), 1.0)
    return found


@pytest.mark.parametrize(
    ("pi", "k"),
    [
        ([0.9, 0.05, 0.8, 0.15, 0.1], 2),
        ([0.25, 0.25, 0.75, 0.75], 2),
        ([0.7, 0.2, 0.55, 0.35, 0.8, 0.4], 3),
        ([0.99, 0.98, 0.97, 0.06], 3),
    ],
)
def test_draws_and_pairs_follow_the_law(pi, k):
    probabilities = law(pi, k)
    subsets = torch.tensor(list(probabilities), dtype=torch.float64)
    p = torch.tensor(list(probabilities.values()), dtype=torch.float64)
    wanted = torch.tensor(pi, dtype=torch.float64)
    assert torch.allclose(p @ subsets, wanted, rtol=0, atol=1e-12)
    z = khot.brewer(wanted, num_samples=DRAWS, seeds=torch.tensor(0))
    place = (2.0 ** torch.arange(len(pi))).double()
    counts = torch.bincount((z @ place).long(), minlength=2 ** len(pi))
    seen = counts[(subsets @ place).long()]
    assert int(seen.sum()) == DRAWS
    assert bool(((seen - p * DRAWS).abs() <= 5 * (p * (1 - p) * DRAWS).sqrt() + 1e-6).all())
    pairs = subsets.T @ (p.unsqueeze(-1) * subsets)
    errors = (pairs * (1 - pairs) / DRAWS).clamp(min=0).sqrt()
    assert bool(((z.T @ z / DRAWS - pairs).abs() <= 5 * errors + 1e-6).all())


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 13])
def test_a_pick_is_where_the_number_falls(n):
    weight = torch.arange(n).double() % 4  # some are 0
    weight[0] = 1.0
    u = torch.linspace(0, 1 - 1e-9, 10_000).double().unsqueeze(-1)
    unit = _pick(weight.expand(10_000, n), u).squeeze(-1)
    shares = torch.bincount(unit, minlength=n) / 10_000
    assert bool(((shares - weight / weight.sum()).abs() < 2e-3).all())
    assert bool((shares[weight == 0] == 0).all())


def test_a_pick_never_has_weight_zero_whatever_is_rounded():
    weight = torch.tensor([0.0, 1e-300, 0.0, 0.1, 0.0]).double()
    for u in (0.0, 1e-17, 0.5, 1 - 2.0**-53, 1.0):
        unit = _pick(weight.expand(1, 5), torch.tensor([[u]], dtype=torch.float64))
        assert int(unit) in (1, 3)
