"""Argument checks of the public functions, in one form of message.

Every refusal reads ``who: what it must be; got what it was``. Checks of types
and shapes happen here, before any work; checks of values happen where values
can be read (inside the operator, past vmap), and raise through `refuse`.
"""

from collections.abc import Collection
from typing import NoReturn

import torch
from torch import Tensor

FLOAT_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def refuse(who: str, must: str, got: str, error: type[Exception] = ValueError) -> NoReturn:
    """Raise `error` with the one form of message."""
    raise error(f"{who}: {must}; got {got}")


def check_scores(who: str, x: object, dim: int, *, name: str = "x") -> Tensor:
    """Return `x` if it is a floating-point tensor with entries along `dim`."""
    if not isinstance(x, Tensor):
        refuse(who, f"{name} must be a torch.Tensor", type(x).__name__, TypeError)
    if x.dtype not in FLOAT_DTYPES:
        dtypes = ", ".join(str(d).removeprefix("torch.") for d in FLOAT_DTYPES)
        got = str(x.dtype).removeprefix("torch.")
        refuse(who, f"{name} must be one of {dtypes}", got, TypeError)
    if x.ndim == 0:
        refuse(who, f"{name} must have at least one dimension", "a scalar tensor")
    if isinstance(dim, bool) or not isinstance(dim, int):
        refuse(who, "dim must be an integer", type(dim).__name__, TypeError)
    if not -x.ndim <= dim < x.ndim:
        refuse(who, f"dim must be in [{-x.ndim}, {x.ndim - 1}] for {x.ndim} dimensions", str(dim))
    if x.shape[dim] == 0:
        refuse(who, f"{name} must have at least one entry along dim", f"shape {tuple(x.shape)}")
    return x


def per_row(who: str, name: str, value: object, x: Tensor, rows: torch.Size) -> Tensor:
    """Return `value` as a float64 column: (1, 1) for a number, (R, 1) for a tensor.

    A number stays one entry, so that nothing the size of the batch is built for
    it. A tensor must broadcast to the shape `rows` of the rows of `x`; autograd
    sums over what was broadcast.
    """
    return column_of(number_or_column(who, name, value, x, rows), x)


def column_of(value: float | Tensor, x: Tensor) -> Tensor:
    """A column, or a number as a column of one entry."""
    if isinstance(value, Tensor):
        return value
    return torch.full((1, 1), value, dtype=work_dtype(x), device=x.device)


def number_or_column(
    who: str, name: str, value: object, x: Tensor, rows: torch.Size
) -> float | Tensor:
    """The same, but a number stays a number."""
    if isinstance(value, (float, int)) and not isinstance(value, bool):
        return as_float(who, name, value)
    if not isinstance(value, Tensor):
        refuse(who, f"{name} must be a number or a tensor", type(value).__name__, TypeError)
    if value.is_complex() or value.dtype == torch.bool:
        refuse(who, f"{name} must be real", str(value.dtype).removeprefix("torch."), TypeError)
    dtype = work_dtype(x)
    fits = value.dtype is dtype and value.ndim == 1 and value.shape == rows
    if fits and value.device == x.device:
        return value.unsqueeze(-1)  # quickly: a server has them like this, many times a second
    if value.device != x.device and value.ndim > 0:
        refuse(who, f"{name} must be on x's device {x.device}", str(value.device))
    check_fits(who, name, value, rows)
    return value.to(device=x.device, dtype=dtype).expand(rows).reshape(-1, 1)


def check_number(who: str, name: str, value: object) -> float:
    """Refuse what is no real number; a tensor is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        refuse(who, f"{name} must be a number", type(value).__name__, TypeError)
    return as_float(who, name, value)


def as_float(who: str, name: str, value: float) -> float:
    """Refuse an integer beyond the range of a float."""
    try:
        return float(value)
    except OverflowError:
        refuse(who, f"{name} must be within the range of a float", "an integer beyond it")


def check_fits(who: str, name: str, value: Tensor, rows: torch.Size) -> None:
    """Refuse a tensor that does not broadcast to one entry for each row."""
    # not by torch.broadcast_shapes, whose error torch.compile shows instead of ours
    pairs = zip(reversed(value.shape), reversed(rows), strict=False)
    if value.ndim > len(rows) or any(size not in (1, wanted) for size, wanted in pairs):
        must = f"{name} must broadcast to the rows, shape {tuple(rows)}"
        refuse(who, must, f"shape {tuple(value.shape)}")


def check_choice(who: str, name: str, value: object, choices: Collection[str]) -> None:
    """Refuse what is not one of these names."""
    if not isinstance(value, str) or value not in choices:
        got = repr(value) if isinstance(value, str) else type(value).__name__
        refuse(who, f"{name} must be one of {', '.join(choices)}", got)


def check_flag(who: str, name: str, value: object) -> bool:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        refuse(who, f"{name} must be True or False", type(value).__name__, TypeError)
    return value


def work_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which rows are solved: float64, or float32 on MPS, which has no float64."""
    return torch.float32 if x.is_mps else torch.float64
