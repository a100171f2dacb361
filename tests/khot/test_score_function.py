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


def test_an_unknown_form_is_refused():
    with pytest.raises(ValueError, match="^score_function: form must be one of dft, dyn.*'fft'"):
        khot.score_function(torch.zeros(3), 1, form="fft")
