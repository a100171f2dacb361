"""I-MLE: its noise, its draw, and its gradient at fixed noise."""

import itertools
import math

import pytest
import torch

import khot
from khot import _random
from khot.estimators import _perturb

pytestmark = pytest.mark.usefixtures("path", "one_thread")


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def column(k: float) -> torch.Tensor:
    return torch.full((1, 1), k, dtype=torch.float64)


def drawn(k: float, count: int) -> torch.Tensor:
    source = _random.Source(khot.row_seeds(0, 50))
    return _perturb.gammas(column(k), source, count // 50).flatten()


@pytest.mark.parametrize("k", [1, 2, 5, 50, 1000])
def test_gamma_numbers_have_their_law(k):
    """By Kolmogorov and Smirnov, whose statistic is above 2.6 once in a million; and by moments."""
    x = drawn(k, 30_000).sort().values
    p = torch.special.gammainc(torch.tensor(1 / k).double(), x)
    off = (p - torch.arange(1, len(p) + 1) / len(p)).abs() * len(p) ** 0.5
    assert float(off[x > 0].max()) < 2.6  # the smallest underflow, in one step of the law
    moments = [math.exp(math.lgamma(1 / k + m) - math.lgamma(1 / k)) for m in range(5)]
    for power in (1, 2):
        error = ((moments[2 * power] - moments[power] ** 2) / len(x)) ** 0.5
        assert abs(float(x.pow(power).mean()) - moments[power]) < 5 * error


@pytest.mark.parametrize("k", [1, 3, 20])
def test_sum_of_gamma_noise_has_its_moments(k):
    source = _random.Source(khot.row_seeds(1, 30))
    noise = _perturb.noise("sum_of_gamma", column(k), source, 1000).flatten()
    orders = torch.arange(1, 11).double()
    mean = (float((1 / orders).sum()) - math.log(10)) / k
    variance = float((1 / orders.square()).sum()) / k
    error = (variance / len(noise)) ** 0.5
    assert abs(float(noise.mean()) - mean) < 5 * error
    spread = (noise - noise.mean()).square()
    assert abs(float(spread.mean()) - variance) < 5 * float(spread.std()) / len(noise) ** 0.5


def test_sums_of_k_of_it_are_nearly_gumbel():
    source = _random.Source(khot.row_seeds(1, 30))
    noise = _perturb.noise("sum_of_gamma", column(5), source, 1000).reshape(-1, 5).sum(-1)
    place = torch.arange(1, len(noise) + 1) / len(noise)
    gumbel = torch.exp(-torch.exp(-noise.sort().values))
    assert float((gumbel - place).abs().max()) < 0.04  # s = 10 terms, not all
    one = torch.exp(-torch.exp(-noise.sort().values / 5**0.5))
    assert float((one - place).abs().max()) > 0.05


def test_numbers_depend_on_their_seed_alone(monkeypatch):
    k = torch.tensor([1.0, 2.0, 3.0, 7.0, 50.0, 100.0]).double().unsqueeze(-1)
    seeds = khot.row_seeds(0, 6)
    whole = _perturb.gammas(k, _random.Source(seeds, 3), 501)
    for b in range(6):
        alone = _perturb.gammas(k[b : b + 1], _random.Source(seeds[b : b + 1]), 501)
        assert torch.equal(alone[0, 0], whole[0, b])
    monkeypatch.setattr(_perturb, "_ELEMENTS", 4000)
    assert torch.equal(_perturb.gammas(k, _random.Source(seeds, 3), 501), whole)


def test_numbers_are_the_same_on_both_paths(path, monkeypatch):
    here = drawn(2, 5000)
    monkeypatch.setattr(khot._native.library._library, "object", None)
    assert torch.equal(drawn(2, 5000), here)


@pytest.mark.parametrize("noise", ["sum_of_gamma", "gumbel"])
@pytest.mark.parametrize("tau", [1.0, 0.3])
def test_value_and_gradient_are_the_formula_at_fixed_noise(noise, tau):
    logits, g, seeds = normal(40, 12), normal(40, 12, seed=1), khot.row_seeds(0, 40)
    eps = tau * _perturb.noise(noise, column(4), _random.Source(seeds), 12)[0]

    def top(x: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x).scatter_(-1, x.topk(4).indices, 1.0)

    x = logits.clone().requires_grad_()
    z = khot.imle(x, 4, tau=tau, strength=0.8, noise=noise, seeds=seeds)
    assert torch.equal(z.detach(), top(logits + eps))
    (got,) = torch.autograd.grad(z, x, g)
    assert torch.equal(got, (top(logits + eps) - top(logits - 0.8 * g + eps)) / 0.8)
    assert bool((got != 0).any())


def test_with_gumbel_noise_it_draws_one_after_another_without_replacement():
    n, k, draws = 5, 2, 20_000
    logits = normal(n)
    z = khot.imle(logits, k, noise="gumbel", num_samples=draws, seeds=torch.tensor(1))
    weights = logits.softmax(-1).tolist()
    for pair in itertools.combinations(range(n), 2):
        i, j = pair
        p = weights[i] * weights[j] * (1 / (1 - weights[i]) + 1 / (1 - weights[j]))
        hits = float((z[:, i] * z[:, j]).mean())
        assert abs(hits - p) < 5 * (p * (1 - p) / draws) ** 0.5, pair


def test_the_mean_gradient_tends_to_that_of_the_mean_draw():
    """At k = 1 with Gumbel noise the law is softmax, whose Jacobian is known."""
    draws, strength = 20_000, 0.05
    logits, g = normal(5), normal(5, seed=1)
    x = logits.expand(draws, 5).clone().requires_grad_()
    z = khot.imle(x, 1, noise="gumbel", strength=strength, seeds=khot.row_seeds(0, draws))
    (got,) = torch.autograd.grad(z, x, g.expand(draws, 5))
    change = logits.softmax(-1) - (logits - strength * g).softmax(-1)
    errors = got.std(0) / draws**0.5
    assert float(((got.mean(0) - change / strength) / errors).abs().max()) < 5


def test_samples_are_draws_of_their_own():
    logits, seeds = normal(3, 8), khot.row_seeds(0, 3)
    z = khot.imle(logits, 3, num_samples=6, seeds=seeds)
    assert torch.equal(z[0], khot.imle(logits, 3, seeds=seeds))
    assert len({tuple(row) for row in z[:, 0].tolist()}) > 1
    assert khot.imle(logits, 3, num_samples=0).shape == (0, 3, 8)


def test_each_row_may_have_its_own_k():
    k = torch.tensor([0, 1, 3, 5])
    assert torch.equal(khot.imle(normal(4, 5), k).sum(-1), k.double())


def test_ties_go_to_the_lower_index_and_an_offset_takes_nothing_from_the_noise():
    tied = torch.full((6,), 1e30, dtype=torch.float64)
    assert khot.imle(tied, 2).tolist() == [1, 1, 0, 0, 0, 0]
    seeds = khot.row_seeds(0, 100)
    assert torch.equal(
        khot.imle(normal(100, 9) + 1e6, 4, seeds=seeds),
        khot.imle((normal(100, 9) + 1e6) - 1e6, 4, seeds=seeds),
    )


def test_it_is_not_differentiable_twice_nor_forwards():
    logits = normal(5).requires_grad_()
    z = khot.imle(logits, 2, strength=5.0, seeds=torch.tensor(1))
    (first,) = torch.autograd.grad((z * normal(5, seed=1)).sum(), logits, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable|does not require grad"):
        first.sum().backward()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"strength": -1.0}, ValueError, "strength must be finite and above 0; got -1"),
        ({"strength": math.inf}, ValueError, "strength must be finite and above 0; got inf"),
        ({"strength": True}, TypeError, "strength must be a number; got bool"),
        ({"noise": "normal"}, ValueError, "noise must be one of sum_of_gamma, gumbel; got 'nor"),
        ({"k": 1.5}, ValueError, "k must be whole; got 1.5"),
    ],
)
def test_refusals(options, error, message):
    with pytest.raises(error, match=f"^imle: {message}"):
        khot.imle(torch.zeros(3), **{"k": 2} | options)
