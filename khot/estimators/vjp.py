r"""The backward of an estimator as a function: no graph, no state, only seeds.

A draw is a function of its arguments and seeds, so it can be made again: the forward is run once
more and differentiated by autograd. What comes out is, bit for bit, what autograd would have
given at the first.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from khot import _checks, registry
from khot.estimators.losses import with_losses

_WHO = "vjp"


@dataclass(frozen=True)
class Gradients:
    """What `vjp` returns.

    Attributes:
        logits: of the logits' shape and dtype.
        k: of k's shape, if k was a floating-point tensor that the estimator differentiates in.
        tau: the same.
    """

    logits: Tensor
    k: Tensor | None = None
    tau: Tensor | None = None


def vjp(
    estimator: str | Callable[..., Tensor],
    logits: Tensor,
    k: float | Tensor | None,
    seeds: Tensor,
    *,
    cotangent: Tensor | None = None,
    losses: Tensor | None = None,
    baseline: Tensor | str | None = None,
    dim: int = -1,
    **options: Any,
) -> Gradients:
    r"""Return the gradients of `estimator(logits, k, seeds=seeds, ...)`, from the seeds alone.

    Args:
        estimator: an estimator of `khot.operators("estimator")`, or its name.
        logits: as in the forward.
        k: as in the forward.
        seeds: as in the forward: without them the draw could not be made again.
        cotangent: g, of the shape of the draw, for estimators that do not need the loss.
        losses: one for each draw, as in `with_losses`, for those that do; the gradient is that
            of their sum.
        baseline: as in `with_losses`, with losses only.
        dim: as in the forward.
        options: the other keywords of the forward.

    Returns:
        Gradients in logits, and in k and tau where those were floating-point tensors and the
        estimator differentiates in them; None otherwise.

    Raises:
        TypeError: an argument is of the wrong type, or the estimator has no such option.
        ValueError: there is no such estimator, a shape does not fit, or what the estimator needs
            is missing, or what it does not need is given.

    Gradient:
        None: the result is detached.

    Example:
        >>> import torch, khot
        >>> logits, seed = torch.tensor([2.0, 1.0, 0.0, -1.0]), khot.row_seeds(0, 1)[0]
        >>> z = khot.simple(logits, 2, seeds=seed)
        >>> khot.vjp("simple", logits, 2, seed, cotangent=2 * z).logits  # of |z|^2
        tensor([ 0.1586,  0.3730, -0.3730, -0.1586])

    References:
        Griewank and Walther (2008), Evaluating derivatives, on recomputing the forward.
    """
    row = _row(estimator)
    _refuse_wrong_needs(row, cotangent, losses, baseline)
    if not isinstance(seeds, Tensor):
        _checks.refuse(_WHO, "seeds must be a torch.Tensor", type(seeds).__name__, TypeError)
    named = inspect.signature(row.function).parameters
    if unknown := sorted(set(options) - set(named) | set(options) & {"generator", "seeds"}):
        must = f"options must be keywords of {row.name}"
        _checks.refuse(_WHO, must, ", ".join(unknown), TypeError)
    given = {"logits": logits, "k": k, "tau": options.pop("tau", None)}
    leaves = {
        name: value.detach().requires_grad_()
        for name, value in given.items()
        if name in row.differentiable_in and isinstance(value, Tensor) and value.is_floating_point()
    }
    if given["tau"] is not None:
        options["tau"] = leaves.get("tau", given["tau"])
    with torch.enable_grad():
        first = leaves.get("logits", logits), leaves.get("k", k)
        z = row.function(*first, dim=dim, seeds=seeds, **options)
        if losses is not None:
            # the samples come first, so a dim from the front is one further on in z
            at = dim + z.ndim - logits.ndim if dim >= 0 else dim
            z = with_losses(z, _constant(losses), baseline=baseline, dim=at)
            cotangent = torch.ones_like(z)
    return Gradients(**_pulled(z, leaves, cotangent))


def _constant(losses: Tensor) -> Tensor:
    return losses.detach() if isinstance(losses, Tensor) else losses  # refused where it is used


def _pulled(z: Tensor, leaves: dict[str, Tensor], g: Tensor | None) -> dict[str, Tensor]:
    if not isinstance(g, Tensor):
        _checks.refuse(_WHO, "cotangent must be a torch.Tensor", type(g).__name__, TypeError)
    if g.shape != z.shape:
        must = f"cotangent must have the shape of the draw, {tuple(z.shape)}"
        _checks.refuse(_WHO, must, f"shape {tuple(g.shape)}")
    g = g.detach().to(device=z.device, dtype=z.dtype)
    return dict(zip(leaves, torch.autograd.grad(z, list(leaves.values()), g), strict=True))


def _row(estimator: object) -> registry.Estimator:
    rows = {row.name: row for row in registry.operators("estimator")}
    name = getattr(estimator, "__name__", estimator)
    row = rows.get(name) if isinstance(name, str) else None
    if not isinstance(row, registry.Estimator) or estimator not in (row.name, row.function):
        got = repr(name) if isinstance(name, str) else type(estimator).__name__
        _checks.refuse(_WHO, f"estimator must be one of {', '.join(rows)}", got)
    return row


def _refuse_wrong_needs(
    row: registry.Estimator,
    cotangent: object,
    losses: object,
    baseline: object,
) -> None:
    wanted, other = ("losses", "cotangent") if row.needs_loss else ("cotangent", "losses")
    given = {"cotangent": cotangent, "losses": losses}
    here = [name for name, value in given.items() if value is not None]
    if here != [wanted]:
        must = f"{row.name} must get {wanted} and no {other}"
        _checks.refuse(_WHO, must, " and ".join(here) or "neither")
    if baseline is not None and not row.needs_loss:
        _checks.refuse(_WHO, f"baseline must be None, as {row.name} needs no losses", "another")
