"""ReinMax: Algorithm 4, and exact for quadratic losses."""

import pytest
import torch

import khot

pytestmark = pytest.mark.usefixtures("path")


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def given_one_hot(estimator, logits, g, **options):
    """The gradients (n, n) of an estimator of k = 1, where unit i was drawn, at g[i] (n, n)."""
    x = logits.clone().requires_grad_()
    z = estimator(x, 1, num_samples=500, seeds=khot.row_seeds(0, 1)[0], **options)
    first = [int((z[:, i] == 1).nonzero()[0]) for i in range(len(x))]
    return torch.stack(
        [torch.autograd.grad(z[s], x, g[i], retain_graph=True)[0] for i, s in enumerate(first)]
    )


def algorithm_4(logits, z, tau):
    """As the paper writes it, about a draw z."""
    pi_0 = logits.softmax(-1)
    pi_1 = (z + (logits / tau).softmax(-1)) / 2
    pi_1 = ((pi_1.log() - logits).detach() + logits).softmax(-1)
    pi_2 = 2 * pi_1 - pi_0 / 2
    return (z - pi_2).detach() + pi_2


@pytest.mark.parametrize("tau", [1.0, 0.5, 3.0])
def test_it_is_algorithm_4(tau):
    logits, g, seeds = normal(20, 7).requires_grad_(), normal(20, 7, seed=1), khot.row_seeds(0, 20)
    z = khot.reinmax(logits, tau=tau, seeds=seeds)
    assert torch.equal(z, khot.pivotal(logits.softmax(-1), seeds=seeds))
    (got,) = torch.autograd.grad(z, logits, g)
    (wanted,) = torch.autograd.grad(algorithm_4(logits, z.detach(), tau), logits, g)
    assert torch.allclose(got, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("n", [2, 5])
def test_mean_gradient_is_exact_up_to_quadratic_losses(n, degree):
    """For the loss (b z)^degree, by enumeration; the true one is sum_i f(e_i) d pi_i."""
    logits, b = normal(n), normal(n, seed=1)
    pi, units = logits.softmax(-1), torch.eye(n, dtype=torch.float64)
    g = degree * (units @ b).pow(degree - 1).unsqueeze(-1) * b
    mean = pi @ given_one_hot(khot.reinmax, logits, g)
    true = pi * (b.pow(degree) - pi @ b.pow(degree))
    assert torch.allclose(mean, true, rtol=1e-9) == (degree < 3)


def test_draws_are_those_of_softmax():
    logits, draws = normal(6), 30_000
    z = khot.reinmax(logits, num_samples=draws, seeds=khot.row_seeds(0, 1)[0])
    pi = logits.softmax(-1)
    assert float(((z.mean(0) - pi) / (pi * (1 - pi) / draws).sqrt()).abs().max()) < 5


def test_tau_changes_the_gradient_and_not_the_draw():
    logits, seeds = normal(20, 7).requires_grad_(), khot.row_seeds(0, 20)
    draws = [khot.reinmax(logits, tau=tau, seeds=seeds) for tau in (1.0, 0.1)]
    assert torch.equal(*draws)
    gradients = [torch.autograd.grad(z, logits, normal(20, 7, seed=1))[0] for z in draws]
    assert not torch.allclose(*gradients, rtol=0.01)
