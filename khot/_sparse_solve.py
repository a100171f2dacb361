"""The root finder behind sparse top-k, in torch operations; `_sparse.py` says what it does.

`_native/sparse_topk.c` is the same algorithm in C. Rows are independent, and each stops by
itself.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

PATIENCE, MOST_ITERATIONS = 10, 3300


@dataclass(frozen=True)
class _Sums:
    """Columns, for t = (x - anchor) / tau + d; `above` is the least score with t >= 0."""

    h: Tensor
    low: Tensor
    high: Tensor
    slope: Tensor
    above: Tensor


def solve(x: Tensor, k: Tensor, tau: Tensor, cube: bool) -> tuple[Tensor, Tensor, Tensor]:
    """y (R, n), and columns c and d with y = clip((x + c) / tau + d, 0, 1)^m; values are good."""
    s, unmasked = x.to(tau.dtype), x > -torch.inf
    n = unmasked.sum(-1, keepdim=True).to(k.dtype)
    k, inverse = k.expand_as(n), (1 / tau).clamp(max=torch.finfo(tau.dtype).max)
    empty, full = k <= 0, k >= n
    anchor, d = _search(s, unmasked, k, n, inverse, cube)

    # at the ends of k, any root that leaves every unit out, or caps every one
    least = torch.where(unmasked, s, math.inf).amin(-1, keepdim=True)
    anchor = torch.where(full, least, anchor).masked_fill(n == 0, 0.0)
    d = torch.where(empty, -1.0, torch.where(full, 2.0, d))
    u = ((s - anchor) * inverse + d).clamp(0, 1)
    y = u.pow(3) if cube else u
    if x.dtype.itemsize < 4:
        y = y.float()  # as the kernel rounds
    return y.to(x.dtype).contiguous(), -anchor, d


def _search(
    s: Tensor, unmasked: Tensor, k: Tensor, n: Tensor, inverse: Tensor, cube: bool
) -> tuple[Tensor, Tensor]:
    """The anchor and d of each row; rows with k = 0 or k = n are left as they start."""
    eps, largest = torch.finfo(s.dtype).eps, torch.finfo(s.dtype).max
    anchor = s.amax(-1, keepdim=True)
    least = torch.where(unmasked, s, math.inf).amin(-1, keepdim=True)
    # no t may overflow, of units that are not free anyway
    own, inverse = inverse, torch.minimum(inverse, largest / 4 / (anchor - least))
    # up to the rounding of t, which may be more than the 1
    lo, hi = torch.zeros_like(anchor), (anchor - least) * inverse * (1 + 4 * eps) + 1
    d = _guess(s, unmasked, k, n, inverse, anchor, cube)
    d = torch.where((d > lo) & (d < hi), d, lo / 2 + hi / 2)
    done = (k <= 0) | (k >= n)
    before = width = torch.full_like(d, math.inf)
    for iteration in range(MOST_ITERATIONS):
        if bool(done.all()):
            break
        a = _sums(s, inverse, anchor, d, cube)
        r = (a.h - k) + a.low - a.high
        solved = r.abs() <= eps * (4 * (a.low + a.high) + torch.where(a.h > 0, a.slope, 0.0))
        lo = torch.where(r <= 0, torch.maximum(lo, d), lo)
        hi = torch.where(r >= 0, torch.minimum(hi, d), hi)
        step = _newton_step(a, r, k, cube)
        crawls = hi - lo > 0.5 * before
        if iteration <= PATIENCE:
            crawls &= step.abs() > 1
        before, width = width, hi - lo
        middle, new = lo / 2 + hi / 2, d + step
        inside, closed = (new >= lo) & (new <= hi), ~((middle > lo) & (middle < hi))
        new = torch.where(inside & (solved | ~crawls), new, torch.where(solved, d, middle))
        # the root is between two neighbours: seen from the upper one the anchor is nearer
        new = torch.where(closed & ~solved, torch.where(r < 0, hi, d), new)

        moved = torch.where(a.above < math.inf, (a.above - anchor) * inverse, 0.0)
        follows = ~done & ((new + moved).abs() < new.abs())
        last = solved & (moved.abs() * a.slope <= k) | ~follows & (solved | (new == d))
        d = torch.where(done, d, new)
        done = done | last
        # sums about an anchor so far away were rounded by as much
        moved = torch.where(follows & ~done, moved, 0.0)
        slack = torch.where(moved != 0, 4 * eps * (d.abs() + moved.abs()), 0.0)
        anchor = torch.where(moved != 0, a.above, anchor)
        d, lo, hi = d + moved, lo + moved - slack, hi + moved + slack
    if bool((inverse < own).any()):
        # at a scale so small that none but equals of the anchor can be free: seen from the least
        # unit that is, or is capped, the same at tau's own
        t = (s - anchor) * inverse + d
        above = torch.where(t >= 0, s, math.inf).amin(-1, keepdim=True)
        at = ((above - anchor) * inverse + d).clamp(max=1)
        anchor, d = (torch.where(inverse < own, *pair) for pair in ((above, anchor), (at, d)))
    return anchor, d


def _guess(
    s: Tensor,
    unmasked: Tensor,
    k: Tensor,
    n: Tensor,
    inverse: Tensor,
    anchor: Tensor,
    cube: bool,
) -> Tensor:
    """d if the scores were normal."""
    below = torch.where(unmasked, (anchor - s) * inverse, 0.0)
    mean = below.sum(-1, keepdim=True) / n
    var = torch.where(unmasked, below - mean, 0.0).square().sum(-1, keepdim=True) / n
    centre, spread = (3 / 4, 3 / 80) if cube else (1 / 2, 1 / 12)
    normal: Tensor = torch.special.ndtri(k / n)
    return mean + centre + (var + spread).sqrt() * normal


def _sums(s: Tensor, inverse: Tensor, anchor: Tensor, d: Tensor, cube: bool) -> _Sums:
    t = (s - anchor) * inverse + d
    u = t.clamp(0, 1)
    v = 1 - u
    y, left = (u.pow(3), v * (1 + u * (1 + u))) if cube else (u, v)
    free, big = (t > 0) & (t < 1), t > 0.5
    slope = torch.where(free, 3 * u.square() if cube else 1.0, 0.0)
    return _Sums(
        big.sum(-1, keepdim=True).to(s.dtype),
        torch.where(big, 0.0, y).sum(-1, keepdim=True),
        torch.where(big, left, 0.0).sum(-1, keepdim=True),
        slope.sum(-1, keepdim=True),
        torch.where(t >= 0, s, math.inf).amin(-1, keepdim=True),
    )


def _newton_step(a: _Sums, r: Tensor, k: Tensor, cube: bool) -> Tensor:
    """Newton's, on the cube root of the sum while no cube is half way to its cap."""
    if not cube:
        return -r / a.slope
    f = k + r
    return torch.where(a.h == 0, 3 * f * ((k / f).pow(1 / 3) - 1), -r) / a.slope
