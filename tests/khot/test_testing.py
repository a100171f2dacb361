"""The checks that others may run fail on operators that are wrong."""

import math

import pytest
import torch

import khot
from khot import _random, testing


def test_subsets_are_all_of_them():
    rows = testing.subsets(6, 3)
    assert rows.shape == (math.comb(6, 3), 6)
    assert bool((rows.sum(1) == 3).all())
    assert len({tuple(row) for row in rows.tolist()}) == len(rows)
    assert testing.subsets(4, 0).tolist() == [[0, 0, 0, 0]]


def renormalised(x, k, *, dim=-1):
    """Sums to k, but its entries leave [0, 1]."""
    return k * x.softmax(dim)


def single_precision(x, k, *, dim=-1):
    """Right, but only as far as a float32 bisection goes."""
    return khot.sigmoid_topk(x.to(torch.bfloat16), k, dim=dim).to(x.dtype)


def detached(x, k, *, dim=-1):
    """Right values, no gradient."""
    return khot.sigmoid_topk(x.detach(), k, dim=dim) + 0 * x


def ignores_dim(x, k, *, dim=-1):
    return khot.sigmoid_topk(x, k)


def reversed_scores(x, k, *, dim=-1):
    return khot.sigmoid_topk(-x.clamp(min=-1e9), k, dim=dim)


def not_shift_invariant(x, k, *, dim=-1):
    p = x.sigmoid()
    return p * k / p.sum(dim, keepdim=True)


@pytest.mark.parametrize("wrong", [renormalised, single_precision, ignores_dim])
def test_wrong_values_are_found(wrong):
    with pytest.raises(AssertionError, match="leaves|off by|dim=1"):
        testing.check_relaxation(wrong)


def test_a_leaking_mask_is_found():
    with pytest.raises(AssertionError, match="a masked unit is not 0"):
        testing.check_row(
            lambda x, k: khot.sigmoid_topk(x.clamp(min=-9), k), torch.tensor([1.0, -torch.inf]), 0.5
        )


def test_a_missing_gradient_is_found():
    with pytest.raises(AssertionError, match="is off by .* from finite differences"):
        testing.check_gradient(detached, torch.arange(4.0), 2.0)


def test_a_wrong_order_is_found():
    with pytest.raises(AssertionError, match="a larger score got a smaller entry"):
        testing.check_order(reversed_scores, torch.arange(4.0), 2.0)


def test_a_missing_invariance_is_found():
    with pytest.raises(AssertionError, match="changed the result"):
        testing.check_shift(not_shift_invariant, torch.arange(-4.0, 4.0), 2.0, shift=1.0)


def gumbel_topk(pi, *, seeds):
    """Has k ones, but not the inclusion probabilities pi."""
    u = _random.uniforms(seeds, pi.shape[-1])
    chosen = (pi.log() - (-u.log()).log()).topk(round(float(pi[0].sum()))).indices
    return torch.zeros_like(pi).scatter(-1, chosen, 1.0)


def poisson(pi, *, seeds):
    """Has the inclusion probabilities pi, but any number of ones."""
    return (_random.uniforms(seeds, pi.shape[-1]) < pi).to(pi.dtype)


SKEWED = torch.tensor([0.9, 0.05, 0.8, 0.15, 0.1], dtype=torch.float64)


def test_wrong_inclusion_probabilities_are_found():
    testing.check_fixed_size(gumbel_topk, SKEWED)
    with pytest.raises(AssertionError, match="an inclusion probability is off by"):
        testing.check_inclusion(gumbel_topk, SKEWED)
    with pytest.raises(AssertionError, match="a unit at exactly 0 or 1 did not get that"):
        testing.check_inclusion(
            lambda pi, seeds: poisson(pi.clamp(0.1, 0.9), seeds=seeds), torch.tensor([1.0, 0.0])
        )


def test_a_size_that_varies_is_found():
    testing.check_inclusion(poisson, SKEWED)
    with pytest.raises(AssertionError, match="draws of another size"):
        testing.check_fixed_size(poisson, SKEWED)


def test_the_law_of_two_units_is_a_coin():
    law = testing.tournament_law([0.25, 0.75])
    assert law == {(1, 0): pytest.approx(0.25), (0, 1): pytest.approx(0.75)}
