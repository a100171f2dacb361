r"""What the estimators share: their arguments as rows, draws in S samples, straight through.

An estimator works on rows: logits (R, n) with the units last, k and tau numbers or one for
each row, (R,), and one seed for each row. `prepared` checks the arguments in the name of
the estimator and makes the rows; draws and everything computed from them begin with the
samples, (S, R, n), which broadcast against the rows; `shaped` goes back.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import torch
from torch import Tensor

from khot import _checks, _random
from khot._native import gumbel
from khot._native import largest as selection
from khot._random import Source
from khot._rows import as_rows, refuse_spread, refuse_values, transformed
from khot.sampling._draw import checked_samples, precise

Number = float | Tensor


class Draws(TypedDict):
    """The arguments that say what to draw and from which random numbers, as they were given."""

    num_samples: int | None
    dim: int
    generator: torch.Generator | None
    seeds: Tensor | None


@dataclass(frozen=True)
class Rows:
    """The arguments of an estimator, checked but for what only their values show.

    Attributes:
        who: the estimator.
        logits: (R, n), float32 or float64, with their gradient.
        k: a number, or one for each row, (R,) in the work dtype, with its gradient.
        tau: the same.
        source: the random numbers of S samples of R rows.
    """

    who: str
    logits: Tensor
    k: Number
    tau: Number
    source: Source
    _given: Tensor
    _shape: torch.Size
    _dim: int
    _num_samples: int | None

    def refuse_values(self) -> None:
        """Refuse NaN, +inf, k outside [0, n] and a bad tau; for maps that do not do it as `who`."""
        refuse_values(self.who, self.logits, *map(self._column, (self.k, self.tau)))
        refuse_spread(self.who, self.logits)

    def draw(self, design: Callable[..., Tensor], pi: Tensor, **options: object) -> Tensor:
        """Draws (S, R, n) with inclusion probabilities pi (R, n), by one of `khot.sampling`."""
        source = self.source
        return design(pi.detach(), num_samples=source.samples, seeds=source.seeds, **options)

    def whole_k(self) -> Tensor:
        """k as an int64 column, (R, 1) or (1, 1)."""
        return self._column(self.k).to(torch.int64)

    def shaped(self, z: Tensor) -> Tensor:
        """Rows (S, R, n) as the user wants them: the logits' shape and dtype, after S if given."""
        dim, z = self._dim, z.to(self._given.dtype)
        if self._num_samples is None and self._given.ndim == 2 and dim in (1, -1):
            return z.squeeze(0)
        z = z.reshape(z.shape[0], *self._shape, z.shape[-1])
        z = z.movedim(-1, dim if dim < 0 else dim + 1)
        return z.squeeze(0) if self._num_samples is None else z

    def _column(self, value: Number) -> Tensor:
        if isinstance(value, Tensor):
            return value.detach().reshape(-1, 1)
        dtype = _checks.work_dtype(self.logits)
        return torch.full((1, 1), value, dtype=dtype, device=self.logits.device)


def prepared(
    who: str,
    logits: Tensor,
    k: Number,
    tau: Number,
    *,
    num_samples: int | None,
    dim: int,
    generator: torch.Generator | None,
    seeds: Tensor | None,
    whole_k: bool = True,
    only_k: int | None = None,
) -> Rows:
    """Check the arguments of the estimator `who`, and return its rows.

    Args:
        who: the estimator, which every message names.
        logits: as given; the rows are `precise`.
        k: number or tensor, as given.
        tau: number or tensor, as given.
        num_samples: as given; None is one sample.
        dim: as given.
        generator: as given.
        seeds: as given.
        whole_k: refuse a k that is not whole.
        only_k: refuse every other k.
    """
    logits = _checks.check_scores(who, logits, dim, name="logits")
    rows, shape = as_rows(logits, dim)
    k = _checks.number_or_column(who, "k", k, rows, shape)
    tau = _checks.number_or_column(who, "tau", tau, rows, shape)
    if only_k is not None:
        _refuse_unless(who, f"k must be {only_k}", k, lambda k: k == only_k)
    if whole_k:
        _refuse_unless(who, "k must be whole", k, lambda k: k % 1 == 0)
    samples = checked_samples(who, num_samples)
    source = Source(_random.seeds_for(who, seeds, generator, shape, rows.device), samples)
    k, tau = (v.squeeze(-1) if isinstance(v, Tensor) else v for v in (k, tau))
    return Rows(who, precise(rows), k, tau, source, logits, shape, dim, num_samples)


def straight_through(z: Tensor, p: Tensor) -> Tensor:
    """The value of z (S, R, n) with the gradient of p, (S, R, n) or (R, n).

    Where torch.func or forward mode watches it is z + (p - p), the second p constant: adding
    exactly 0 leaves zeros and ones as they are. Elsewhere nothing needs to be computed.
    """
    if not transformed():
        return _through(z, p)
    p = torch.where(p > -torch.inf, p, 0.0)
    return z + (p - p.detach())


class _Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, p: Tensor) -> Tensor:
        ctx.shape, ctx.dtype = p.shape, p.dtype
        return z.to(p.dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[None, Tensor]:
        g = g.squeeze(0) if g.shape[:1] == (1,) and len(ctx.shape) == 2 else g
        return None, g.sum_to_size(ctx.shape).to(ctx.dtype)


_through: Callable[[Tensor, Tensor], Tensor] = _Through.apply


def gumbels(source: Source, n: int, dtype: torch.dtype) -> Tensor:
    """Standard Gumbel noise -log(-log u), (S, R, n), from the blocks 0 on.

    Between -3.6 and 36.8, for u is never 0 or 1. Rows are some units longer than n while
    logarithms are taken, so that torch has no remainder to round otherwise (`_rows.even`).
    """
    if gumbel.accepts(source.seeds):
        return gumbel.fill(source.seeds, source.samples, n, dtype)
    u = source.uniforms(n + -n % 64)
    u.clamp_(max=1 - torch.finfo(u.dtype).eps / 2)  # in float32 it may have been rounded to 1
    return u.log_().neg_().to(dtype).log_().neg_()[..., :n]


def perturbed(rows: Rows) -> Tensor:
    """The logits with Gumbel noise, (S, R, n), less the greatest logit of the row.

    For maps that do not see a shift; at an offset float32 would round the noise away.
    """
    x, least = rows.logits.detach(), torch.finfo(rows.logits.dtype).min
    below = x - x.amax(-1, keepdim=True).clamp(min=least)
    below.clamp_(min=least).masked_fill_(x == -torch.inf, -torch.inf)  # a difference may overflow
    noisy = gumbels(rows.source, x.shape[-1], x.dtype).add_(below)
    return straight_through(noisy, rows.logits)


def largest(x: Tensor, rows: Rows) -> Tensor:
    """Zeros and k ones for the k largest of x (S, R, n), ties going to the lower index."""
    x, k = x.detach(), rows.whole_k()
    if selection.accepts(x, k):
        return selection.largest(x, k)
    unit = x.sort(dim=-1, descending=True, stable=True).indices
    wins = (torch.arange(x.shape[-1], device=x.device) < k).to(x.dtype)
    return torch.zeros_like(x).scatter_(-1, unit, wins.expand(unit.shape))


def _refuse_unless(
    who: str, must: str, k: Number, holds: Callable[[Number], bool | Tensor]
) -> None:
    good = holds(k)
    if isinstance(k, Tensor):
        bad = int((~torch.as_tensor(good)).sum())
        got = f"another value in {bad} of {len(k)} rows"
    else:
        bad, got = int(not good), f"{k:g}"
    if bad:
        _checks.refuse(who, must, got)
