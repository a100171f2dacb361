"""Gumbel-sigmoid: the noise, the relaxed sample and its gradient, and the law of the hard one."""

import math
from itertools import permutations

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


def test_noise_is_gumbel():
    g = gumbels(Source(khot.row_seeds(0, 100), 3), 1000, torch.float64)
    assert g.shape == (3, 100, 1000)
    count = g.numel()
    assert abs(float(g.mean()) - 0.5772156649) < 5 * math.pi / math.sqrt(6 * count)
    for quantile in (0.01, 0.5, 0.99):
        below = (g < -math.log(-math.log(quantile))).double().mean()
        assert abs(float(below) - quantile) < 5 * math.sqrt(quantile * (1 - quantile) / count)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_noise_is_that_of_the_uniform_numbers(dtype):
    source = Source(khot.row_seeds(0, 40), 2)
    wanted = -(-source.uniforms(700).log()).log()
    got = gumbels(source, 700, dtype)
    assert got.dtype == dtype
    assert torch.allclose(got.double(), wanted, rtol=0, atol=20 * torch.finfo(dtype).eps)


def test_noise_of_a_row_is_the_same_anywhere():
    whole = gumbels(Source(khot.row_seeds(0, 40), 3), 700, torch.float32)
    alone = gumbels(Source(khot.row_seeds(0, 1, first=7), 2), 513, torch.float32)
    assert torch.equal(alone[:, 0], whole[:2, 7, :513])


@pytest.mark.parametrize("hard", [False, True])
def test_value_and_gradient_are_those_of_the_noisy_logits(hard):
    logits, g, seeds = normal(20, 9).requires_grad_(), normal(20, 9, seed=1), khot.row_seeds(0, 20)
    k, tau = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (3.0, 0.7))
    z = khot.gumbel_sigmoid(logits, k, tau=tau, hard=hard, seeds=seeds)
    x = noisy(logits, seeds)[0]
    p = khot.sigmoid_topk(x, k, tau=tau)
    if hard:
        assert torch.equal(z, khot.topk(x, 3))
    else:
        assert torch.allclose(z, p, rtol=1e-9)
    got = torch.autograd.grad(z, (logits, k, tau), g)
    wanted = torch.autograd.grad(p, (logits, k, tau), g)
    assert all(torch.allclose(a, b, rtol=1e-8) for a, b in zip(got, wanted, strict=True))


def test_gradient_is_that_of_the_mean_relaxed_loss():
    """By differences with the same noise, so exactly."""
    logits, b, seed, step = normal(5), normal(5, seed=1), khot.row_seeds(0, 1)[0], 1e-5

    def loss(x):
        p = khot.gumbel_sigmoid(x, 2, tau=0.5, num_samples=100, seeds=seed)
        return (p @ b).pow(3).mean()

    x = logits.clone().requires_grad_()
    (got,) = torch.autograd.grad(loss(x), x)
    basis = step * torch.eye(5, dtype=torch.float64)
    wanted = torch.stack([(loss(logits + e) - loss(logits - e)) / (2 * step) for e in basis])
    assert torch.allclose(got, wanted, rtol=1e-6, atol=1e-8)


def test_hard_samples_follow_plackett_and_luce():
    """The top k of perturbed logits, by enumeration of all orders of choice; not pi."""
    logits, draws, k = normal(4), 30_000, 2
    weights = logits.exp().tolist()
    wanted = torch.zeros(4, dtype=torch.float64)
    for order in permutations(range(4), k):
        p, left = 1.0, sum(weights)
        for unit in order:
            p, left = p * weights[unit] / left, left - weights[unit]
        wanted[list(order)] += p
    seed = khot.row_seeds(0, 1)[0]
    z = khot.gumbel_sigmoid(logits, k, hard=True, num_samples=draws, seeds=seed)
    errors = (wanted * (1 - wanted) / draws).sqrt()
    assert float(((z.mean(0) - wanted) / errors).abs().max()) < 5
    pi = khot.sigmoid_topk(logits, k)
    assert float(((z.mean(0) - pi) / errors).abs().max()) > 10


def test_tau_to_0_hardens_the_sample_and_leaves_the_hard_one():
    logits, seeds = normal(30, 9), khot.row_seeds(0, 30)
    hard = khot.gumbel_sigmoid(logits, 3, hard=True, seeds=seeds)
    assert torch.equal(hard, khot.gumbel_sigmoid(logits, 3, tau=9.0, hard=True, seeds=seeds))
    soft = khot.gumbel_sigmoid(logits, 3, tau=1e-4, seeds=seeds)
    assert torch.allclose(soft, hard, atol=1e-6)
    even = khot.gumbel_sigmoid(logits, 3, tau=1e6, seeds=seeds)
    assert torch.allclose(even, torch.full_like(even, 1 / 3), atol=1e-4)


def test_an_offset_does_not_round_the_noise_away():
    seeds = khot.row_seeds(0, 30)
    near = khot.gumbel_sigmoid(torch.zeros(30, 9), 3, seeds=seeds)
    assert torch.equal(near, khot.gumbel_sigmoid(torch.full((30, 9), 2.0**24), 3, seeds=seeds))


def test_hard_must_be_true_or_false():
    with pytest.raises(TypeError, match="^gumbel_sigmoid: hard must be True or False; got int"):
        khot.gumbel_sigmoid(torch.zeros(3), 1, hard=1)


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("samples", [None, 3])
def test_diagnostics_are_those_of_the_relaxed_samples(hard, samples):
    logits, seeds = normal(8, 30), khot.row_seeds(0, 8)
    options = {"tau": 0.5, "hard": hard, "num_samples": samples, "seeds": seeds}
    z, diagnostics = khot.gumbel_sigmoid_with_diagnostics(logits, 4, **options)
    assert torch.equal(z, khot.gumbel_sigmoid(logits, 4, **options))
    x = noisy(logits, seeds, samples or 1)
    wanted = khot.sigmoid_topk_with_diagnostics(x if samples else x[0], 4, tau=0.5)[1]
    assert torch.equal(diagnostics.iterations, wanted.iterations)
    assert diagnostics.residual.shape == ((3, 8) if samples else (8,))


def test_the_hardest_sample_of_a_row_is_the_one_of_the_most_iterations():
    solved = khot.Diagnostics(
        c=torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        iterations=torch.tensor([[2, 9], [3, 1]], dtype=torch.int32),
        residual=torch.tensor([[0.1, 0.2], [0.3, 0.4]]),
        fallback=torch.tensor([[False, True], [False, False]]),
    ).hardest()
    assert solved.c.tolist() == [3.0, 2.0] and solved.iterations.tolist() == [3, 9]
    assert solved.fallback.tolist() == [False, True]
    assert torch.equal(solved.residual, torch.tensor([0.3, 0.2]))
