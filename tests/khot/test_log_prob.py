"""log P(z) of a design: against enumeration, its own draws, and what has no such law."""

from functools import cache

import pytest
import torch

import khot
from khot import conditional_poisson, testing

pytestmark = pytest.mark.usefixtures("path", "one_thread")
DRAWS = 100_000


def values(*of: float) -> torch.Tensor:
    return torch.tensor(of, dtype=torch.float64)


# pi, or logits and k
GIVEN = {
    "pi": (values(0.9, 0.2, 0.6, 0.5, 0.7, 0.1), None),
    "two units": (values(0.3, 0.7), None),
    "certain units": (values(0.0, 1.0, 0.2, 0.8, 0.5, 0.5), None),
    "all certain": (values(0.0, 1.0, 1.0), None),
    "not whole": (values(0.9, 0.3, 0.6, 0.2, 0.35), None),
    "certain and not whole": (values(0.9, 1.0, 0.0, 0.35), None),
    "less than one": (values(0.1, 0.05, 0.2), None),
    "logits": (values(2.0, 1.0, 0.0, -1.0, -1.0, 0.5), 3),
    "logits, k not whole": (values(2.0, 1.0, 0.0, -1.0, 0.5), 2.3),
    "masked": (values(2.0, -torch.inf, 0.0, -1.0, 0.5), 2.5),
    "k = 0": (values(2.0, 1.0, 0.0), 0),
    "k = n": (values(2.0, 1.0, 0.0), 3),
}
ALL = pytest.mark.parametrize("name", GIVEN)
FITTED = pytest.mark.parametrize("fitted", [True, False])


def support(pi: torch.Tensor, k: float | None) -> torch.Tensor:
    """All z of the sizes that may be drawn."""
    total = float(pi.sum()) if k is None else k
    size = round(total) if abs(total - round(total)) < 1e-9 else int(total)
    sizes = {size} if abs(total - size) < 1e-9 else {size, size + 1}
    return torch.cat([testing.subsets(len(pi), s) for s in sorted(sizes)])


def log_prob(z: torch.Tensor, *given, **options) -> torch.Tensor:
    return khot.log_prob("conditional_poisson", z, *given, **options)


@cache
def law(name: str, fitted: bool, path: str) -> tuple[torch.Tensor, torch.Tensor]:
    """All z and their probabilities, once for the tests that look at them."""
    z = support(*GIVEN[name])
    return z, log_prob(z, *GIVEN[name], fitted=fitted).exp()


@ALL
@FITTED
def test_probabilities_sum_to_1(name, fitted, path):
    assert float(law(name, fitted, path)[1].sum()) == pytest.approx(1)


@ALL
def test_fitted_marginals_are_pi(name, path):
    x, k = GIVEN[name]
    pi = x if k is None else khot.sigmoid_topk(x, k)
    z, p = law(name, True, path)
    assert float((p @ z - pi).abs().max()) < 1e-11


@ALL
@FITTED
def test_it_is_how_often_the_design_draws_z(name, fitted, path):
    z, p = law(name, fitted, path)
    drawn = conditional_poisson(
        *GIVEN[name], fitted=fitted, num_samples=DRAWS, seeds=khot.row_seeds(1, 1)[0]
    )
    code = 2.0 ** torch.arange(z.shape[-1], dtype=torch.float64)
    share = ((drawn @ code).unsqueeze(-1) == z @ code).double().mean(0)
    errors = (p * (1 - p) / DRAWS).clamp(min=0).sqrt()
    assert float(share.sum()) == pytest.approx(1, abs=1e-12)
    assert bool(((share - p).abs() <= 5 * errors + 1e-9).all())
    assert bool((share[p == 0] == 0).all())


@pytest.mark.parametrize("k", [1, 2, 4])
def test_as_it_stands_it_is_that_of_enumeration(k):
    x = values(2.0, 1.0, 0.0, -1.0, 0.5)
    z = testing.subsets(5, k)
    wanted = (z @ x).log_softmax(0)
    assert torch.allclose(log_prob(z, x, k, fitted=False), wanted, atol=1e-12)
    pi = khot.sigmoid_topk(x, k)
    assert torch.allclose(log_prob(z, pi, fitted=False), wanted, atol=1e-12)
    assert float((log_prob(z, x, k) - wanted).abs().max()) > 1e-3


def slopes(function, x: torch.Tensor, free: torch.Tensor) -> torch.Tensor:
    """By differences of the fourth order, all in one call: a fit to 1e-12 allows no small step."""
    h = 1e-3
    e = h * torch.eye(len(x), dtype=torch.float64)[free]
    ends = function(torch.cat([x + s * e for s in (1, -1, 2, -2)])).unflatten(0, (4, -1))
    near, far = ends[0] - ends[1], ends[2] - ends[3]
    return torch.zeros_like(x).masked_scatter(free, (8 * near - far) / (12 * h))


@pytest.mark.parametrize("name", [name for name in GIVEN if name != "all certain"])
@FITTED
def test_gradient_is_that_of_finite_differences(name, fitted):
    """In logits, those of pi if it is given: so its sum stays."""
    x, k = GIVEN[name]
    z = support(x, k)
    free = (x > 0) & (x < 1) if k is None else x > -torch.inf
    of_pi, total = k is None, float(x[free].sum())

    def values(logits):
        """A row for each of the logits, a column for each z."""
        if not of_pi:
            return log_prob(z.unsqueeze(1), logits, k, fitted=fitted).T
        pi = x.expand_as(logits).clone()
        pi[:, free] = khot.sigmoid_topk(logits[:, free], total)
        return log_prob(z.unsqueeze(1), pi, fitted=fitted).T

    leaf = (torch.logit(x) if of_pi else x).unsqueeze(0).requires_grad_()
    at_x = values(leaf)
    possible = at_x.detach()[0] > -torch.inf
    weights = torch.randn(len(z), generator=torch.Generator().manual_seed(0)).double()[possible]
    (got,) = torch.autograd.grad(at_x[0, possible] @ weights, leaf)
    wanted = slopes(lambda logits: values(logits)[:, possible] @ weights, leaf.detach()[0], free)
    assert float((got[0] - wanted).abs().max()) < 1e-8


def test_gradient_of_a_unit_at_0_or_1_is_0_and_a_factor_of_all_odds_changes_nothing():
    pi = values(0.0, 1.0, 0.2, 0.9, 0.5, 0.4).requires_grad_()
    z = values(0, 1, 0, 1, 1, 0)
    for fitted in (True, False):
        (got,) = torch.autograd.grad(log_prob(z, pi, fitted=fitted), pi)
        assert got[:2].tolist() == [0, 0] and bool((got[2:] != 0).all())
        d = (pi * (1 - pi)).detach()
        assert abs(float(got @ d)) < 1e-12


def test_impossible_draws_have_probability_0():
    pi = GIVEN["certain units"][0]
    for z in (values(1, 1, 0, 1, 0, 0), values(0, 0, 1, 1, 1, 0), values(1, 0, 1, 1, 0, 0)):
        assert float(log_prob(z, pi)) == float(log_prob(z, pi, fitted=False)) == -torch.inf
    masked, z = GIVEN["masked"][0], values(1, 1, 0, 0, 0)
    assert float(log_prob(z, masked, 2.5)) == float(log_prob(z, masked, 2, fitted=False))
    assert float(log_prob(z, masked, 2)) == -torch.inf


def test_shapes_samples_and_the_dimension_of_units():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 6, 3, generator=generator)
    k = torch.tensor([[1.0, 2.0, 2.5], [3.0, 0.0, 6.0]])
    pi = khot.sigmoid_topk(logits, k, dim=1)
    z = conditional_poisson(pi, num_samples=4, dim=1, generator=generator)
    got = log_prob(z, pi, dim=1)
    assert got.shape == (4, 2, 3) and got.dtype == torch.float32
    assert torch.equal(got, log_prob(z, pi, dim=-2))
    for s, a, b in [(1, 0, 1), (2, 0, 2), (3, 1, 0), (0, 1, 1)]:
        alone = log_prob(z[s, a, :, b], pi[a, :, b])
        assert alone.shape == () and float(alone) == pytest.approx(float(got[s, a, b]), abs=1e-5)
    assert torch.equal(log_prob(z[1], pi, dim=1), got[1])
    assert torch.allclose(log_prob(z, logits, k, dim=1), got, atol=1e-4)
    one = log_prob(z[0, 0, :, 0], pi[:1].movedim(1, -1)[:, [0, 0]])  # one z for all rows
    assert one.shape == (1, 2) and torch.equal(one[0, 0], one[0, 1])
    assert torch.equal(log_prob(z.bool(), pi, dim=1), got)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_types_and_sharp_logits(dtype):
    x = torch.linspace(-40, 40, 12).to(dtype)
    z = (x > 0).to(dtype)
    got = log_prob(z, x, 6, fitted=False)
    assert got.dtype == dtype
    wanted = khot.KSubset(x.double(), 6).log_prob(z.double())
    assert float(got.double()) == pytest.approx(float(wanted), rel=1e-2)


@pytest.mark.parametrize("row", khot.operators("design"), ids=lambda row: row.name)
def test_only_a_tractable_law_has_it(row):
    z, pi = values(1, 0), values(0.5, 0.5)
    for design in (row.name, row.function):
        if row.tractable:
            assert float(khot.log_prob(design, z, pi).exp()) == pytest.approx(0.5)
            continue
        message = (
            r"^log_prob: design must be one with a tractable law \(conditional_poisson\); got "
        )
        with pytest.raises(ValueError, match=f"{message}'{row.name}'$"):
            khot.log_prob(design, z, pi)


Z, PI = values(1, 0, 1), values(0.5, 0.5, 1.0)
NAME = "conditional_poisson"


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (("pareto3", Z, PI), {}, ValueError, "design must be .*; got 'pareto3'"),
        ((1, Z, PI), {}, ValueError, "design must be .*; got int"),
        ((khot.sigmoid_topk, Z, PI), {}, ValueError, "design must be .*; got 'sigmoid_topk'"),
        ((NAME, Z, PI), {"seeds": 1}, TypeError, r"options must be .* \(fitted\); got seeds"),
        ((NAME, Z, PI), {"fitted": 1}, TypeError, "fitted must be True or False; got int"),
        ((NAME, [1, 0, 1], PI), {}, TypeError, "z must be a torch.Tensor; got list"),
        ((NAME, Z[:2], PI), {}, ValueError, r"z must broadcast .*\(3,\).*; got shape \(2,\)"),
        ((NAME, Z[:1], PI), {}, ValueError, r"z must broadcast .*; got shape \(1,\)"),
        ((NAME, Z[0], PI), {}, ValueError, r"z must broadcast .*; got shape \(\)"),
        ((NAME, PI, PI), {}, ValueError, "z must have zeros and .*; got another in 1 of 1 rows"),
        ((NAME, values(1, 1, 1), PI), {}, ValueError, "z must have .* in 1 of 1 rows"),
        ((NAME, values(0, 0, 1), PI), {}, ValueError, "z must have .* in 1 of 1 rows"),
        ((NAME, values(0, 0, 0), PI, 1.5), {}, ValueError, "z must have .* in 1 of 1 rows"),
        ((NAME, Z, PI * 2), {}, ValueError, r"pi must be in \[0, 1\]; got another value in 1 of 1"),
        ((NAME, Z, PI * torch.nan), {}, ValueError, r"pi must be in \[0, 1\]"),
        ((NAME, Z, PI * torch.nan, 2), {}, ValueError, "logits must hold finite numbers"),
        ((NAME, Z, PI, 4), {}, ValueError, r"k must be in \[0, n\].*; got k = 4 for n = 3"),
        ((NAME, Z, PI, "2"), {}, TypeError, "k must be a number or a tensor; got str"),
        ((NAME, Z, [0.5, 0.5, 1]), {}, TypeError, "pi must be a torch.Tensor; got list"),
        ((NAME, Z, PI), {"dim": 1}, ValueError, "dim must be in"),
    ],
)
def test_bad_arguments_are_refused(arguments, options, error, message):
    with pytest.raises(error, match=f"^log_prob: {message}"):
        khot.log_prob(*arguments, **options)


def test_what_cannot_be_fitted_is_refused(monkeypatch):
    monkeypatch.setattr(khot._ksubset_fit, "_STEPS", 1)
    monkeypatch.setattr(khot._ksubset_fit, "_NEWTON", 0)
    pi, _ = GIVEN["pi"]
    with pytest.raises(ValueError, match="^log_prob: fitted must be False .* in 1 of 1 rows"):
        log_prob(support(pi, None), pi)
