"""Straight-through Gumbel-softmax: its draws, and the soft sample it is differentiated as."""

import pytest
import torch

import khot
from khot._random import Source
from khot.estimators._common import gumbels

pytestmark = pytest.mark.usefixtures("path")


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def noisy(logits, seeds, samples=1):
    return logits + gumbels(Source(seeds, samples), logits.shape[-1], logits.dtype)


def test_draws_are_those_of_softmax():
    logits, draws = normal(6), 30_000
    z = khot.st_gumbel_softmax(logits, num_samples=draws, seeds=khot.row_seeds(0, 1)[0])
    pi = logits.softmax(-1)
    assert float(((z.mean(0) - pi) / (pi * (1 - pi) / draws).sqrt()).abs().max()) < 5


@pytest.mark.parametrize("tau", [0.2, 1.0, 5.0])
def test_value_is_the_largest_and_gradient_that_of_the_soft_sample(tau):
    logits, g, seeds = normal(20, 7).requires_grad_(), normal(20, 7, seed=1), khot.row_seeds(0, 20)
    scale = torch.tensor(tau, dtype=torch.float64, requires_grad=True)
    z = khot.st_gumbel_softmax(logits, tau=scale, seeds=seeds)
    x = noisy(logits, seeds)[0]
    assert torch.equal(z.argmax(-1), x.argmax(-1))
    got = torch.autograd.grad(z, (logits, scale), g)
    wanted = torch.autograd.grad((x / scale).softmax(-1), (logits, scale), g)
    assert all(torch.allclose(a, b, rtol=1e-9) for a, b in zip(got, wanted, strict=True))


def test_gradient_is_biased_even_for_a_linear_loss():
    logits, b, draws = normal(4), normal(4, seed=1), 30_000
    rows = logits.expand(draws, 4).clone().requires_grad_()
    z = khot.st_gumbel_softmax(rows, seeds=khot.row_seeds(0, draws))
    (z @ b).sum().backward()
    pi = logits.softmax(-1)
    off = (rows.grad.mean(0) - pi * (b - pi @ b)) / (rows.grad.std(0) / draws**0.5)
    assert float(off.abs().max()) > 20
