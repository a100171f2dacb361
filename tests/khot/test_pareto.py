"""Pareto sampling: its law where it is known, and its ranking."""

import math

import pytest
import torch

import khot
from khot._random import Source
from khot.sampling._order import smallest
from khot.sampling.pareto import rankings

DRAWS = 400_000


@pytest.mark.parametrize("p", [0.1, 0.4, 0.9])
def test_one_of_two_has_the_known_probability(p):
    """The ratio of two odds of uniform numbers is below r with a probability in closed form."""
    pi = torch.tensor([p, 1 - p], dtype=torch.float64)
    r = (p / (1 - p)) ** 2
    wanted = r * (r - 1 - math.log(r)) / (r - 1) ** 2
    assert abs(wanted - p) > 0.005  # it is not pi
    z = khot.pareto(pi, num_samples=DRAWS, seeds=torch.tensor(0))
    error = math.sqrt(wanted * (1 - wanted) / DRAWS)
    assert abs(float(z[:, 0].mean()) - wanted) < 5 * error


def test_equal_probabilities_are_exact():
    z = khot.pareto(torch.full((7,), 3 / 7).double(), num_samples=DRAWS, seeds=torch.tensor(0))
    assert bool(((z.mean(0) - 3 / 7).abs() < 5 * math.sqrt(12 / 49 / DRAWS)).all())


def test_the_ranking_is_the_odds_of_a_uniform_number_over_those_of_pi():
    pi, source = torch.tensor([[0.0, 0.25, 1.0]]).double(), Source(khot.row_seeds(0, 1), 2)
    u = source.uniforms(3)
    got = rankings(pi, source)
    assert torch.equal(got[..., 1], u[..., 1] / (1 - u[..., 1]) * 3)
    assert bool((got[..., 0] == torch.inf).all()) and bool((got[..., 2] == 0).all())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_ties_go_to_the_lower_index(dtype):
    ranking = torch.tensor([[[3.0, 1, 1, 0, 1, torch.inf]]], dtype=dtype)
    for k, units in ((0, []), (1, [3]), (2, [1, 3]), (3, [1, 2, 3]), (5, [0, 1, 2, 3, 4])):
        z = smallest(ranking, torch.tensor([[k]]))
        assert z[0, 0].nonzero().squeeze(-1).tolist() == units


def test_rows_have_their_own_k(generator):
    ranking = torch.rand(3, 5, 40, generator=generator, dtype=torch.float64)
    k = torch.tensor([[0], [1], [20], [39], [40]])
    z = smallest(ranking, k)
    assert torch.equal(z.sum(-1), k.squeeze(-1).expand(3, 5))
    for s in range(3):
        for r, size in enumerate(k.flatten().tolist()):
            wanted = ranking[s, r].argsort()[:size].sort().values
            assert torch.equal(z[s, r].nonzero().squeeze(-1), wanted)
