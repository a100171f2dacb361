"""Systematic sampling: its law in a fixed order, and a size that rounding does not change."""

from itertools import pairwise, permutations

import pytest
import torch

import khot

DRAWS = 200_000


def law(pi: list[float], orders: list[tuple[int, ...]]) -> dict[tuple[int, ...], float]:
    """The probability of each draw, by the pieces of [0, 1) in which U draws the same."""
    found: dict[tuple[int, ...], float] = {}
    for order in orders:
        ends = [0.0]
        for i in order:
            ends.append(ends[-1] + pi[i])
        breaks = sorted({0.0, 1.0, *(end % 1 for end in ends)})
        for low, high in pairwise(breaks):
            u = (low + high) / 2
            drawn = set()
            for place, i in enumerate(order):
                if any(ends[place] <= u + j < ends[place + 1] for j in range(len(pi))):
                    drawn.add(i)
            z = tuple(int(i in drawn) for i in range(len(pi)))
            found[z] = found.get(z, 0) + (high - low) / len(orders)
    return found


@pytest.mark.parametrize("permuted", [False, True])
@pytest.mark.parametrize(
    "pi", [[0.5, 0.25, 0.75, 0.5], [0.9, 0.05, 0.8, 0.15, 0.1], [0.125, 0.0, 0.375, 0.25, 0.25]]
)
def test_draws_follow_the_law(pi, permuted):
    orders = list(permutations(range(len(pi)))) if permuted else [tuple(range(len(pi)))]
    probabilities = law(pi, orders)
    p = torch.tensor(list(probabilities.values()), dtype=torch.float64)
    subsets = torch.tensor(list(probabilities), dtype=torch.float64)
    wanted = torch.tensor(pi, dtype=torch.float64)
    assert torch.allclose(p @ subsets, wanted, atol=1e-12)
    z = khot.systematic(wanted, num_samples=DRAWS, permuted=permuted, seeds=torch.tensor(0))
    place = (2.0 ** torch.arange(len(pi))).double()
    seen = torch.bincount((z @ place).long(), minlength=2 ** len(pi))[(subsets @ place).long()]
    # pieces of the size of a rounding are the law's, and not drawn
    assert int(seen.sum()) == DRAWS
    assert bool(
        ((seen - p * DRAWS).abs() <= 5 * (p * (1 - p) * DRAWS).clamp(min=0).sqrt() + 1e-6).all()
    )


def test_a_fixed_order_has_few_draws_and_a_random_one_many():
    pi = khot.sigmoid_topk(torch.linspace(-1, 1, 12).double(), 6)
    fixed = khot.systematic(pi, num_samples=5000, permuted=False, seeds=torch.tensor(0))
    free = khot.systematic(pi, num_samples=5000, seeds=torch.tensor(0))
    assert len(fixed.unique(dim=0)) <= 12
    assert len(free.unique(dim=0)) > 300


@pytest.mark.parametrize("permuted", [False, True])
@pytest.mark.parametrize("off", [-0.2, -1e-3, 1e-3, 0.2])
def test_the_last_units_take_what_the_sum_is_off_by(off, permuted):
    """In half precision a sum may be off by much; every draw has its size all the same."""
    pi = torch.full((100,), 0.5, dtype=torch.bfloat16)
    pi[:50] += off / 50
    total = pi.double().sum()
    assert 0 < abs(float(total) - 50) < 0.25 or abs(off) < 0.1
    z = khot.systematic(pi, num_samples=5000, permuted=permuted, seeds=torch.tensor(1))
    assert bool((z.double().sum(-1) == 50).all())


def test_rows_of_many_units_keep_their_size():
    pi = khot.sigmoid_topk(torch.linspace(-1, 1, 100_000).double(), 45_000)
    z = khot.systematic(pi, num_samples=3, seeds=torch.tensor(0))
    assert z.sum(-1).tolist() == [45_000] * 3


def test_refusals():
    with pytest.raises(TypeError, match="^systematic: permuted must be a bool; got int"):
        khot.systematic(torch.tensor([0.5, 0.5]), permuted=1)
