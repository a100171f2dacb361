"""A map on its kernel alone: where nothing watches but autograd, in reverse mode, or nothing.

If nothing does, the kernel is called and that is all. For autograd such a map is a Function in
the old form, without setup_context, whose binding of arguments costs more than a small row. It
knows no transformation. Here is what those maps share: who may go this way, how a Function is
applied, how it keeps k and tau, which may be numbers, and what is done when a kernel refuses.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

from khot import _checks
from khot._native.library import accepts
from khot._rows import as_rows, names_of, refuse_spread, refuse_values, transformed

Number = float | Tensor


def plain_arguments(
    who: str, x: Tensor, k: Number, tau: Number, dim: int
) -> tuple[Tensor, Number, Number] | None:
    """Rows of x, and k and tau as numbers or columns, checked; None if the kernel must not."""
    if transformed() or not isinstance(x, Tensor) or not accepts(x):
        return None
    names = names_of(who)
    _checks.check_scores(who, x, dim, name=names.scores)
    rows, shape = as_rows(x, dim)
    k = _checks.number_or_column(who, "k", k, x, shape)
    tau = _checks.number_or_column(who, names.tau, tau, x, shape)
    columns = [value for value in (k, tau) if isinstance(value, Tensor)]
    return (rows, k, tau) if accepts(*columns) else None


def differentiated(*given: Number) -> bool:
    """Whether autograd watches one of them."""
    if not torch.is_grad_enabled():
        return False
    return any(isinstance(value, Tensor) and value.requires_grad for value in given)


def refused(who: str, x: Tensor, k: Number, tau: Number) -> NoReturn:
    """Say what is wrong with the values of rows that a kernel refused."""
    refuse_values(who, x, _checks.column_of(k, x), _checks.column_of(tau, x))
    refuse_spread(who, x)
    raise AssertionError(f"{who}: the kernel must refuse what torch refuses")


def plain_apply(function: type[torch.autograd.Function]) -> Callable[..., Tensor]:
    """The C++ method itself: Function.apply around it only serves transformations."""
    applied: Callable[..., Tensor] = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    return applied


def save(ctx: Any, k: Number, tau: Number, *tensors: Tensor) -> None:
    """Keep k and tau for the backward, and tensors."""
    # columns as what they are inputs of, and watched for changes in place; a number is no tensor
    columns = [value for value in (k, tau) if isinstance(value, Tensor)]
    ctx.numbers = [None if isinstance(value, Tensor) else value for value in (k, tau)]
    ctx.save_for_backward(*tensors, *columns)


def saved(ctx: Any, tensors: int) -> tuple[Any, ...]:
    """The tensors, so many, then k and tau."""
    kept = iter(ctx.saved_tensors)
    first = [next(kept) for _ in range(tensors)]
    return *first, *(next(kept) if number is None else number for number in ctx.numbers)
