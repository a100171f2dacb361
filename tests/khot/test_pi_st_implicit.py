"""Straight-through with a learned k: sizes, probabilities, and gradients in k."""

import pytest
import torch

import khot

pytestmark = pytest.mark.usefixtures("path")


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def wanted_pi(logits, k):
    return logits.sigmoid() if k is None else khot.sigmoid_topk(logits, k)


@pytest.mark.parametrize("k", [2.3, 0.75, None])
def test_inclusion_probabilities_are_pi_and_sizes_those_of_the_phantom_unit(k):
    """P(size = floor) = pi_{n+1} and P(size = floor + 1) = 1 - pi_{n+1}: Equation 15, put right."""
    logits, draws = normal(6), 30_000
    z = khot.pi_st_implicit(logits, k, num_samples=draws, seeds=khot.row_seeds(0, 1)[0])
    pi = wanted_pi(logits, k)
    errors = (pi * (1 - pi) / draws).sqrt()
    assert float(((z.mean(0) - pi) / errors).abs().max()) < 5
    total = float(pi.sum())
    floor = int(total)
    phantom = 1 - (total - floor)
    sizes = z.sum(-1)
    assert sizes.unique().tolist() == [floor, floor + 1]
    error = (phantom * (1 - phantom) / draws) ** 0.5
    assert abs(float((sizes == floor).double().mean()) - phantom) < 5 * error
    assert abs(1 - 2 * phantom) > 10 * error  # and so not the other way round


def test_a_whole_k_is_that_of_pi_st():
    logits, seeds = normal(20, 30), khot.row_seeds(0, 20)
    assert torch.equal(
        khot.pi_st_implicit(logits, 4, seeds=seeds), khot.pi_st(logits, 4, seeds=seeds)
    )


@pytest.mark.parametrize("k", [2.3, None])
def test_gradient_for_a_linear_loss_is_that_of_pi_for_every_draw(k):
    inputs = [normal(6), torch.tensor(0.7).double(), torch.tensor(0.0 if k is None else k).double()]
    logits, tau, size = (value.requires_grad_() for value in inputs)
    b = normal(6, seed=1)
    if k is None:
        given, pi = (logits, tau), (logits / tau).sigmoid()
    else:
        given, pi = (logits, tau, size), khot.sigmoid_topk(logits, size, tau=tau)
    wanted = torch.autograd.grad(pi @ b, given)
    for seed in khot.row_seeds(0, 20):
        z = khot.pi_st_implicit(logits, None if k is None else size, tau=tau, seeds=seed)
        got = torch.autograd.grad(z @ b, given)
        assert all(torch.allclose(a, w, rtol=1e-10) for a, w in zip(got, wanted, strict=True))


def test_mean_gradient_of_a_quadratic_loss_is_the_first_order_approximation():
    """For the loss (b z)^2 it needs E[z] = pi alone: 2 (b pi) <b, d pi>, in k too."""
    draws, b = 30_000, normal(6, seed=1)
    logits, k = normal(6), torch.tensor(2.3).double()
    pi = khot.sigmoid_topk(logits, k)
    jacobians = torch.func.jacrev(khot.sigmoid_topk, argnums=(0, 1))(logits, k)
    rows = logits.expand(draws, 6).clone().requires_grad_()
    sizes = k.expand(draws).clone().requires_grad_()
    z = khot.pi_st_implicit(rows, sizes, seeds=khot.row_seeds(0, draws))
    (z @ b).square().sum().backward()
    for got, jacobian in zip((rows.grad, sizes.grad), jacobians, strict=True):
        wanted = 2 * (b @ pi) * b @ jacobian
        errors = got.std(0) / draws**0.5
        assert float(((got.mean(0) - wanted) / errors).abs().max()) < 5


def test_a_penalty_on_the_size_finds_the_size():
    """Loss <b, z> + sum z: units with b < -1 are worth having, the others not."""
    b = torch.tensor([-3.0, -2.0, -0.5, 0.5])
    logits = torch.zeros(4, requires_grad=True)
    seeds = khot.row_seeds(0, 60)
    for step in range(60):
        z = khot.pi_st_implicit(logits, num_samples=16, seeds=seeds[step])
        (gradient,) = torch.autograd.grad((z @ b + z.sum(-1)).mean(), logits)
        logits = (logits - 2 * gradient).detach().requires_grad_()
    assert khot.pi_st_implicit(logits, tau=0.01, seeds=seeds[0]).tolist() == [1, 1, 0, 0]


def test_masked_units_have_no_say_in_the_gradient_of_tau():
    tau = torch.tensor(1.0, requires_grad=True)
    logits = torch.tensor([1.0, -torch.inf, 0.5])
    khot.pi_st_implicit(logits, tau=tau, seeds=torch.tensor(0)).sum().backward()
    assert bool(tau.grad.isfinite())


def test_refusals_without_k_name_what_was_given():
    with pytest.raises(ValueError, match="^pi_st_implicit: logits must hold finite"):
        khot.pi_st_implicit(torch.tensor([1.0, torch.nan]))
    with pytest.raises(ValueError, match="^pi_st_implicit: tau must be finite and above 0; got 0"):
        khot.pi_st_implicit(torch.zeros(3), tau=0)
