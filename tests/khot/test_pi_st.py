"""Straight-through on inclusion probabilities: its value, and what its gradient estimates."""

import pytest
import torch

import khot

pytestmark = pytest.mark.usefixtures("path")


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_value_is_the_draw_to_the_bit(dtype):
    logits = normal(200, 50).to(dtype).requires_grad_()
    seeds = khot.row_seeds(0, 200)
    z = khot.pi_st(logits, 7, seeds=seeds)
    assert z.dtype == dtype and z.requires_grad
    wide = logits.detach() if dtype == torch.float64 else logits.detach().float()
    pi = khot.sigmoid_topk(wide, 7)
    assert torch.equal(z.detach(), khot.pivotal(pi, seeds=seeds).to(dtype))


def test_gradient_for_a_linear_loss_is_that_of_pi_for_every_draw():
    g = normal(6, seed=1)
    inputs = [normal(6), torch.tensor(3.0).double(), torch.tensor(0.7).double()]
    logits, k, tau = (value.requires_grad_() for value in inputs)
    wanted = torch.autograd.grad(khot.sigmoid_topk(logits, k, tau=tau) @ g, (logits, k, tau))
    for seed in khot.row_seeds(0, 20):
        z = khot.pi_st(logits, k, tau=tau, seeds=seed)
        got = torch.autograd.grad(z @ g, (logits, k, tau))
        assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


@pytest.mark.parametrize(("k", "power"), [(2, 2), (1, 3)])
def test_mean_gradient_is_the_first_order_approximation(k, power):
    """Proposition 3, for the loss (b z)^power: J_pi^T E[g(z)].

    E[g(z)] is known: of a square it needs E[z] = pi alone, and at k = 1 the law is pi.
    """
    n, draws = 6, 30_000
    logits, b = normal(n), normal(n, seed=2)
    pi = khot.sigmoid_topk(logits, k)
    jacobian = torch.func.jacrev(lambda logits: khot.sigmoid_topk(logits, k))(logits)
    g = 2 * (pi @ b) * b if power == 2 else 3 * (pi @ b.square()) * b
    wanted = g @ jacobian

    rows = logits.expand(draws, n).clone().requires_grad_()
    (khot.pi_st(rows, k, seeds=khot.row_seeds(0, draws)) @ b).pow(power).sum().backward()
    errors = rows.grad.std(0) / draws**0.5
    assert float(((rows.grad.mean(0) - wanted) / errors).abs().max()) < 5

    if k == 1:  # and it is neither the gradient of the loss at pi nor the true one
        for other in (3 * (pi @ b).square() * b, b.pow(3)):
            assert float(((other @ jacobian - wanted) / errors).abs().max()) > 50


def test_one_of_two_is_the_categorical_straight_through_of_half_the_logits():
    """sigma_1 of two units is softmax(logits / 2), not softmax."""
    logits, g = normal(50, 2).requires_grad_(), normal(50, 2, seed=1)
    z = khot.pi_st(logits, 1, seeds=khot.row_seeds(0, 50))
    pi = (logits / 2).softmax(-1)
    assert torch.equal(z, khot.pivotal(pi.detach(), seeds=khot.row_seeds(0, 50)))
    (got,) = torch.autograd.grad(z, logits, g)
    assert torch.allclose(got, torch.autograd.grad(pi, logits, g)[0], rtol=1e-10)
    (other,) = torch.autograd.grad(logits.softmax(-1), logits, g)
    assert not torch.allclose(got, other, rtol=0.1)


def test_one_of_many_is_the_categorical_straight_through_of_sigma_1():
    logits, g, draws = normal(5).requires_grad_(), normal(5, seed=1), 20_000
    z = khot.pi_st(logits, 1, num_samples=draws, seeds=khot.row_seeds(0, 1)[0])
    mean, pi = z.detach().mean(0), khot.sigmoid_topk(logits.detach(), 1)
    errors = (pi * (1 - pi) / draws).sqrt()
    assert float(((mean - pi) / errors).abs().max()) < 5
    assert float(((mean - logits.detach().softmax(-1)) / errors).abs().max()) > 20
    (got,) = torch.autograd.grad(z[0], logits, g)
    d = pi * (1 - pi)
    assert torch.allclose(got, d * (g - (d @ g) / d.sum()), rtol=1e-10)


def test_small_tau_is_the_top_k_and_large_tau_is_uniform():
    logits = normal(6)
    cold = khot.pi_st(logits, 2, tau=1e-3, num_samples=100, seeds=khot.row_seeds(0, 1)[0])
    assert torch.equal(cold, khot.topk(logits, 2).expand(100, 6))
    hot = khot.pi_st(logits, 2, tau=1e6, num_samples=20_000, seeds=khot.row_seeds(0, 1)[0])
    error = (2 / 9 / 20_000) ** 0.5
    assert float((hot.mean(0) - 1 / 3).abs().max()) < 5 * error


def test_diagnostics_are_those_of_the_relaxation():
    logits, seeds = normal(8, 30), khot.row_seeds(0, 8)
    z, diagnostics = khot.pi_st_with_diagnostics(logits, 4, tau=0.5, seeds=seeds)
    assert torch.equal(z, khot.pi_st(logits, 4, tau=0.5, seeds=seeds))
    wanted = khot.sigmoid_topk_with_diagnostics(logits, 4, tau=0.5)[1]
    assert torch.equal(diagnostics.iterations, wanted.iterations)


def test_each_row_may_have_its_own_k():
    k = torch.tensor([0, 1, 3, 5])
    assert torch.equal(khot.pi_st(normal(4, 5), k).sum(-1), k.double())


def test_forward_mode_and_double_backward():
    seeds = khot.row_seeds(0, 1)[0]
    direction = normal(6, seed=1)
    _, tangent = torch.func.jvp(
        lambda logits: khot.pi_st(logits, 2, seeds=seeds), (normal(6),), (direction,)
    )
    pi = torch.func.jvp(lambda logits: khot.sigmoid_topk(logits, 2), (normal(6),), (direction,))
    assert torch.allclose(tangent, pi[1])
    logits = normal(6).requires_grad_()
    loss = (khot.pi_st(logits, 2, seeds=seeds) * direction).sum()
    (first,) = torch.autograd.grad(loss, logits, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), logits)
    assert bool(second.isfinite().all()) and bool((second != 0).any())


@pytest.mark.parametrize(
    ("k", "error", "message"),
    [
        (1.5, ValueError, "k must be whole; got 1.5"),
        (torch.tensor([1.0, 1.5]), ValueError, "k must be whole; got another value in 1 of 2 rows"),
        (float("nan"), ValueError, "k must be whole"),
        (True, TypeError, "k must be a number or a tensor; got bool"),
        ("2", TypeError, "k must be a number or a tensor; got str"),
    ],
)
def test_a_k_that_is_not_whole_is_refused(k, error, message):
    with pytest.raises(error, match=f"^pi_st: {message}"):
        khot.pi_st(torch.zeros(2, 3), k)
