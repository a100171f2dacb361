"""SIMPLE and its flavours: exact draws, and the gradient of exact marginals."""

import pytest
import torch

import khot
from khot import testing

pytestmark = pytest.mark.usefixtures("path", "one_thread")
SEED = khot.row_seeds(0, 1)[0]


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def law(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All k-hot vectors and their probabilities, by enumeration."""
    z = testing.subsets(len(logits), k)
    return z, (z @ logits).softmax(0)


def covariance(logits: torch.Tensor, k: int) -> torch.Tensor:
    z, p = law(logits, k)
    mu = p @ z
    return (z - mu).T @ ((z - mu) * p.unsqueeze(-1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_value_is_the_draw_of_the_k_subset_law_to_the_bit(dtype):
    logits, seeds = normal(200, 50).to(dtype), khot.row_seeds(0, 200)
    z = khot.simple(logits.requires_grad_(), 7, seeds=seeds)
    assert z.dtype == dtype and z.requires_grad
    assert torch.equal(z.detach(), khot.KSubset(logits.detach(), 7).sample(seeds=seeds))


def test_gradient_is_the_jacobian_of_the_marginals_for_every_draw():
    logits, tau, g = normal(7), torch.tensor(0.7).double(), normal(7, seed=1)
    wanted = covariance(logits / tau, 3) @ g
    logits.requires_grad_(), tau.requires_grad_()
    for seed in khot.row_seeds(0, 5):
        z = khot.simple(logits, 3, tau=tau, seeds=seed)
        got = torch.autograd.grad(z @ g, (logits, tau))
        assert torch.allclose(got[0], wanted / tau, atol=1e-12)
        assert torch.allclose(got[1], -(wanted / tau) @ logits / tau, atol=1e-12)


@pytest.mark.parametrize("flavour", ["simple", "b"])
@pytest.mark.parametrize("power", [2, 3])
def test_mean_gradient_is_the_jacobian_times_the_mean_cotangent(power, flavour):
    """For the loss (b z)^power; of flavour b, with the mean over the draws that it makes."""
    n, k, draws = 6, 3, 8000 if flavour == "simple" else 1000
    logits, b = normal(n), normal(n, seed=2)
    rows = logits.expand(draws, n).clone().requires_grad_()
    z = khot.simple(rows, k, flavour=flavour, seeds=khot.row_seeds(0, draws))
    (z @ b).pow(power).sum().backward()
    subsets, p = law(logits, k)
    if flavour == "b":
        hits = (z.detach() @ subsets.T == k).double()
        p = hits.mean(0)
    mean = p @ (power * (subsets @ b).pow(power - 1).unsqueeze(-1) * b)
    errors = rows.grad.std(0) / draws**0.5
    wanted = covariance(logits, k) @ mean
    deviations = (rows.grad.mean(0) - wanted).abs() / errors
    assert float(deviations.max()) < (5 if flavour == "simple" else 1e-6)
    if flavour == "simple":  # which is not the exact gradient
        loss = (subsets @ b).pow(power)
        mu = p @ subsets
        exact = (p * loss) @ (subsets - mu)
        assert float(((exact - wanted) / errors).abs().max()) > 20


def test_it_is_the_categorical_straight_through_at_k_1():
    logits, g = normal(6).requires_grad_(), normal(6, seed=1)
    (wanted,) = torch.autograd.grad(logits.softmax(-1) @ g, logits)
    z = khot.simple(logits, 1, num_samples=8000, seeds=SEED)
    (got,) = torch.autograd.grad(z[0] @ g, logits)
    assert torch.allclose(got, wanted, atol=1e-14)
    p = logits.detach().softmax(-1)
    errors = (p * (1 - p) / 8000).sqrt()
    assert float(((z.detach().mean(0) - p) / errors).abs().max()) < 5


def test_samples_are_draws_of_their_own_and_add_up_their_gradients():
    logits, seeds = normal(3, 8), khot.row_seeds(0, 3)
    g = normal(5, 3, 8, seed=1)
    for flavour in ("simple", "f", "b"):
        x = logits.clone().requires_grad_()
        z = khot.simple(x, 3, flavour=flavour, num_samples=5, seeds=seeds)
        assert torch.equal(z[0], khot.simple(logits, 3, flavour=flavour, seeds=seeds))
        assert len({tuple(row) for row in z[:, 0].tolist()}) > 1
        (whole,) = torch.autograd.grad(z, x, g, retain_graph=True)
        each = [
            torch.autograd.grad(z, x, g * (torch.arange(5) == s).reshape(-1, 1, 1), True)[0]
            for s in range(5)
        ]
        offset = torch.stack(each).sum(0) - whole
        if flavour != "f":  # whose gradient is not linear in g
            assert float(offset.abs().max()) < 1e-12
    assert khot.simple(logits, 3, num_samples=0).shape == (0, 3, 8)


def test_flavour_f_is_a_difference_of_exact_draws_by_the_same_numbers():
    logits, g, seeds = normal(50, 8), normal(50, 8, seed=1), khot.row_seeds(0, 50)
    x = logits.clone().requires_grad_()
    z = khot.simple(x, 3, flavour="f", strength=0.5, seeds=seeds)
    (got,) = torch.autograd.grad(z, x, g)
    rather = khot.simple(logits - 0.5 * g, 3, seeds=seeds)
    assert torch.equal(z.detach(), khot.simple(logits, 3, seeds=seeds))
    assert torch.equal(got, (z.detach() - rather) / 0.5) and bool((got != 0).any())


def test_the_mean_of_flavour_f_is_a_difference_of_marginals():
    n, k, draws, strength = 6, 3, 8000, 0.5
    logits, g = normal(n), normal(n, seed=1)
    x = logits.expand(draws, n).clone().requires_grad_()
    seeds = khot.row_seeds(0, draws)
    z = khot.simple(x, k, flavour="f", strength=strength, seeds=seeds)
    (got,) = torch.autograd.grad(z, x, g.expand(draws, n))
    (before, p), (_, q) = law(logits, k), law(logits - strength * g, k)
    wanted = (p - q) @ before / strength
    assert float(((got.mean(0) - wanted) / (got.std(0) / draws**0.5)).abs().max()) < 5


def test_flavour_b_draws_as_imle():
    logits, seeds = normal(20, 8), khot.row_seeds(0, 20)
    for noise in ("sum_of_gamma", "gumbel"):
        z = khot.simple(logits, 3, flavour="b", noise=noise, seeds=seeds)
        assert torch.equal(z, khot.imle(logits, 3, noise=noise, seeds=seeds))


def test_each_row_may_have_its_own_k_and_those_without_choice_have_no_gradient():
    k = torch.tensor([0, 1, 3, 5])
    logits = normal(4, 5).requires_grad_()
    for flavour in ("simple", "f", "b"):
        z = khot.simple(logits, k, flavour=flavour, strength=4.0, seeds=khot.row_seeds(0, 4))
        assert torch.equal(z.detach().sum(-1), k.double())
        (got,) = torch.autograd.grad(z, logits, normal(4, 5, seed=1))
        assert bool((got[[0, 3]] == 0).all()) and bool((got[[1, 2]] != 0).any())


def test_masked_units_and_large_logits_have_finite_gradients():
    logits = torch.tensor([[1e30, -1e30, 5.0, -torch.inf], [0.0, -torch.inf, 1.0, 2.0]])
    logits.requires_grad_()
    tau = torch.tensor([1e-3, 2.0], requires_grad=True)
    z = khot.simple(logits, 2, tau=tau, seeds=khot.row_seeds(0, 2))
    got = torch.autograd.grad(z, (logits, tau), torch.ones(2, 4).cumsum(-1))
    assert all(bool(part.isfinite().all()) for part in got)
    assert z[0].tolist() == [1, 0, 1, 0] and float(got[0][1, 1]) == 0


def test_forward_mode_and_double_backward():
    direction = normal(6, seed=1)
    wanted = covariance(normal(6), 2) @ direction
    _, tangent = torch.func.jvp(
        lambda logits: khot.simple(logits, 2, seeds=SEED), (normal(6),), (direction,)
    )
    assert torch.allclose(tangent, wanted)
    logits = normal(6).requires_grad_()
    loss = khot.simple(logits, 2, seeds=SEED) @ direction
    (first,) = torch.autograd.grad(loss, logits, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), logits)
    product = torch.func.grad(lambda x: (covariance(x, 2) @ direction).square().sum())
    assert torch.allclose(second, product(normal(6)), atol=1e-10)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"flavour": "g"}, ValueError, "flavour must be one of simple, f, b; got 'g'"),
        ({"strength": 0}, ValueError, "strength must be finite and above 0; got 0"),
        ({"strength": "1"}, TypeError, "strength must be a number; got str"),
        ({"noise": "normal"}, ValueError, "noise must be one of sum_of_gamma, gumbel; got 'nor"),
        ({"k": 1.5}, ValueError, "k must be whole; got 1.5"),
    ],
)
def test_refusals(options, error, message):
    with pytest.raises(error, match=f"^simple: {message}"):
        khot.simple(torch.zeros(3), **{"k": 2} | options)
