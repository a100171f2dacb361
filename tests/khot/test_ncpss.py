"""NCPSS: whose draw, whose gradient, and what it does not promise."""

import pytest
import torch

import khot

pytestmark = pytest.mark.usefixtures("path")


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def test_it_draws_by_iterated_poisson_and_differentiates_renormalised_sigmoids():
    inputs = [normal(20, 9), torch.tensor(3.0).double(), torch.tensor(0.7).double()]
    given = tuple(value.requires_grad_() for value in inputs)
    logits, k, tau = given
    g, seeds = normal(20, 9, seed=1), khot.row_seeds(0, 20)
    pi = khot.renorm_sigmoid_topk(logits, k, tau=tau)
    z = khot.ncpss(logits, k, tau=tau, seeds=seeds)
    assert torch.equal(z, khot.iterated_poisson(pi, seeds=seeds))
    got, wanted = (torch.autograd.grad(out, given, g) for out in (z, pi))
    assert all(torch.allclose(a, b, rtol=1e-9) for a, b in zip(got, wanted, strict=True))


def test_draws_have_k_ones_or_more_and_rarely_less():
    z = khot.ncpss(normal(30), 10, num_samples=5000, seeds=khot.row_seeds(0, 1)[0])
    sizes = z.sum(-1)
    assert float((sizes < 10).double().mean()) < 0.01
    assert float((sizes > 10).double().mean()) > 0.3


def test_inclusion_probabilities_are_not_pi():
    logits, draws = normal(6), 20_000
    z = khot.ncpss(logits, 2, num_samples=draws, seeds=khot.row_seeds(0, 1)[0])
    pi = khot.renorm_sigmoid_topk(logits, 2)
    errors = (pi * (1 - pi) / draws).sqrt()
    assert bool(((z.mean(0) - pi) / errors > 10).all())
