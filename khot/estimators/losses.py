r"""Loss values for the estimators that need them, in one way for all.

An estimator with `needs_loss` in the registry returns a z whose backward, at a cotangent that
is constant along the units, w / k, is w times its score. `with_losses` adds to the losses a
term of value 0 with that cotangent, w = loss - baseline. So training needs no second kind of
backward: the result is a loss like any other, to be averaged, added to other terms, and
differentiated by whoever differentiates the rest.

Of the other estimators, which differentiate z as some p that sums to k, the gradient at
a constant cotangent is 0 (up to rounding): nothing is added, and what reaches the logits is what
the losses themselves carry. The one difference that is left is the caller's: losses are
computed from z.detach() if the estimator needs their values, and from z if it does not.
"""

from typing import Any

import torch
from torch import Tensor

from khot import _checks

_WHO = "with_losses"


def with_losses(
    z: Tensor, losses: Tensor, *, baseline: Tensor | str | None = None, dim: int = -1
) -> Tensor:
    r"""Return the losses, with the gradient that their values give to the estimator of z.

    .. math:: \nabla \mathrel{+}= (f(z) - b) \, \nabla \log P(z)

    Args:
        z: draws of an estimator that needs the loss, such as `score_function`, as it returned
            them.
        losses: f(z.detach()), one for each draw: of z's shape without `dim`. Their own
            gradient, in what else they depend on, stays.
        baseline: b, a number for each row that does not depend on its draw: None for 0, a tensor
            that broadcasts to the losses, or "leave_one_out": the mean loss of the other draws
            of the same row, with the draws (`num_samples`) along the first dimension.
        dim: the dimension of z that holds the n units.

    Returns:
        Tensor of the losses' shape, dtype and values.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: a shape does not fit, baseline has no such name, or there is but one draw to
            leave out.

    Gradient:
        As the losses have, and in z the constant cotangent (loss - b) / k of each row. With
        `score_function`, unbiased of the gradient of E[loss(z)] for each kind of baseline.

    Example:
        >>> import torch, khot
        >>> logits = torch.zeros(4, requires_grad=True)
        >>> z = khot.score_function(logits, 2, num_samples=3, seeds=torch.tensor(3))
        >>> losses = z.detach()[:, 0]  # of any kind
        >>> khot.with_losses(z, losses, baseline="leave_one_out").mean().backward()
        >>> logits.grad
        tensor([ 0.3333, -0.1667, -0.3333,  0.1667])

    References:
        Williams (1992); Kool, van Hoof and Welling (2019), Buy 4 REINFORCE samples, get a
        baseline for free.
    """
    z = _checks.check_scores(_WHO, z, dim, name="z")
    losses = _checked(losses, z.movedim(dim, -1).shape[:-1])
    advantage = (losses - _values(baseline, losses)).detach()
    k = z.detach().sum(dim)
    sent = torch.where(k > 0, advantage / torch.where(k > 0, k, 1.0), 0.0)
    carrier = (z * sent.to(z.dtype).unsqueeze(dim)).sum(dim)
    return losses + (carrier - carrier.detach()).to(losses.dtype)


def _checked(losses: Any, shape: torch.Size) -> Tensor:
    if not isinstance(losses, Tensor):
        _checks.refuse(_WHO, "losses must be a torch.Tensor", type(losses).__name__, TypeError)
    if not losses.is_floating_point():
        got = str(losses.dtype).removeprefix("torch.")
        _checks.refuse(_WHO, "losses must be floating-point", got, TypeError)
    if losses.shape != shape:
        must = f"losses must be one for each draw, shape {tuple(shape)}"
        _checks.refuse(_WHO, must, f"shape {tuple(losses.shape)}")
    return losses


def _values(baseline: object, losses: Tensor) -> Tensor | float:
    if baseline is None:
        return 0.0
    if isinstance(baseline, Tensor):
        _checks.check_fits(_WHO, "baseline", baseline, losses.shape)
        return baseline
    if baseline != "leave_one_out":
        must = "baseline must be None, a torch.Tensor or 'leave_one_out'"
        got = repr(baseline) if isinstance(baseline, str) else type(baseline).__name__
        _checks.refuse(_WHO, must, got, ValueError if isinstance(baseline, str) else TypeError)
    if losses.ndim == 0 or len(losses) < 2:
        got = "no such dimension" if losses.ndim == 0 else str(len(losses))
        _checks.refuse(_WHO, "leave_one_out must have two draws or more of each row", got)
    return (losses.sum(0, keepdim=True) - losses) / (len(losses) - 1)
