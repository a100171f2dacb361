"""Straight-through on inclusion probabilities: its value, and what its gradient estimates."""

import pytest
import torch

import khot
from khot import testing

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
    assert torch.equal(z.detach(), khot.tournament_pivotal(pi, seeds=seeds).to(dtype))


def test_gradient_for_a_linear_loss_is_that_of_pi_for_every_draw():
    g = normal(6, seed=1)
    inputs = [normal(6), torch.tensor(3.0).double(), torch.tensor(0.7).double()]
    logits, k, tau = (value.requires_grad_() for value in inputs)
    wanted = torch.autograd.grad(khot.sigmoid_topk(logits, k, tau=tau) @ g, (logits, k, tau))
    for seed in khot.row_seeds(0, 20):
        z = khot.pi_st(logits, k, tau=tau, seeds=seed)
        got = torch.autograd.grad(z @ g, (logits, k, tau))
        assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


@pytest.mark.parametrize("power", [2, 3])
def test_mean_gradient_is_the_first_order_approximation(power):
    """Proposition 3, for the loss (b z)^power: E[J_pi^T g(z)], by enumeration of the law."""
    n, k, draws = 5, 2, 100_000
    logits, b = normal(n), normal(n, seed=2)
    pi = khot.sigmoid_topk(logits, k)
    jacobian = torch.func.jacrev(lambda logits: khot.sigmoid_topk(logits, k))(logits)
    law = testing.tournament_law(pi.tolist())
    subsets = torch.tensor(list(law), dtype=torch.float64)
    p = torch.tensor(list(law.values()), dtype=torch.float64)
    g = power * (subsets @ b).pow(power - 1).unsqueeze(-1) * b
    wanted = p @ g @ jacobian

    rows = logits.expand(draws, n).clone().requires_grad_()
    (khot.pi_st(rows, k, seeds=khot.row_seeds(0, draws)) @ b).pow(power).sum().backward()
    errors = rows.grad.std(0) / draws**0.5
    assert float(((rows.grad.mean(0) - wanted) / errors).abs().max()) < 5

    if power == 3:  # and then it is not the gradient of the loss at pi
        at_pi = power * (pi @ b).pow(power - 1) * b @ jacobian
        assert float(((at_pi - wanted) / errors).abs().max()) > 50


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
        (1.5, ValueError, "k must be whole .*; got 1.5"),
        (torch.tensor([1.0, 1.5]), ValueError, "k must be whole .*; got a fraction in 1 of 2"),
        (float("nan"), ValueError, "k must be whole"),
        (True, TypeError, "k must be a number or a tensor; got bool"),
        ("2", TypeError, "k must be a number or a tensor; got str"),
    ],
)
def test_a_k_that_is_not_whole_is_refused(k, error, message):
    with pytest.raises(error, match=f"^pi_st: {message}"):
        khot.pi_st(torch.zeros(2, 3), k)
