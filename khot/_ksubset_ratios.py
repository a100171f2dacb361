r"""Draws from the k-subset law, by a recursion on ratios of elementary symmetric polynomials.

With weights w_i = exp(theta_i), let e_m be the sum over the m-subsets of the last r units
of their products, and s_r(m) = e_m / e_{m-1}. If m are still to be chosen from the r-th
unit from the end and the r - 1 after it, that unit is chosen with probability

    q_r(m) = w / (w + s_{r-1}(m)),

and as e_m gains w e_{m-1} by that unit,

    s_r(m) = (w + s_{r-1}(m)) (1 - q_r(m - 1)),     1 - q_r(m) = s_{r-1}(m) / (w + s_{r-1}(m)),

from s_0 = 0 and 1 - q_r(0) = 1. **A draw is one walk** from r = n to 1 with m = k at first:
the unit is taken if its random number lies below q_r(m). s = 0 where m > r, which makes
q = 1 exactly where all that are left must be taken, so a draw has k ones, always.

**Stable in any precision.** Only positive numbers are added, multiplied and divided. A
relative error d of s_{r-1} reaches s_r(m) as (1 - q_r(m)) d(m) + q_r(m - 1) d(m - 1), and q
grows with m (Newton's inequality: s falls), so the errors are averaged, not amplified:
float32 is as good for a float32's logits as they are.

**The scale.** theta is shifted by sigmoid top-k's c, after which the k-th largest is at
least -log(n - k) and the one after at most log k. So what lies beyond `REACH` is certain to
e^-REACH, and may be moved there: weights stay within the range of the dtype, also with
an outlier of 1e4 or a mask of -1e9, where a shift by the middle of the range would not do.

**Memory.** The walk reads the rows of the table from the last to the first. If they do not
fit, only every length-th row is kept, and the rows between two are made again when the walk
reaches them: twice the time, and the square root of the memory.

Each step is one rounded operation on each element, so `_native/k_subset_ratios.h`, which is
the same recursion, has the same bits once the weights are the same.
"""

import math

import torch
from torch import Tensor

REACH = {torch.float64: 300.0, torch.float32: 60.0}
# How many elements of a table are kept at once.
TABLE = 1 << 22


def draw(theta: Tensor, k: Tensor, c: Tensor, u: Tensor) -> Tensor:
    """k-hot rows (S, R, n) for numbers u of that shape, in torch operations.

    Args:
        theta: (R, n), float64 or float32; -inf masks a unit.
        k: (R, 1), whole.
        c: (R, 1), of sigmoid top-k.
        u: (S, R, n), in (0, 1).
    """
    most = max(1, int(k.max())) if len(k) else 1
    root = math.isqrt(theta.shape[-1]) + 1
    size = max(1, TABLE // (2 * root * most))
    if len(theta) <= size:
        return _draw(theta, k, c, u, most)
    k, parts = k.expand(len(theta), 1), range(0, len(theta), size)
    cut = [slice(i, i + size) for i in parts]
    return torch.cat([_draw(theta[i], k[i], c[i], u[:, i], most) for i in cut], 1)


def _draw(theta: Tensor, k: Tensor, c: Tensor, u: Tensor, most: int) -> Tensor:
    rows, n = theta.shape
    free = theta > -math.inf
    taken_all = (c == math.inf) & free
    choice = c.isfinite()
    t = torch.where(choice & free, theta.to(c.dtype) + torch.where(choice, c, 0.0), 0.0)
    reach = REACH[theta.dtype]
    w = t.clamp(-reach, reach).exp().to(theta.dtype)
    units = free.sum(-1)
    order = None
    if not bool(free.all()):
        order = free.to(torch.int8).argsort(stable=True, dim=-1)  # those masked come first
        w, u = w.gather(-1, order), u.gather(-1, order.expand(u.shape))
    z = torch.zeros(u.shape, dtype=torch.bool, device=u.device)
    m = torch.where(choice, k, 0).to(torch.int64).expand(rows, 1).repeat(1, len(u))
    table = _Table(w, most)
    for r in range(n, 0, -1):
        i = n - r
        weight = w[:, i : i + 1]
        s = table.after(r - 1).gather(-1, (m - 1).clamp(min=0))
        q = weight / (weight + s)
        take = (q > u[:, :, i].T) & (m > 0) & (units >= r).unsqueeze(-1)
        z[:, :, i] = take.T
        m = m - take.to(m.dtype)
    if order is not None:
        z = torch.zeros_like(z).scatter_(-1, order.expand(z.shape), z)
    return (z | taken_all).to(theta.dtype)


class _Table:
    """The ratios s_r(1), ..., s_r(most) of all rows, (R, most), for falling r."""

    def __init__(self, w: Tensor, most: int) -> None:
        rows, n = w.shape
        self.w = w
        whole = rows * n * most <= TABLE
        self.length = n if whole else math.isqrt(n) + 1
        self.saved = [w.new_zeros(rows, most)]
        while (first := (len(self.saved) - 1) * self.length) + self.length < n:
            self.saved.append(self._part(first)[-1])
        self.first = first
        self.part = self._part(first)

    def after(self, r: int) -> Tensor:
        """The ratios of the last r units."""
        if r < self.first:
            self.first -= self.length
            self.part = self._part(self.first)
        return self.part[r - self.first]

    def _part(self, first: int) -> list[Tensor]:
        """The rows from `first` to that of the next part."""
        s = self.saved[first // self.length]
        one = torch.ones_like(s[:, :1])
        part = [s]
        for r in range(first + 1, min(first + self.length, self.w.shape[-1] - 1) + 1):
            w = self.w[:, -r].unsqueeze(-1)
            total = w + s
            s = total * torch.cat((one, (s / total)[:, :-1]), -1)
            part.append(s)
        return part
