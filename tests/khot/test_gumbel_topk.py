"""Gumbel top-k: the law of Plackett and Luce, and how far that is from pi."""

from itertools import permutations

import pytest
import torch

import khot
from khot.sampling.gumbel_topk import _log

DRAWS = 300_000


def law(weights: list[float], k: int) -> dict[tuple[int, ...], float]:
    found: dict[tuple[int, ...], float] = {}
    for order in permutations(range(len(weights)), k):
        p, left = 1.0, sum(weights)
        for i in order:
            p *= weights[i] / left
            left -= weights[i]
        z = tuple(int(i in order) for i in range(len(weights)))
        found[z] = found.get(z, 0) + p
    return found


@pytest.mark.parametrize(
    ("pi", "k"), [([0.9, 0.05, 0.8, 0.15, 0.1], 2), ([0.7, 0.2, 0.55, 0.35, 0.8, 0.4], 3)]
)
def test_draws_follow_the_law_of_plackett_and_luce(pi, k):
    probabilities = law(pi, k)
    p = torch.tensor(list(probabilities.values()), dtype=torch.float64)
    subsets = torch.tensor(list(probabilities), dtype=torch.float64)
    wanted = torch.tensor(pi, dtype=torch.float64)
    assert float((p @ subsets - wanted).abs().max()) > 0.05  # not pi, as is said plainly
    z = khot.gumbel_topk(wanted, num_samples=DRAWS, seeds=torch.tensor(0))
    place = (2.0 ** torch.arange(len(pi))).double()
    seen = torch.bincount((z @ place).long(), minlength=2 ** len(pi))[(subsets @ place).long()]
    assert int(seen.sum()) == DRAWS
    assert bool(((seen - p * DRAWS).abs() <= 5 * (p * (1 - p) * DRAWS).sqrt()).all())


def test_one_draw_is_exact():
    pi = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    z = khot.gumbel_topk(pi, num_samples=DRAWS, seeds=torch.tensor(0))
    assert bool(((z.mean(0) - pi).abs() < 5 * (pi * (1 - pi) / DRAWS).sqrt()).all())


def test_the_logarithm_is_within_two_ulp(generator):
    x = torch.rand(10_000, generator=generator, dtype=torch.float64)
    x = torch.cat((x, torch.tensor([2.0**-53, 1 - 2.0**-53, 0.5, 0.7, 0.71], dtype=x.dtype)))
    assert float(((_log(x) - x.log()) / x.log()).abs().max()) < 2**-51


def test_a_row_has_the_same_logarithms_anywhere():
    x = torch.rand(10_007, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole = _log(x)
    for start in (1, 3, 5000, 10_000):
        assert torch.equal(_log(x[start:]), whole[start:])
