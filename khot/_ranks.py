r"""The plan behind sorted SOFT top-k: n units, and an anchor for each of k ranks and the rest.

With scores s, the plan is P_il = softmax_l(L_il) with the logits

    L_il = sum of (s_i + theta_m) over l <= m < k,    l = 0, ..., k (the rest, L = 0),

and the k numbers theta such that each rank's column sums to 1 (and the rest's then to
n - k). -theta_m is where rank m hands over to rank m + 1. The columns are the gradient of
the convex sum_i logsumexp_l L_il in b_l = theta_l + ... + theta_{k-1}, and its Hessian

    A = diag(column sums) - P'P = the Laplacian of the weights W_lm = sum_i P_il P_im

over the ranks, with the rest as ground: the k x k matrix of the paper's Theorem 3.

**Start.** -theta_m is put in the middle between the two scores next to it. That is the
solution for scores that lie far apart: what is left is about log n in each theta, kept
apart, so that s + theta is exact near the threshold at any offset.

**Steps.** One of Sinkhorn's, b <- b - log(columns / wanted), which does most of the way
where scores are close; then Newton's, b <- b - A^-1 (columns - wanted), of which some five
remain. If Newton's does not halve the error, and half of it does not take a quarter off,
Sinkhorn's is taken, which cannot make the error grow (of all columns, the rest included):
scaling the columns to nu moves the sums of the rows by at most sum_l |nu_l - columns_l|,
and scaling the rows back moves those of the columns by no more than that. A is well
scaled (its diagonal is near 1 at most) but singular where ranks do not mix, or where
there is no rest; `RIDGE` is added to it, which hardly changes a result, for columns that
A hardly sees hardly depend on their potentials.

**Logits without cancellation.** L is summed outwards from each unit's likeliest rank, so
that the logits of the ranks that compete for a unit are sums of few small numbers, though
k times the spread may be 1e6. No entry of L is then above 0, and none overflows.
"""

import math

import torch
from torch import Tensor

from khot._rows import even

MOST_ITERATIONS = 200
# In units of the machine's rounding: what is solved, and what may be left if steps no longer help.
SOLVED, ENOUGH = 64, 16384
RIDGE = 256
# Rows are solved together up to this many numbers, which then stay in the cache.
ENTRIES_TOGETHER = 1 << 18


def solve_plan(s: Tensor, k: int, n: Tensor) -> Tensor:
    """Return the plan (R, n, k + 1), the rest last; rows of zeros for masked units.

    Args:
        s: scores (R, n); -inf marks a unit that takes no part, every other entry is finite.
        k: the number of ranks, at most the least of n.
        n: (R, 1), the number of entries above -inf.
    """
    together = max(1, ENTRIES_TOGETHER // (s.shape[1] * (k + 1)))
    plans = [_solve(*rows, k) for rows in zip(s.split(together), n.split(together), strict=True)]
    return torch.cat(plans)


def _solve(s: Tensor, n: Tensor, k: int) -> Tensor:
    rounding = torch.finfo(s.dtype).eps
    wanted = torch.cat([torch.ones_like(s[:, :1]).expand(-1, k), n - k], -1)
    rows = _Rows(s, _start(s, k).unsqueeze(-2))
    going = torch.ones_like(n[:, 0], dtype=torch.bool)
    for iteration in range(MOST_ITERATIONS):
        going &= rows.error > SOLVED * rounding
        left = going.nonzero().squeeze(-1)
        if not left.numel():
            break
        if iteration > 0:
            step = newton_step(rows.plan[left], rows.columns[left])
            for length in (1.0, 0.5):
                short = rows.try_step(left, length * step, 1 - length / 2)
                left, step = left[short], step[short]
            going[left] &= rows.error[left] > ENOUGH * rounding
            left = left[going[left]]
        rows.try_step(left, sinkhorn_step(rows.columns[left], wanted[left]), math.inf)
    return rows.plan


class _Rows:
    """The thetas of some rows, as start + shift, and the plans they give."""

    def __init__(self, s: Tensor, start: Tensor) -> None:
        self.free = (s > -math.inf).unsqueeze(-1)
        # +inf where there is no rest, and no masked unit may make that NaN
        self.distances = torch.where(self.free, s.unsqueeze(-1), 0.0) + start
        self.shift = torch.zeros_like(start)
        self.plan = _plan(self.distances, self.shift, self.free)
        self.columns = self.plan.sum(-2)
        self.error = _error(self.columns)

    def try_step(self, rows: Tensor, step: Tensor, most: float) -> Tensor:
        """Move those of `rows` whose error becomes at most `most` of it; say which do not."""
        if not rows.numel():
            return rows > 0
        shift = self.shift[rows] + step
        plan = _plan(self.distances[rows], shift, self.free[rows])
        columns = plan.sum(-2)
        error = _error(columns)
        kept = error <= most * self.error[rows]
        moved = rows[kept]
        self.shift[moved], self.plan[moved] = shift[kept], plan[kept]
        self.columns[moved], self.error[moved] = columns[kept], error[kept]
        return ~kept


def newton_step(plan: Tensor, columns: Tensor) -> Tensor:
    """The change of theta, (R, 1, k), that would solve the linearised equations."""
    return _differences(solved(laplacian(plan), 1 - columns[:, :-1]))


def sinkhorn_step(columns: Tensor, wanted: Tensor) -> Tensor:
    """The change of theta, (R, 1, k), that scales the columns to what is wanted."""
    tiny, ranks = torch.finfo(columns.dtype).tiny, columns.shape[-1]
    logs = even(wanted, 1.0).log() - even(columns, 1.0).clamp(min=tiny).log()
    b = torch.where(wanted > 0, logs[:, :ranks], 0.0)
    return _differences(b[:, :-1] - b[:, -1:])


def _start(s: Tensor, k: int) -> Tensor:
    """Minus the middle between each of the k largest scores and the next; +inf for no next."""
    top = s.topk(min(k + 1, s.shape[-1])).values
    if top.shape[-1] == k:
        top = torch.nn.functional.pad(top, (0, 1), value=-math.inf)
    return -(top[:, :-1] / 2 + top[:, 1:] / 2)


def _error(columns: Tensor) -> Tensor:
    """How far the columns of the ranks are from 1 on average, (R,)."""
    return (columns[:, :-1] - 1).abs().sum(-1) / max(1, columns.shape[-1] - 1)


def _differences(b: Tensor) -> Tensor:
    """theta_l = b_l - b_{l+1} of potentials b (R, k), as (R, 1, k)."""
    return -torch.nn.functional.pad(b, (0, 1)).diff().unsqueeze(-2)


def _plan(distances: Tensor, shift: Tensor, free: Tensor) -> Tensor:
    """softmax over the ranks and the rest, from s + theta (R, n, k) in two parts."""
    t = distances + shift
    steps = torch.nn.functional.pad(-t, (1, 0))
    likeliest = steps.cumsum(-1).argmax(-1, keepdim=True)
    ranks = torch.arange(t.shape[-1] + 1, device=t.device)
    after = steps.masked_fill(ranks <= likeliest, 0.0).cumsum(-1)
    before = t.masked_fill(ranks[:-1] >= likeliest, 0.0).flip(-1).cumsum(-1).flip(-1)
    after[..., :-1] += before
    plan = after.exp_()
    return (plan / plan.sum(-1, keepdim=True)).masked_fill_(~free, 0.0)


def laplacian(plan: Tensor) -> Tensor:
    """A of the module docstring with its ridge, (R, k, k), without subtractions."""
    k = plan.shape[-1] - 1
    others = 1 - torch.eye(k, k + 1, dtype=plan.dtype, device=plan.device)
    weights = (plan[..., :k].mT @ plan) * others
    diagonal = weights.sum(-1) + RIDGE * torch.finfo(plan.dtype).eps
    return torch.diag_embed(diagonal) - weights[..., :k]


def solved(a: Tensor, b: Tensor) -> Tensor:
    """a^-1 b for a (R, k, k) and b (R, k), with the same bits for a row in any batch.

    What solves rounds by where a matrix begins in memory. With ones below a, up to a multiple
    of eight, all begin where a multiple of 64 bytes does, as one alone. (The products of
    `laplacian` do, for rows have a multiple of 64 units.)
    """
    lacking = -a.shape[-1] % 8
    ones = torch.nn.functional.pad(torch.zeros_like(b), (0, lacking), value=1.0)
    a = torch.nn.functional.pad(a, (0, lacking, 0, lacking)) + torch.diag_embed(ones)
    b = torch.nn.functional.pad(b, (0, lacking))
    found: Tensor = torch.linalg.solve_ex(a, b)[0]
    return found[..., : b.shape[-1] - lacking]
