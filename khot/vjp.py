r"""The backward of an operator as a function: no graph, no state, only its arguments.

A relaxation is a function of its arguments, and a draw of its arguments and seeds, so either can
be computed again: the forward is run once more and differentiated by autograd. What comes out
is, bit for bit, what autograd would have given at the first.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from khot import _checks, registry
from khot.estimators.losses import with_losses

_WHO = "vjp"
Row = registry.Relaxation | registry.Estimator


@dataclass(frozen=True)
class Gradients:
    """What `vjp` returns.

    Attributes:
        value: what was differentiated: the soft k-hot vector, or the draw.
        scores: the gradient in x or logits, of their shape and dtype.
        k: that in k, of k's shape, if k was a floating-point tensor that the operator
            differentiates in.
        tau: the same for the temperature, whatever the operator calls it.
    """

    value: Tensor
    scores: Tensor
    k: Tensor | None = None
    tau: Tensor | None = None


def vjp(
    operator: str | Callable[..., Tensor],
    scores: Tensor,
    k: float | Tensor | None,
    seeds: Tensor | None = None,
    *,
    cotangent: Tensor | None = None,
    losses: Tensor | None = None,
    baseline: Tensor | str | None = None,
    dim: int = -1,
    **options: Any,
) -> Gradients:
    r"""Return the value and the gradients of `operator(scores, k, ...)`, from its arguments alone.

    Args:
        operator: a relaxation or an estimator of `khot.operators()`, or its name.
        scores: x or logits, as in the forward.
        k: as in the forward; None for the operator's default, if it has one.
        seeds: of an estimator, as in the forward: without them the draw could not be made again.
        cotangent: g, of the shape of the value, for operators that do not need the loss.
        losses: one for each draw, as in `with_losses`, for those that do; the gradient is that
            of their sum.
        baseline: as in `with_losses`, with losses only.
        dim: as in the forward.
        options: the other keywords of the forward.

    Returns:
        The value, and the gradients in scores, and in k and the temperature where those were
        floating-point tensors and the operator differentiates in them; None otherwise. If there
        was one k or temperature for each row, so is its gradient. An entry beyond the range of
        its dtype is infinite, as autograd has it; none is NaN.

    Raises:
        TypeError: an argument is of the wrong type, or the operator has no such option.
        ValueError: there is no such operator, a shape does not fit, a value is out of range or
            not finite, or what the operator needs is missing, or what it does not need is given.

    Gradient:
        None: the result is detached.

    Example:
        >>> import torch, khot
        >>> x, g = torch.tensor([2.0, 1.0, 0.0, -1.0]), torch.tensor([1.0, 0.0, 0.0, 0.0])
        >>> khot.vjp("sigmoid_topk", x, 2, cotangent=g).scores
        tensor([ 0.1202, -0.0456, -0.0456, -0.0290])
        >>> seed = khot.row_seeds(0, 1)[0]
        >>> khot.vjp("simple", x, 2, seed, cotangent=g).scores
        tensor([ 0.1050, -0.0257, -0.0536, -0.0257])

    References:
        Griewank and Walther (2008), Evaluating derivatives, on recomputing the forward.
    """
    row = _row(operator)
    _refuse_wrong_needs(row, seeds, cotangent, losses, baseline)
    own = {"num_samples"} if isinstance(row, registry.Estimator) else set()
    own |= {row.tau_keyword, *row.options}
    if unknown := sorted(set(options) - own):
        must = f"options must be keywords of {row.name}"
        _checks.refuse(_WHO, must, ", ".join(unknown), TypeError)
    given = {row.positional[0]: scores, "k": k, "dim": dim, **options}
    if k is None and not row.needs_k:
        del given["k"]
    if seeds is not None:
        given["seeds"] = seeds
    leaves = {
        name: value.detach().requires_grad_()
        for name in row.differentiable_in
        if isinstance(value := given.get(name), Tensor) and value.is_floating_point()
    }
    with torch.enable_grad():
        value = pulled = row.function(**given | leaves)
        if losses is not None:
            # the samples come first, so a dim from the front is one further on in the value
            at = dim + value.ndim - scores.ndim if dim >= 0 else dim
            pulled = with_losses(value, _constant(losses, baseline), baseline=baseline, dim=at)
            cotangent = torch.ones_like(pulled)
    found = _pulled(pulled, leaves, cotangent)
    in_scores, in_tau = found[row.positional[0]], found.get(row.tau_keyword)
    return Gradients(value.detach(), in_scores, found.get("k"), in_tau)


def _constant(losses: Tensor, baseline: Tensor | str | None) -> Tensor:
    for name, given in (("losses", losses), ("baseline", baseline)):
        if isinstance(given, Tensor) and given.is_floating_point():
            _refuse_infinite(name, given)
    return losses.detach() if isinstance(losses, Tensor) else losses  # refused where it is used


def _refuse_infinite(name: str, given: Tensor) -> None:
    # by its ends: the quickest look at all of it
    if given.numel() and not all(math.isfinite(end) for end in given.detach().aminmax()):
        dtype = str(given.dtype).removeprefix("torch.")
        _checks.refuse(_WHO, f"{name} must hold finite numbers of {dtype}", "NaN or infinity")


def _pulled(value: Tensor, leaves: dict[str, Tensor], g: Tensor | None) -> dict[str, Tensor]:
    if not isinstance(g, Tensor):
        _checks.refuse(_WHO, "cotangent must be a torch.Tensor", type(g).__name__, TypeError)
    if g.shape != value.shape:
        must = f"cotangent must have the shape of the value, {tuple(value.shape)}"
        _checks.refuse(_WHO, must, f"shape {tuple(g.shape)}")
    if g.is_complex():
        _checks.refuse(
            _WHO, "cotangent must be real", str(g.dtype).removeprefix("torch."), TypeError
        )
    g = g.detach().to(device=value.device, dtype=value.dtype)
    _refuse_infinite("cotangent", g)
    # where k leaves no choice, the value may depend on none of them
    if not value.requires_grad:
        return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
    inputs = list(leaves.values())
    pulled = torch.autograd.grad(value, inputs, g, allow_unused=True, materialize_grads=True)
    if any(grad.numel() and math.isnan(grad.amax()) for grad in pulled):
        must = "scores and temperature must be such that the gradient is a number"
        _checks.refuse(_WHO, must, "products beyond the range of float64")
    return dict(zip(leaves, pulled, strict=True))


def _row(operator: object) -> Row:
    name = getattr(operator, "__name__", operator)
    rows = {row.name: row for row in registry.operators() if isinstance(row, Row)}
    row = rows.get(name) if isinstance(name, str) else None
    if row is None or operator not in (row.name, row.function):
        got = repr(name) if isinstance(name, str) else type(operator).__name__
        _checks.refuse(_WHO, f"operator must be one of {', '.join(rows)}", got)
    return row


def _refuse_wrong_needs(
    row: Row, seeds: object, cotangent: object, losses: object, baseline: object
) -> None:
    draws = isinstance(row, registry.Estimator)
    if draws and not isinstance(seeds, Tensor):
        _checks.refuse(_WHO, "seeds must be a torch.Tensor", type(seeds).__name__, TypeError)
    if not draws and seeds is not None:
        _checks.refuse(_WHO, f"seeds must be None, as {row.name} draws nothing", "another")
    needs_loss = isinstance(row, registry.Estimator) and row.needs_loss
    wanted, other = ("losses", "cotangent") if needs_loss else ("cotangent", "losses")
    given = {"cotangent": cotangent, "losses": losses}
    here = [name for name, value in given.items() if value is not None]
    if here != [wanted]:
        must = f"{row.name} must get {wanted} and no {other}"
        _checks.refuse(_WHO, must, " and ".join(here) or "neither")
    if baseline is not None and not needs_loss:
        _checks.refuse(_WHO, f"baseline must be None, as {row.name} needs no losses", "another")
