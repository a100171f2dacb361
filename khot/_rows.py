"""From a user's tensor to rows and back, and the checks that only values decide.

The relaxations work on rows x (R, n) with columns k and tau of one entry, which serves
all rows, or of R. `flattened` checks types and shapes and makes them; `count_units`
refuses bad values in every mode (eager, compiled, under torch.func); `unflattened` goes
back.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad as _forward_ad

from khot._checks import check_scores, per_row, refuse


@dataclass(frozen=True)
class Names:
    """What a public function calls its scores and its temperature, and how many taus that is."""

    scores: str = "x"
    tau: str = "tau"
    taus: float = 1.0


_NAMES: dict[str, Names] = {}
_USUAL = Names()


def name_arguments(who: str, **names: Any) -> str:
    """Say what `who` calls its arguments, for the messages; return `who`."""
    _NAMES[who] = Names(**names)
    return who


def names_of(who: str) -> Names:
    """What `who` calls its arguments."""
    return _NAMES.get(who, _USUAL)


def flattened(
    who: str, x: Tensor, k: float | Tensor, tau: float | Tensor, dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Check the arguments; return x as rows (R, n), k and tau as columns."""
    names = names_of(who)
    check_scores(who, x, dim, name=names.scores)
    rows, shape = as_rows(x, dim)
    return rows, per_row(who, "k", k, x, shape), per_row(who, names.tau, tau, x, shape)


def as_rows(x: Tensor, dim: int) -> tuple[Tensor, torch.Size]:
    """x as rows (R, n), and the shape that R stands for."""
    if x.ndim == 2 and dim in (1, -1):
        return x, x.shape[:1]
    units_last = x.movedim(dim, -1)
    return units_last.reshape(-1, x.shape[dim]), units_last.shape[:-1]


def unflattened(rows: Tensor, x: Tensor, dim: int) -> Tensor:
    """Rows (R, n) in the shape of x."""
    if x.ndim == 2 and dim in (1, -1):
        return rows
    return rows.reshape(x.movedim(dim, -1).shape).movedim(-1, dim)


def even(rows: Tensor, value: float) -> Tensor:
    """Rows filled up with `value` to a multiple of 64 units, on a CPU.

    torch's vector loops round the last few elements of a tensor otherwise than the rest.
    Nothing is left over after full rows of 64, so there a row has the same bits wherever
    it lies in a batch (with one thread; with more, the sums of a row are split).
    """
    lacking = -rows.shape[-1] % 64
    if lacking == 0 or rows.device.type != "cpu":
        return rows
    return torch.nn.functional.pad(rows, (0, lacking), value=value)


def steady(function: Callable[..., Tensor], *columns: Tensor) -> Tensor:
    """An elementwise function of columns (R, 1), with the same bits for a row in any batch."""
    if columns[0].device.type != "cpu":
        return function(*columns)
    return function(*(column.expand(-1, 64).contiguous() for column in columns))[:, :1]


def transformed() -> bool:
    """Whether torch.compile, torch.func or forward mode is at work."""
    return functorch_active() or _dual_level() >= 0 or torch.compiler.is_compiling()


# Private to torch; were they to go, every call takes the general way.
functorch_active: Callable[[], bool] = getattr(
    torch._C, "_are_functorch_transforms_active", lambda: True
)


def _dual_level() -> int:
    return getattr(_forward_ad, "_current_level", 0)


def count_units(who: str, x: Tensor, k: Tensor, tau: Tensor) -> Tensor:
    """The number of units above -inf in each row, (R, 1) in k's dtype, if all values are good.

    It has no gradient. NaN or +inf in x, k outside [0, that number] and tau that is not
    finite and above 0 are refused, and scores further apart than float64 can say.
    """
    if not transformed():
        return _count_units(who, x, k, tau)
    counted: Tensor = _counted(who, x.detach(), k.detach(), tau.detach())
    return counted


def kept(p: Tensor, n: Tensor) -> Tensor:
    """p of a map that does not need n: a compiled graph drops the count if nobody reads it."""
    return torch.where(n < 0, torch.nan, p) if torch.compiler.is_compiling() else p


def _count_units(who: str, x: Tensor, k: Tensor, tau: Tensor) -> Tensor:
    refuse_values(who, x, k, tau)
    refuse_spread(who, x)
    return (x > -torch.inf).sum(-1, keepdim=True).to(k.dtype)


@torch.library.custom_op("khot::count_units", mutates_args=())
def _counted(who: str, x: Tensor, k: Tensor, tau: Tensor) -> Tensor:
    """An opaque step, for torch.compile cannot trace a look at values."""
    return _count_units(who, x, k, tau)


@_counted.register_fake
def _(_who: str, x: Tensor, k: Tensor, _tau: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], 1, dtype=k.dtype)


@_counted.register_vmap
def _(info: Any, in_dims: tuple[int | None, ...], who: str, *given: Tensor) -> tuple[Tensor, int]:
    x, k, tau = folded(info.batch_size, in_dims[1:], *given)
    return _counted(who, x, k, tau).unflatten(0, (info.batch_size, -1)), 0


def folded(
    batch: int, in_dims: tuple[int | None, ...], x: Tensor, *columns: Tensor
) -> list[Tensor]:
    """Rows and columns under vmap, with the mapped dimension folded into the rows."""
    x = x.movedim(in_dims[0], 0) if in_dims[0] is not None else x.expand(batch, *x.shape)
    rows = x.shape[1]

    def fold(column: Tensor, dim: int | None) -> Tensor:
        if dim is None and column.shape == (1, 1):
            return column
        column = column.unsqueeze(0) if dim is None else column.movedim(dim, 0)
        return column.expand(batch, rows, 1).flatten(0, 1)

    return [x.flatten(0, 1), *map(fold, columns, in_dims[1:])]


def refuse_values(who: str, x: Tensor, k: Tensor, tau: Tensor) -> None:
    """Refuse what only the values show; one look at the device when all is well."""
    x, k, tau = x.detach(), k.detach(), tau.detach()
    n = (x > -torch.inf).sum(-1, keepdim=True)
    bad_x = (x.isnan() | (x == torch.inf)).any(-1, keepdim=True)
    bad_k = ~((k >= 0) & (k <= n))
    bad_tau = ~((tau > 0) & (tau < torch.inf))
    if not bool((bad_x | bad_k | bad_tau).any()):
        return
    names, of = names_of(who), f"of {x.shape[0]} rows"
    if bad_x.any():
        got = f"NaN or +inf in {int(bad_x.sum())} {of}"
        refuse(who, f"{names.scores} must hold finite numbers or -inf", got)
    if bad_tau.any():
        got = f"another value in {int(bad_tau.sum())} {of}"
        if tau.numel() == 1:
            got = f"{float(tau) * names.taus:g}"
        refuse(who, f"{names.tau} must be finite and above 0", got)
    got = f"another value in {int(bad_k.sum())} {of}"
    if k.numel() == 1:
        got = f"k = {float(k):g} for n = {int(n.min())}"
    refuse(who, "k must be in [0, n], n the number of entries above -inf", got)


def refuse_spread(who: str, x: Tensor) -> None:
    """Refuse rows whose scores are so far apart that their difference is infinite."""
    if x.dtype != torch.float64 or x.numel() == 0:
        return
    x = x.detach()
    least = torch.where(x > -torch.inf, x, torch.inf).amin(-1)
    if (far := x.amax(-1) - least == torch.inf).any():
        got = f"another in {int(far.sum())} of {x.shape[0]} rows"
        refuse(who, f"{names_of(who).scores} must have differences within float64", got)
