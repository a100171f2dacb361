"""The tournament: its exact law, its size, and what a draw depends on."""

import math

import pytest
import torch

import khot
from khot import testing

DRAWS = 400_000


def probabilities(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def counted(z: torch.Tensor) -> torch.Tensor:
    """How often each draw was made: a dimension of two for each unit, to index by a draw."""
    n = z.shape[-1]
    codes = (z @ 2.0 ** torch.arange(n, dtype=z.dtype).flip(0)).long()
    return codes.bincount(minlength=2**n).reshape((2,) * n)


CASES = {
    "equal": probabilities(0.5, 0.5, 0.5, 0.5),
    "ties across 1/2": probabilities(0.25, 0.25, 0.75, 0.75),
    "skewed": probabilities(0.9, 0.05, 0.8, 0.15, 0.1),
    "certain units": probabilities(0.0, 1.0, 0.3, 0.7, 0.0, 1.0),
    "nearly certain units": probabilities(1e-6, 1 - 1e-6, 0.4, 0.6, 0.25, 0.75),
    "one of many": probabilities(0.5, 0.2, 0.1, 0.1, 0.1),
}


@pytest.fixture(scope="module", params=CASES, ids=str)
def case(request):
    """pi, its draws, and the law by enumeration."""
    pi = CASES[request.param]
    z = khot.tournament_pivotal(pi.expand(DRAWS, -1), seeds=khot.row_seeds(1, DRAWS))
    return pi, z, testing.tournament_law(pi.tolist())


def test_the_law_has_these_inclusion_probabilities(case):
    pi, _, law = case
    subsets = torch.tensor(list(law), dtype=torch.float64)
    weights = torch.tensor(list(law.values()), dtype=torch.float64)
    assert float(weights.sum()) == pytest.approx(1, abs=1e-14)
    assert torch.allclose(weights @ subsets, pi, rtol=0, atol=1e-14)


def test_draws_follow_the_law(case):
    _, z, law = case
    counts = counted(z)
    assert sum(int(counts[subset]) for subset in law) == DRAWS
    for subset, p in law.items():
        error = math.sqrt(p * (1 - p) * DRAWS)
        assert abs(int(counts[subset]) - p * DRAWS) <= 5 * error + 1e-6, subset


def test_pairs_are_as_likely_as_the_law_says_and_never_negatively(case):
    pi, z, law = case
    subsets = torch.tensor(list(law), dtype=torch.float64)
    weights = torch.tensor(list(law.values()), dtype=torch.float64)
    pairs = subsets.T @ (weights.unsqueeze(-1) * subsets)
    assert bool((pairs >= 0).all())
    assert bool((pairs <= torch.minimum(pi, pi.unsqueeze(-1)) + 1e-12).all())
    # the pivotal method never makes two units likelier together than apart
    off = ~torch.eye(len(pi), dtype=torch.bool)
    assert bool((pairs <= pi * pi.unsqueeze(-1) + 1e-12)[off].all())
    errors = (pairs * (1 - pairs) / DRAWS).clamp(min=0).sqrt()
    assert bool(((z.T @ z / DRAWS - pairs).abs() <= 5 * errors + 1e-6).all())


def test_entropy_is_near_the_greatest_possible():
    pi = khot.sigmoid_topk(torch.linspace(-2, 2, 8).double(), 4)
    z = khot.tournament_pivotal(pi.expand(DRAWS, -1), seeds=khot.row_seeds(0, DRAWS))
    counts = counted(z).double()
    p = counts[counts > 0] / DRAWS
    entropy = float(-(p * p.log()).sum())
    # the greatest has p(z) ~ exp(theta z), theta such that the inclusion probabilities are pi
    subsets, theta = testing.subsets(8, 4), pi.logit()
    for _ in range(100):
        p = (subsets @ theta).softmax(0)
        theta = theta + pi.logit() - (p @ subsets).logit()
    assert torch.allclose(p @ subsets, pi, atol=1e-12)
    greatest = float(-(p * p.log()).sum())
    assert 0.98 * greatest < entropy < greatest


@pytest.mark.parametrize("n", [2, 3, 7, 8])
def test_inclusion_probabilities_of_skewed_rows(n):
    pi = khot.sigmoid_topk(torch.linspace(-14, 3, n).double(), n // 2)
    testing.check_inclusion(khot.tournament_pivotal, pi, draws=DRAWS)


def test_probabilities_from_float32_logits(generator):
    x = torch.randn(200, 784, generator=generator) * 3
    pi = khot.sigmoid_topk(x, 50)
    assert bool((pi.double().sum(-1) != 50).any())
    z = khot.tournament_pivotal(pi, generator=generator)
    assert z.dtype == torch.float32 and bool((z.sum(-1) == 50).all())
    row = khot.tournament_pivotal(pi[0].expand(4000, -1), generator=generator)
    assert bool((row.sum(-1) == 50).all())
    p = pi[0].double()
    deviations = (row.double().mean(0) - p) / (p * (1 - p) / 4000).sqrt()
    assert float(deviations.abs().max()) < 5


@pytest.mark.parametrize(
    ("pi", "wanted"),
    [
        ([0.0], [0]),
        ([1.0], [1]),
        ([0.0] * 7, [0] * 7),
        ([1.0] * 7, [1] * 7),
        ([1.0, 0.0, 1.0, 0.0, 1.0], [1, 0, 1, 0, 1]),
        ([1e-9, 1 - 1e-9], [0, 1]),
        ([5e-324, 0.0, 1.0], [0, 0, 1]),
    ],
)
def test_no_choice_is_left(pi, wanted):
    seeds = khot.row_seeds(0, 1000)
    z = khot.tournament_pivotal(probabilities(*pi).expand(1000, -1), seeds=seeds)
    assert torch.equal(z, probabilities(*wanted).expand(1000, -1))


@pytest.mark.parametrize("off", [-9e-7, -3e-9, 0.0, 3e-9, 9e-7])
def test_size_is_fixed_when_the_sum_is_off_by_rounding(off):
    for pi in ([0.5 + off, 0.5], [1.0, off + 0.3, 0.7, 0.0], [0.1] * 9 + [0.1 + off]):
        testing.check_fixed_size(khot.tournament_pivotal, probabilities(*pi))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_probabilities(dtype, generator):
    pi = khot.sigmoid_topk(torch.randn(100, 784, generator=generator), 50).to(dtype)
    z = khot.tournament_pivotal(pi, generator=generator)
    assert z.dtype == dtype and bool((z.float().sum(-1) == 50).all())


def test_a_generator_decides_and_moves_on(generator):
    pi = torch.full((4, 20), 0.5)
    first = khot.tournament_pivotal(pi, generator=generator)
    assert not torch.equal(first, khot.tournament_pivotal(pi, generator=generator))
    assert torch.equal(first, khot.tournament_pivotal(pi, generator=generator.manual_seed(0)))
    torch.manual_seed(0)
    assert torch.equal(first, khot.tournament_pivotal(pi))


def test_threads_change_no_bit(generator):
    pi = khot.sigmoid_topk(torch.randn(64, 5000, generator=generator), 700)
    seeds = khot.row_seeds(0, 64)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = khot.tournament_pivotal(pi, seeds=seeds)
        torch.set_num_threads(3)
        assert torch.equal(khot.tournament_pivotal(pi, seeds=seeds), one)
    finally:
        torch.set_num_threads(before)


def test_there_is_no_gradient():
    pi = torch.full((4,), 0.5, requires_grad=True)
    assert not khot.tournament_pivotal(pi).requires_grad


def test_a_known_draw():
    """What is drawn from a seed is part of the interface: kernels must give the same."""
    pi = torch.full((2, 12), 0.25, dtype=torch.float64)
    z = khot.tournament_pivotal(pi, seeds=torch.tensor([0, -1]))
    assert z.nonzero()[:, 1].reshape(2, 3).tolist() == [[3, 4, 11], [6, 8, 11]]
