"""The score function estimator: its score, and the unbiased gradient that it gives."""

import pytest
import torch

import khot
from khot import testing
from khot.estimators.score_function import FORMS

pytestmark = pytest.mark.usefixtures("path", "one_thread")
SEED = khot.row_seeds(0, 1)[0]


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def law(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All k-hot vectors and their probabilities, by enumeration."""
    z = testing.subsets(len(logits), k)
    return z, (z @ logits).softmax(0)


def loss(z: torch.Tensor) -> torch.Tensor:
    """Neither linear nor differentiable: a jump, a product and an offset."""
    return 3.0 + (z[..., 0] > z[..., 1]).double() - 2 * z[..., 2] * z[..., 3] * z[..., 4]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("k", [0, 1, 3, 6, 7])
def test_marginals_are_those_of_enumeration(form, k):
    for scale in (1.0, 30.0):
        logits = normal(7) * scale
        z, p = law(logits, k)
        mu = FORMS[form](logits.unsqueeze(0), torch.full((1, 1), float(k)).double())[0]
        assert float((mu - p @ z).abs().max()) < 1e-12


@pytest.mark.parametrize("form", FORMS)
def test_marginals_with_masks_and_a_k_for_each_row(form):
    logits = normal(5, 8)
    logits[1, ::2] = logits[3, 5:] = -torch.inf
    logits[4, 0] = 1e4
    k = torch.tensor([0, 4, 2, 3, 8]).double().unsqueeze(-1)
    mu = FORMS[form](logits, k)
    for row in range(5):
        free = logits[row] > -torch.inf
        z, p = law(logits[row, free], int(k[row]))
        assert torch.allclose(mu[row, free], p @ z, atol=1e-12)
        assert bool((mu[row, ~free] == 0).all())


def test_both_forms_agree_for_many_units():
    logits, k = normal(3, 300) * 3, torch.tensor([1, 40, 290]).double().unsqueeze(-1)
    first, second = (form(logits, k) for form in FORMS.values())
    assert float((first - second).abs().max()) < 1e-12


@pytest.mark.parametrize("form", FORMS)
def test_gradient_of_a_loss_of_1_is_that_of_log_p(form):
    logits, seeds = normal(20, 8).requires_grad_(), khot.row_seeds(0, 20)
    z = khot.score_function(logits, 3, form=form, seeds=seeds)
    (got,) = torch.autograd.grad(khot.with_losses(z, torch.ones(20)).sum(), logits)
    probability = khot.KSubset(logits, 3).log_prob(z.detach())
    (wanted,) = torch.autograd.grad(probability.sum(), logits)
    assert float((got - wanted).abs().max()) < 1e-12


BASELINES = {
    "none": None,
    "the caller's": torch.tensor(2.5).double(),
    "leave one out": "leave_one_out",
}


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("form", FORMS)
def test_mean_gradient_is_the_exact_gradient(name, form):
    n, k, draws, samples = 6, 3, 1500, 4
    logits = normal(n)
    subsets, p = law(logits, k)
    wanted = (p * loss(subsets)) @ (subsets - p @ subsets)
    rows = logits.expand(draws, n).clone().requires_grad_()
    z = khot.score_function(rows, k, form=form, num_samples=samples, seeds=khot.row_seeds(0, draws))
    values = khot.with_losses(z, loss(z.detach()), baseline=BASELINES[name])
    (got,) = torch.autograd.grad(values.mean(0).sum(), rows)
    errors = got.std(0) / draws**0.5
    assert float(((got.mean(0) - wanted) / errors).abs().max()) < 5
    assert float((wanted / errors).abs().max()) > 5  # so 0 would not pass


def test_baselines_take_variance_away():
    rows = normal(6).expand(1000, 6).clone().requires_grad_()
    z = khot.score_function(rows, 3, num_samples=4, seeds=khot.row_seeds(0, 1000))
    spread = []
    for baseline in BASELINES.values():
        values = khot.with_losses(z, loss(z.detach()), baseline=baseline)
        (got,) = torch.autograd.grad(values.mean(0).sum(), rows, retain_graph=True)
        spread.append(float(got.var(0).sum()))
    assert spread[1] < spread[0] / 2 and spread[2] < spread[0] / 2


def test_gradient_of_a_cotangent_is_that_of_the_linear_loss():
    logits, g = normal(10, 7).requires_grad_(), normal(10, 7, seed=1)
    tau = torch.tensor(0.7).double().requires_grad_()
    z = khot.score_function(logits, 3, tau=tau, seeds=khot.row_seeds(0, 10))
    got = torch.autograd.grad(z, (logits, tau), g)
    x = logits.detach() / 0.7
    mu = torch.stack([p @ subsets for subsets, p in (law(row, 3) for row in x)])
    wanted = (g * z.detach()).sum(-1, keepdim=True) * (z.detach() - mu) / 0.7
    assert torch.allclose(got[0], wanted, atol=1e-12)
    assert torch.allclose(got[1], -(wanted * x).sum(), atol=1e-12)


def test_value_is_the_draw_of_the_k_subset_law_to_the_bit():
    logits, seeds = normal(50, 30).float(), khot.row_seeds(0, 50)
    z = khot.score_function(logits, 7, num_samples=2, seeds=seeds)
    assert torch.equal(z, khot.KSubset(logits, 7).sample((2,), seeds=seeds))


@pytest.mark.parametrize("form", FORMS)
def test_rows_without_choice_and_masked_units_have_no_gradient(form):
    logits = normal(3, 5)
    logits[2, 1] = -torch.inf
    k = torch.tensor([0, 5, 2])
    logits.requires_grad_()
    z = khot.score_function(logits, k, form=form, seeds=khot.row_seeds(0, 3))
    (got,) = torch.autograd.grad(khot.with_losses(z, torch.full((3,), 2.0)).sum(), logits)
    assert bool((got[:2] == 0).all()) and float(got[2, 1]) == 0 and bool((got[2] != 0).any())


def test_double_backward_is_the_derivative_of_minus_the_marginals():
    logits, direction = normal(6).requires_grad_(), normal(6, seed=1)
    z = khot.score_function(logits, 2, seeds=SEED)
    value = khot.with_losses(z, torch.tensor(1.0).double())
    (first,) = torch.autograd.grad(value, logits, create_graph=True)
    (second,) = torch.autograd.grad(first @ direction, logits)
    (wanted,) = torch.autograd.grad(-khot.KSubset(logits, 2).marginals @ direction, logits)
    assert torch.allclose(second, wanted, atol=1e-12)


def fitted_loss(logits: torch.Tensor, k: int, tau: float) -> torch.Tensor:
    """E[loss(z)] of the fitted law of each row, summed over all z."""
    z = testing.subsets(logits.shape[-1], k)
    pi = khot.sigmoid_topk(logits, k, tau=tau)
    return loss(z) @ khot.log_prob("conditional_poisson", z.unsqueeze(1), pi).exp()


def fitted_scores(x: torch.Tensor, k: int, draws: int = 3000, **options) -> dict:
    """The gradient of loss 1 at each z that is drawn, by z."""
    row = x.clone().requires_grad_()
    z = khot.score_function(row, k, fitted=True, num_samples=draws, seeds=SEED, **options)
    first = {tuple(drawn): s for s, drawn in reversed([*enumerate(z.tolist())])}
    values = khot.with_losses(z, torch.ones(draws))
    return {
        drawn: torch.autograd.grad(values[s], row, retain_graph=True)[0]
        for drawn, s in first.items()
    }


@pytest.mark.parametrize(
    ("n", "k", "form"),
    [(5, 1, "dft"), (5, 2, "dynamic_programme"), (6, 3, "dynamic_programme"), (6, 5, "dft")],
)
def test_the_fitted_score_gives_the_gradient_of_the_expected_loss(n, k, form):
    """Summed over all z: every one of them is among the draws."""
    logits, tau, step = normal(n), 0.8, 1e-5
    scores = fitted_scores(logits, k, tau=tau, form=form)
    z = testing.subsets(n, k)
    score = torch.stack([scores[tuple(row)] for row in z.tolist()])
    p = khot.log_prob("conditional_poisson", z, logits / tau, k).exp()
    assert float((p @ score).abs().max()) < 1e-10
    steps = torch.eye(n, dtype=torch.float64) * step
    more, less = fitted_loss(logits + torch.stack([steps, -steps]).flatten(0, 1), k, tau).chunk(2)
    wanted = (more - less) / (2 * step)
    assert float(((p * loss(z)) @ score - wanted).abs().max()) < 1e-8
    assert float(wanted.abs().max()) > 0.01
    assert float((score.sum(-1)).abs().max()) < 1e-9  # a shift changes nothing


def test_the_fitted_draw_is_that_of_conditional_poisson_with_these_probabilities():
    logits, seeds = normal(20, 9), khot.row_seeds(0, 20)
    z = khot.score_function(logits, 4, tau=0.5, fitted=True, num_samples=3, seeds=seeds)
    pi = khot.sigmoid_topk(logits, 4, tau=0.5)
    assert torch.equal(z, khot.conditional_poisson(pi, num_samples=3, seeds=seeds))


def test_the_fitted_score_of_samples_is_that_of_log_prob_in_logits_and_tau():
    logits, losses = normal(4, 30).requires_grad_(), normal(5, 4, seed=1)
    tau = torch.tensor([0.5, 1.0, 2.0, 0.1]).double().requires_grad_()
    how = {"num_samples": 5, "seeds": khot.row_seeds(0, 4)}
    z = khot.score_function(logits, 7, tau=tau, fitted=True, **how)
    got = torch.autograd.grad(khot.with_losses(z, losses).sum(), (logits, tau))
    pi = khot.sigmoid_topk(logits, 7, tau=tau)
    values = khot.log_prob("conditional_poisson", z.detach(), pi) * losses
    for a, b in zip(got, torch.autograd.grad(values.sum(), (logits, tau)), strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-9)


def test_the_fitted_score_is_accurate_where_units_hardly_exchange():
    """By A C^+ (z - pi) with the matrices themselves, from enumeration."""
    pi = torch.tensor([1e-5, 1 - 1e-5, 0.4, 0.6, 0.25, 0.75]).double()
    z = testing.subsets(6, 3)
    p = khot.log_prob("conditional_poisson", z, pi).exp()
    c = (z - pi).T @ (p.unsqueeze(-1) * (z - pi))
    d = pi * (1 - pi)
    # with D^-1/2 on both sides, the small eigenvalues of C keep their digits
    scale = d.sqrt()
    inner = torch.linalg.pinv(c / scale / scale.unsqueeze(-1), rtol=1e-12, hermitian=True)
    a = torch.diag(d) - torch.outer(d, d) / d.sum()
    found = fitted_scores(torch.logit(pi), 3)
    assert len(found) > 3
    for drawn, score in found.items():
        r = torch.tensor(drawn).double() - pi
        wanted = a @ ((inner @ (r / scale)) / scale)
        assert torch.allclose(score, wanted, rtol=1e-6, atol=1e-6)


def test_fitted_rows_without_choice_masked_and_certain_units_have_no_gradient():
    logits = normal(4, 5)
    logits[2, 1], logits[3, 0], logits[3, 4] = -torch.inf, 1e4, -1e4
    k = torch.tensor([0, 5, 2, 3])
    logits.requires_grad_()
    z = khot.score_function(logits, k, fitted=True, seeds=khot.row_seeds(0, 4))
    sizes, first = z.detach().sum(-1), z.detach()[3, 0]
    assert torch.equal(sizes, k.double()) and float(first) == 1
    (got,) = torch.autograd.grad(khot.with_losses(z, torch.full((4,), 2.0)).sum(), logits)
    assert bool((got[:2] == 0).all()) and float(got[2, 1]) == 0 and bool((got[2] != 0).any())
    assert got[3, [0, 4]].tolist() == [0, 0] and bool((got[3, 1:4] != 0).any())
    # the certain unit changes nothing for the others, whose loss is not scaled by it
    x = logits.detach()[3, 1:4].clone().requires_grad_()
    value = 2 * khot.log_prob("conditional_poisson", z[3, 1:4], x, 2)
    assert torch.allclose(torch.autograd.grad(value, x)[0], got[3, 1:4], atol=1e-9)


def test_fitted_large_rows_in_float32():
    logits = (normal(4, 784) * 3).float().requires_grad_()
    z = khot.score_function(logits, 50, fitted=True, seeds=khot.row_seeds(0, 4))
    (got,) = torch.autograd.grad(khot.with_losses(z, torch.ones(4)).sum(), logits)
    # as pi is nearly the marginals as it stands, so are the scores
    pi = khot.sigmoid_topk(logits, 50)
    off = (got - (z - pi)).detach().abs().max()
    assert got.dtype == torch.float32 and float(off) < 0.1


def test_the_fitted_score_has_no_second_derivative():
    logits = normal(5).requires_grad_()
    value = khot.with_losses(khot.score_function(logits, 2, fitted=True), torch.tensor(1.0))
    (first,) = torch.autograd.grad(value, logits, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_fitted_must_be_a_flag():
    with pytest.raises(TypeError, match="^score_function: fitted must be True or False; got str"):
        khot.score_function(torch.zeros(3), 1, fitted="yes")


def test_an_unknown_form_is_refused():
    with pytest.raises(ValueError, match="^score_function: form must be one of dft, dyn.*'fft'"):
        khot.score_function(torch.zeros(3), 1, form="fft")
