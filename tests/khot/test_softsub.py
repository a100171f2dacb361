"""SoftSub: sequential softmax of noisy logits, relaxed and straight-through."""

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


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("k", [1, 4])
def test_value_and_gradient_are_those_of_the_noisy_logits(k, hard):
    logits, g, seeds = normal(20, 9).requires_grad_(), normal(20, 9, seed=1), khot.row_seeds(0, 20)
    tau = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    z = khot.softsub(logits, k, tau=tau, hard=hard, seeds=seeds)
    x = noisy(logits, seeds)[0]
    p = khot.sequential_softmax_topk(x, k, tau=tau)
    if hard:
        assert torch.equal(z, khot.topk(x, k))
    else:
        assert torch.allclose(z, p, rtol=1e-9)
    got = torch.autograd.grad(z, (logits, tau), g)
    wanted = torch.autograd.grad(p, (logits, tau), g)
    assert all(torch.allclose(a, b, rtol=1e-8) for a, b in zip(got, wanted, strict=True))


def test_one_hard_unit_is_straight_through_gumbel_softmax():
    logits, g, seeds = normal(20, 9).requires_grad_(), normal(20, 9, seed=1), khot.row_seeds(0, 20)
    ours = khot.softsub(logits, 1, tau=0.5, hard=True, seeds=seeds)
    theirs = khot.st_gumbel_softmax(logits, 1, tau=0.5, seeds=seeds)
    assert torch.equal(ours, theirs)
    got, wanted = (torch.autograd.grad(z, logits, g)[0] for z in (ours, theirs))
    assert torch.allclose(got, wanted, rtol=1e-9)


def test_it_draws_the_hard_samples_of_gumbel_sigmoid():
    logits, seeds = normal(20, 9), khot.row_seeds(0, 20)
    ours, theirs = (
        f(logits, 4, hard=True, seeds=seeds) for f in (khot.softsub, khot.gumbel_sigmoid)
    )
    assert torch.equal(ours, theirs)


def test_gradient_is_that_of_the_mean_relaxed_loss():
    """By differences with the same noise, so exactly."""
    logits, b, seed, step = normal(5), normal(5, seed=1), khot.row_seeds(0, 1)[0], 1e-5

    def loss(x):
        p = khot.softsub(x, 2, tau=0.5, num_samples=100, seeds=seed)
        return (p @ b).pow(3).mean()

    x = logits.clone().requires_grad_()
    (got,) = torch.autograd.grad(loss(x), x)
    basis = step * torch.eye(5, dtype=torch.float64)
    wanted = torch.stack([(loss(logits + e) - loss(logits - e)) / (2 * step) for e in basis])
    assert torch.allclose(got, wanted, rtol=1e-6, atol=1e-8)


def test_small_tau_gives_the_hard_sample():
    logits, seeds = normal(30, 9), khot.row_seeds(0, 30)
    hard = khot.softsub(logits, 3, hard=True, seeds=seeds)
    assert torch.allclose(khot.softsub(logits, 3, tau=1e-4, seeds=seeds), hard, atol=1e-6)


def test_entries_may_exceed_1():
    p = khot.softsub(normal(30, 3) * 9, 2, seeds=khot.row_seeds(0, 30))
    assert bool((p > 1.2).any())


def test_k_must_be_one_number():
    with pytest.raises(TypeError, match="^softsub: k must be one whole number; got Tensor"):
        khot.softsub(torch.zeros(2, 3), torch.tensor([1, 2]))


@pytest.mark.parametrize(
    ("logits", "k", "tau", "message"),
    [
        ([1.0, torch.nan, 0.0], 1, 1.0, "logits must hold finite numbers or -inf; got NaN"),
        ([1.0, -torch.inf, 0.0], 3, 1.0, "k must be in .*; got k = 3 for n = 2"),
        ([1.0, 2.0, 0.0], 1, -1.0, "tau must be finite and above 0; got -1"),
        ([1e308, -1e308, 0.0], 1, 1.0, "logits must have differences within float64; got another"),
    ],
)
@pytest.mark.parametrize("units", [3, 90])
def test_hard_samples_refuse_what_relaxed_ones_do(logits, k, tau, message, units):
    x = torch.tensor([[0.0, 0.0, 0.0], logits], dtype=torch.float64)
    x = torch.nn.functional.pad(x, (0, units - 3), value=-torch.inf)
    for hard in (False, True):
        with pytest.raises(ValueError, match=f"^softsub: {message}"):
            khot.softsub(x, k, tau=tau, hard=hard)
