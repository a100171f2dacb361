"""Conditional Poisson sampling: the fit, the law as it stands and fitted, and its draws."""

import math

import pytest
import torch

import khot
from khot import _ksubset, _ksubset_fit, conditional_poisson, testing
from khot.sampling._draw import row_sum

DRAWS = 400_000


def probabilities(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


LAWS = {
    "ten units": khot.sigmoid_topk(torch.linspace(-4, 4, 10).double(), 5),
    "ten sharp units": khot.sigmoid_topk(torch.linspace(-14, 14, 10).double(), 5),
    "skewed": probabilities(0.9, 0.05, 0.8, 0.15, 0.1),
    "two units": probabilities(0.3, 0.7),
    "certain units": probabilities(0.0, 1.0, 0.2, 0.8, 0.5, 0.5, 0.0, 1.0),
    "groups that hardly exchange": probabilities(1e-6, 1 - 1e-6, 0.4, 0.6, 0.25, 0.75),
}
ALL_LAWS = pytest.mark.parametrize("pi", LAWS.values(), ids=LAWS)


def fitted(pi):
    """The subsets of the fitted law and their probabilities."""
    k = round(float(pi.sum()))
    theta, left, found = _ksubset_fit.fit(pi.unsqueeze(0), torch.tensor([[float(k)]]), row_sum)
    assert bool(found.all())
    z = testing.subsets(len(pi), k)
    z = z[((z == 1) | (pi < 1)).all(-1) & ((z == 0) | (pi > 0)).all(-1)]
    scores = torch.where((z > 0) & (theta[0] > -torch.inf), theta[0], 0.0).sum(-1)
    assert float(left) == k - int((pi == 1).sum())
    return z, scores.softmax(0)


@ALL_LAWS
def test_the_fitted_law_has_these_inclusion_probabilities(pi, path):
    z, p = fitted(pi)
    assert float((p @ z - pi).abs().max()) < 2e-12


@ALL_LAWS
def test_draws_follow_the_fitted_law(pi):
    subsets, p = fitted(pi)
    z = conditional_poisson(pi, num_samples=DRAWS, seeds=khot.row_seeds(1, 1)[0])
    pairs = subsets.T @ (p.unsqueeze(-1) * subsets)
    errors = (pairs * (1 - pairs) / DRAWS).clamp(min=0).sqrt()
    assert bool(((z.T @ z / DRAWS - pairs).abs() <= 5 * errors + 1e-9).all())
    code = 2.0 ** torch.arange(len(pi), dtype=torch.float64)
    counts = (z @ code).long().bincount(minlength=2 ** len(pi))[(subsets @ code).long()]
    assert int(counts.sum()) == DRAWS
    assert bool(
        ((counts.double() / DRAWS - p).abs() <= 5 * (p * (1 - p) / DRAWS).sqrt() + 1e-9).all()
    )


def test_as_it_stands_the_law_is_simples_and_not_pi():
    pi = LAWS["ten units"]
    z = conditional_poisson(pi, fitted=False, num_samples=DRAWS, seeds=torch.tensor(0))
    law = khot.KSubset(torch.logit(pi), 5)
    errors = (law.marginals * (1 - law.marginals) / DRAWS).sqrt()
    assert float(((z.mean(0) - law.marginals) / errors).abs().max()) < 5
    assert float(((z.mean(0) - pi) / errors).abs().max()) > 30


def test_as_it_stands_with_logits_is_the_k_subset_law():
    x = torch.linspace(-40, 40, 12)
    seeds = khot.row_seeds(0, 1)[0]
    z = conditional_poisson(x, 6, fitted=False, num_samples=500, seeds=seeds)
    wanted = khot.KSubset(x.double(), 6).sample((500,), seeds=seeds)
    assert z.dtype == torch.float32 and torch.equal(z.double(), wanted)


def test_entropy_is_the_greatest_possible():
    pi = LAWS["ten units"]
    theta, left, _ = _ksubset_fit.fit(pi.unsqueeze(0), torch.tensor([[5.0]]), row_sum)
    entropy = float(khot.KSubset(theta[0], int(left)).entropy())
    # any way through the laws with the same marginals loses entropy
    z, p = fitted(pi)
    assert entropy == pytest.approx(float(-(p * p.log()).sum()), abs=1e-10)
    generator = torch.Generator().manual_seed(0)
    kept = z  # the ones of each unit, and so their sum
    q = torch.linalg.qr(p.unsqueeze(-1) * kept).Q
    for _ in range(20):
        step = torch.randn(len(z), generator=generator, dtype=torch.float64)
        step = p * (step - q @ (q.T @ step))
        assert float((step @ kept).abs().max()) < 1e-10
        other = p + 0.1 * step / (step / p).abs().max()
        assert float(-(other * other.log()).sum()) < entropy


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 3.0, 10.0, 30.0])
@pytest.mark.parametrize(("n", "k"), [(2, 1), (3, 1), (5, 2), (10, 5), (50, 7), (80, 79)])
def test_everything_is_fitted(n, k, scale):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(16, n, generator=generator, dtype=torch.float64) * scale
    pi = khot.sigmoid_topk(x, k)
    k = torch.full((16, 1), float(k), dtype=torch.float64)
    theta, left, found = _ksubset_fit.fit(pi, k, row_sum)
    assert bool(found.all())
    mu = _ksubset.law(theta, left)[0] + (pi == 1)
    assert float((mu - pi).abs().max()) < 2e-12


def test_powers_of_random_numbers_are_fitted():
    generator = torch.Generator().manual_seed(0)
    for power in (2, 6, 20):
        x = torch.rand(200, 8, generator=generator, dtype=torch.float64) ** power
        pi = khot.sigmoid_topk(torch.logit(x, eps=1e-300), 3)
        assert bool(_ksubset_fit.fit(pi, torch.full((200, 1), 3.0).double(), row_sum)[2].all())


def test_what_cannot_be_fitted_is_refused(monkeypatch):
    monkeypatch.setattr(_ksubset_fit, "_STEPS", 1)
    monkeypatch.setattr(_ksubset_fit, "_NEWTON", 0)
    pi = torch.stack((LAWS["ten units"], torch.full((10,), 0.5).double()))
    message = "^conditional_poisson: fitted must be False .*; got no theta .* in 1 of 2 rows"
    with pytest.raises(ValueError, match=message):
        conditional_poisson(pi)
    assert conditional_poisson(pi, fitted=False).shape == (2, 10)


def test_a_phantom_unit_keeps_the_inclusion_probabilities():
    pi = probabilities(0.9, 0.3, 0.6, 0.2, 0.35)  # 2.35
    z = conditional_poisson(pi, num_samples=DRAWS, seeds=torch.tensor(3))
    errors = (pi * (1 - pi) / DRAWS).sqrt()
    assert float(((z.mean(0) - pi) / errors).abs().max()) < 5
    larger = float((z.sum(-1) == 3).double().mean())
    assert set(z.sum(-1).unique().tolist()) == {2.0, 3.0}
    assert abs(larger - 0.35) < 5 * math.sqrt(0.35 * 0.65 / DRAWS)


def test_expanded_rows_are_fitted_once_and_drawn_apart(monkeypatch):
    seen = []
    law = _ksubset.law
    monkeypatch.setattr(_ksubset, "law", lambda theta, k: seen.append(len(theta)) or law(theta, k))
    pi = LAWS["ten units"].expand(50, -1)
    z = conditional_poisson(pi, seeds=khot.row_seeds(0, 50))
    assert set(seen) == {1} and len(z.unique(dim=0)) > 10


def test_large_rows(generator):
    x = torch.randn(8, 784, generator=generator) * 3
    pi = khot.sigmoid_topk(x, 50)
    z = conditional_poisson(pi, generator=generator)
    assert z.dtype == torch.float32 and bool((z.sum(-1) == 50).all())
    row = conditional_poisson(pi[0], num_samples=4000, generator=generator)
    p = pi[0].double()
    deviations = (row.double().mean(0) - p) / (p * (1 - p) / 4000).sqrt()
    assert float(deviations.abs().max()) < 5


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(
    ("pi", "wanted"),
    [
        ([0.0], [0]),
        ([1.0], [1]),
        ([1.0, 0.0, 1.0, 0.0, 1.0], [1, 0, 1, 0, 1]),
        ([1e-9, 1 - 1e-9], [0, 1]),
        ([5e-324, 0.0, 1.0], [0, 0, 1]),
        ([1.0, 1.0, 1e-9], [1, 1, 0]),
    ],
)
@pytest.mark.parametrize("fitted", [True, False])
def test_no_choice_is_left(pi, wanted, fitted):
    seeds = khot.row_seeds(0, 100)
    z = conditional_poisson(probabilities(*pi).expand(100, -1), fitted=fitted, seeds=seeds)
    assert torch.equal(z, probabilities(*wanted).expand(100, -1))


def test_a_known_draw():
    """What is drawn from a seed is part of the interface."""
    pi = torch.full((2, 12), 0.25, dtype=torch.float64)
    z = conditional_poisson(pi, seeds=torch.tensor([0, -1]))
    assert z.nonzero()[:, 1].reshape(2, 3).tolist() == [[4, 5, 10], [2, 4, 10]]
