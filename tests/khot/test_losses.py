"""Losses in one way: values as they were, and the gradient that their values give."""

import pytest
import torch

import khot


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def test_values_are_those_of_the_losses_to_the_bit():
    z = khot.score_function(normal(4, 8).requires_grad_(), 3, num_samples=5)
    losses = normal(5, 4) * 1e6
    for baseline in (None, normal(4), "leave_one_out"):
        got = khot.with_losses(z, losses.float(), baseline=baseline)
        assert got.dtype == torch.float32 and torch.equal(got.detach(), losses.float())


def test_what_else_the_losses_depend_on_keeps_its_gradient():
    weight = torch.tensor(2.0).double().requires_grad_()
    z = khot.score_function(normal(4, 8).requires_grad_(), 3)
    losses = weight * z.detach()[:, 0]
    (got,) = torch.autograd.grad(khot.with_losses(z, losses).sum(), weight)
    assert torch.equal(got, z.detach()[:, 0].sum())


def test_leave_one_out_is_the_mean_of_the_others():
    logits = normal(3, 6).requires_grad_()
    z = khot.score_function(logits, 2, num_samples=4, seeds=khot.row_seeds(0, 3))
    losses = normal(4, 3)
    others = torch.stack([losses[torch.arange(4) != s].mean(0) for s in range(4)])
    got, wanted = (
        torch.autograd.grad(
            khot.with_losses(z, losses, baseline=baseline).sum(), logits, retain_graph=True
        )[0]
        for baseline in ("leave_one_out", others)
    )
    assert torch.allclose(got, wanted, atol=1e-12)


def test_units_may_lie_along_any_dimension():
    logits, seeds, losses = normal(3, 6), khot.row_seeds(0, 3), normal(4, 3)

    def gradient(x: torch.Tensor, dim: int, at: int) -> torch.Tensor:
        x = x.clone().requires_grad_()
        z = khot.score_function(x, 2, num_samples=4, dim=dim, seeds=seeds)
        return torch.autograd.grad(khot.with_losses(z, losses, dim=at).sum(), x)[0]

    assert torch.equal(gradient(logits.T, 0, 1).T, gradient(logits, -1, -1))


@pytest.mark.parametrize("row", khot.operators("estimator"), ids=lambda row: row.name)
def test_estimators_that_do_not_need_losses_get_nothing_from_them(row):
    if row.needs_loss or not row.fixed_size:
        return
    logits = normal(5, 6).requires_grad_()
    z = row.function(logits, row.only_k or 2, seeds=khot.row_seeds(0, 5))
    (got,) = torch.autograd.grad(khot.with_losses(z, normal(5)).sum(), logits)
    assert float(got.abs().max()) < 1e-12


@pytest.mark.parametrize(
    ("losses", "baseline", "error", "message"),
    [
        ([1.0, 2.0], None, TypeError, "losses must be a torch.Tensor; got list"),
        (torch.ones(2).long(), None, TypeError, "losses must be floating-point; got int64"),
        (torch.ones(3), None, ValueError, r"losses must be one for .*, shape \(2,\); got shape"),
        (torch.ones(2), torch.ones(3), ValueError, "baseline must broadcast to the rows"),
        (torch.ones(2), "mean", ValueError, "baseline must be None, a torch.Tensor or .* 'mean'"),
        (torch.ones(2), 1.0, TypeError, "baseline must be None, .*; got float"),
    ],
)
def test_refusals(losses, baseline, error, message):
    z = khot.score_function(torch.zeros(2, 4), 2)
    with pytest.raises(error, match=f"^with_losses: {message}"):
        khot.with_losses(z, losses, baseline=baseline)


@pytest.mark.parametrize("samples", [None, 1])
def test_leave_one_out_of_one_draw_is_refused(samples):
    z = khot.score_function(torch.zeros(4), 2, num_samples=samples)
    with pytest.raises(ValueError, match="^with_losses: leave_one_out must have two draws or more"):
        khot.with_losses(z, z.detach().sum(-1), baseline="leave_one_out")
