r"""From a user's pi, or logits and k, to rows and their randomness, and back.

A design is a function of rows that sum to whole numbers:

    draw(p, k, source) -> z

with p (R, m) in the work dtype and in [0, 1], k (R, 1) the int64 that each row sums to
up to the rounding of its entries, `source` the random numbers of S samples of R rows
(`khot._random.Source`), and z (S, R, m) of zeros and ones. `sample` does the rest: it
checks, asks for seeds, and shapes the result.

**The phantom unit.** A row whose sum is not whole gets one more unit with

    pi_{n+1} = 1 - (sum pi - floor(sum pi)),

so that the n + 1 sum to floor(sum pi) + 1. It is drawn with the others and then left
out: the others keep their inclusion probabilities, and the size is floor(sum pi) with
probability pi_{n+1} (the phantom is among the floor + 1) and one more otherwise (the
paper's Equation 15 has the two swapped). Rows with it are drawn apart from rows
without, so a row's draw does not depend on which others need one.

**Bit for bit.** A row's draw must not depend on its place in a batch, but torch sums a
row in an order that depends on the batch and the threads. `row_sum` halves the row
instead, with additions whose order is that of n alone; a kernel can do the same.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from khot import _checks, _random
from khot._native import library
from khot._random import Source
from khot._rows import as_rows
from khot._sigmoid import relax

Draw = Callable[[Tensor, Tensor, Source], Tensor]
# Rows of the user's dtype; k as a column, whole or not, or None; how far a sum may be from a whole
# number, relative to it; the source. To z (S, R, n), or None where torch must say what is wrong.
Kernel = Callable[[Tensor, Tensor | None, float, Source], Tensor | None]


def sample(
    who: str,
    draw: Draw,
    pi: Tensor,
    k: float | Tensor | None,
    *,
    num_samples: int | None,
    dim: int,
    generator: torch.Generator | None,
    seeds: Tensor | None,
    whole_k: bool = False,
    kernel: Kernel | None = None,
) -> Tensor:
    """Return the draws of a design: pi's shape and dtype, after a dimension of num_samples.

    Args:
        who: the public function, which the messages name.
        draw: its draw of rows, as the module's docstring has it.
        pi: inclusion probabilities; logits, if k is given.
        k: None, or what is chosen by logits: then pi = sigmoid_topk(logits, k).
        num_samples: how many draws of each row, as the first dimension; None for one
            draw without such a dimension.
        dim: of the units, in pi.
        generator: of the seeds, if those are not given.
        seeds: of the rows.
        whole_k: refuse a sum that is not whole, for a design without a phantom unit.
        kernel: the same draw in C.
    """
    units = _checks.check_scores(who, pi, dim, name="pi" if k is None else "logits").detach()
    samples = checked_samples(who, num_samples)
    rows, shape = as_rows(units, dim)
    source = Source(_random.seeds_for(who, seeds, generator, shape, units.device), samples)
    sizes = None
    if k is not None:
        rows, sizes = probabilities(who, rows, k, shape)
    z = None
    if kernel is not None and library.accepts(rows, source.seeds):
        z = kernel(rows, sizes, _tolerance(rows.dtype), source)
    if z is None:
        z = _drawn(who, draw, rows, sizes, source, whole_k=whole_k)
    z = z.to(units.dtype).reshape(samples, *shape, units.shape[dim])
    z = z.movedim(-1, dim if dim < 0 else dim + 1)
    return z[0] if num_samples is None else z


def probabilities(
    who: str, logits: Tensor, k: float | Tensor, shape: torch.Size
) -> tuple[Tensor, Tensor]:
    """Rows of logits and k to rows of pi = sigmoid_topk(logits, k), and k as a column (R, 1)."""
    column = _checks.per_row(who, "k", k.detach() if isinstance(k, Tensor) else k, logits, shape)
    pi = relax(who, precise(logits), column.squeeze(-1), 1.0, -1)
    return pi, column.expand(len(logits), 1)


def precise(scores: Tensor, *, dim: int = -1) -> Tensor:
    """Return the scores in a dtype in which probabilities of that many units keep their sum.

    What every design and estimator does to logits before it makes probabilities of them: half
    types become float32, and with more than 2^19 units float64, for there the rounding of
    float32 could add up to a unit. Of a dtype that is fine enough, the scores themselves.

    Args:
        scores: float64, float32, bfloat16 or float16.
        dim: the dimension that holds the n units.

    Returns:
        Tensor of the scores' shape, float32 or float64 (on MPS, which has no float64, float32).

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: there is no such dim, or nothing along it.

    Gradient:
        That of a conversion.

    Example:
        >>> import torch
        >>> from khot.sampling import precise
        >>> precise(torch.zeros(2, 784, dtype=torch.float16)).dtype
        torch.float32
        >>> precise(torch.zeros(2**19 + 1)).dtype
        torch.float64
    """
    scores = _checks.check_scores("precise", scores, dim, name="scores")
    if scores.shape[dim] > 2**19:
        return scores.to(_checks.work_dtype(scores))
    return scores.float() if scores.dtype.itemsize < 4 else scores


def row_sum(p: Tensor) -> Tensor:
    """The sum of each row, (..., 1), added up in an order that depends on n alone.

    Element i and i + h, with h the least power of two that is at least half of what is
    left, until one is left.
    """
    while (n := p.shape[-1]) > 1:
        half = 1 << ((n - 1).bit_length() - 1)
        p = torch.cat((p[..., : n - half] + p[..., half:], p[..., n - half : half]), -1)
    return p


def _drawn(
    who: str, draw: Draw, rows: Tensor, sizes: Tensor | None, source: Source, *, whole_k: bool
) -> Tensor:
    """z (S, R, n) by torch operations; one look at the device if all rows are whole."""
    p = rows.to(_checks.work_dtype(rows))
    total = row_sum(p) if sizes is None else sizes
    k, is_whole = _whole(total, rows.dtype if sizes is None else None)
    bad = ~((p >= 0) & (p <= 1)).all(-1, keepdim=True)
    if not bool((bad | ~is_whole).any()):
        return draw(p, k, source)
    if bad.any():
        got = f"another value in {int(bad.sum())} of {len(p)} rows"
        _checks.refuse(who, "pi must be in [0, 1]", got)
    if whole_k:
        _refuse_fractions(who, total, is_whole, "k" if sizes is not None else "pi")
    whole = is_whole.squeeze(-1)
    z = p.new_empty(source.samples, *p.shape)
    z[:, whole] = draw(p[whole], k[whole], source[whole]).to(z.dtype)
    parts, floor = p[~whole], total[~whole].floor()
    extended = torch.cat((parts, 1 - (total[~whole] - floor)), -1)
    drawn = draw(extended, floor.to(torch.int64) + 1, source[~whole])
    z[:, ~whole] = drawn[..., :-1].to(z.dtype)
    return z


def _whole(total: Tensor, dtype: torch.dtype | None) -> tuple[Tensor, Tensor]:
    """The nearest whole numbers, int64, and whether the sums of entries of `dtype` are those.

    None stands for a k that was given, which is as exact as it looks.
    """
    k = total.round()
    if dtype is None:
        return k.to(torch.int64), total == k
    allowed = (_tolerance(dtype) * k.clamp(min=1)).clamp(max=0.25)
    return k.to(torch.int64), ~((total - k).abs() > allowed)


def _tolerance(dtype: torch.dtype) -> float:
    """How far the sum of entries of this dtype may be from a whole number, relative to it."""
    return max(1e-6, 4 * torch.finfo(dtype).eps)


def _refuse_fractions(who: str, total: Tensor, is_whole: Tensor, name: str) -> None:
    if bool(is_whole.all()):
        return
    must = "k must be whole" if name == "k" else "pi must have a whole sum in each row"
    got = f"another in {int((~is_whole).sum())} of {len(total)} rows"
    if len(total) == 1:
        off = float((total - total.round()).abs())
        got = f"{float(total):.6g}, off by {off:.1g}"
    _checks.refuse(who, must, got)


def checked_samples(who: str, num_samples: object) -> int:
    if num_samples is None:
        return 1
    if isinstance(num_samples, bool) or not isinstance(num_samples, int):
        got = type(num_samples).__name__
        _checks.refuse(who, "num_samples must be an integer", got, TypeError)
    if not 0 <= num_samples < 2**32:
        _checks.refuse(who, "num_samples must be in [0, 2^32)", str(num_samples))
    return num_samples
