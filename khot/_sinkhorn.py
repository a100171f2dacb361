r"""Sinkhorn's iteration for the shift c with sum_i sigmoid(s_i + c) = k.

**From scalings to a shift.** `soft_topk` transports n units of mass 1 to two anchors of
mass n - k and k, with the kernel ratio G_i1 / G_i0 = e^{s_i} up to a constant. Sinkhorn
scales rows, then columns: u = 1 / (G v), v = (n - k, k) / (G' u). Once the rows are
scaled, unit i sends sigmoid(s_i + c) to the second anchor, where e^c is v_1 / v_0 times
that constant; with f(c) their sum, scaling the columns multiplies v_1 by k / f and v_0
by (n - k) / (n - f). So the whole iteration, 2n + 4 numbers in the paper, is one number:

    c <- c - g(c),    g(c) = logit(f(c) / n) - logit(k / n).

**It never passes the root, and only crawls to it.** By Jensen's inequality

    g' = sum_i p_i (1 - p_i) / (n m (1 - m)) lies in (0, 1],    m = f / n,

so c moves towards the root from one side, |g| only shrinks, and since the steps add up
to no more than the distance from the start c_0 to the root, after T steps
|g| <= |c_0 - root| / T. Near the root |g| shrinks by the factor 1 - g': the fraction of
the variance of a 0/1 draw that lies between the p_i. As tau falls all p_i saturate, and
the factor tends to 1.

**What |g| means.** log(f / k) and log((n - f) / (n - k)) have opposite signs and |g| is
the sum of their sizes: the relative error of the sum is at most |g|, whether measured
against k or against n - k.

**Stabilised.** The start is the exact root for scores that lie far apart, so that what
is left to travel is about log n: with m = floor(k) and scores in falling order,

    c_0 = logit(k - m) - s_m, but between -(s_{m-1} + s_m)/2 and -(s_m + s_{m+1})/2.

The scores are therefore absorbed once, as e^{s + c_0}, and the loop has no exp over the
row; rows with k > n/2 are solved as the n - k smallest, so that the sum that is taken is
always the small one and the other, n - f, loses nothing to the subtraction. The total
step is kept apart from c_0, which is exact near the threshold at any offset.

**Stopping.** A row ends when |g| <= `TOLERANCE`; when |g| does not shrink, which exact
numbers cannot do, so that rounding has taken over; or after `MOST_ITERATIONS`. No other
method finishes what is left then: the entries are in [0, 1] and ordered, but their sum
is off k by the g of the last step.
"""

import math

import torch
from torch import Tensor

from khot._rows import steady
from khot._solve import Root

TOLERANCE = 1e-12
MOST_ITERATIONS = 1000


def sinkhorn_shift(s: Tensor, k: Tensor, n: Tensor) -> Root:
    """As `solve_shift`, by Sinkhorn's iteration; the row sums to k as far as that gets."""
    c = _start(s, k, n)
    iterations = torch.zeros_like(k, dtype=torch.int32)
    never = torch.zeros_like(k, dtype=torch.bool)
    done = (k <= 0) | (k >= n)
    root = Root(c, torch.zeros_like(c), c, c, iterations, iterations.clone(), done, never)
    while (left := (~root.done).squeeze(-1).nonzero().squeeze(-1)).numel():
        rest = root.take(left)
        _iterate(rest, s[left], k[left], n[left])
        root.put(left, rest)
    return root


def _start(s: Tensor, k: Tensor, n: Tensor) -> Tensor:
    """c_0 of the module docstring; -inf where k = 0 and +inf where every unit is taken."""
    if s.shape[0] == 0:
        return torch.zeros_like(k)
    needed = min(int(k.max()) + 2, s.shape[1])
    ends = s.new_full((s.shape[0], 1), math.inf)
    ordered = torch.cat([ends, s.topk(needed).values, -ends], -1)
    m = k.floor().clamp(max=needed - 1)
    # one unit of +inf stands before the others
    above, at, below = (ordered.gather(-1, m.long() + i) for i in range(3))
    phi = k - m
    c = steady(torch.log, phi / (1 - phi)) - at
    c = c.clamp(-(above / 2 + at / 2), -(at / 2 + below / 2))
    return torch.where(k <= 0, -math.inf, torch.where(k >= n, math.inf, c))


def _iterate(root: Root, s: Tensor, k: Tensor, n: Tensor) -> None:
    """Improve all rows, in place, until half of them are done."""
    few = 2 * k <= n
    sign, small = torch.where(few, 1.0, -1.0), torch.where(few, k, n - k)
    far = math.log(torch.finfo(s.dtype).max) / 2
    e = (sign * (s + root.c)).clamp(max=far).exp().masked_fill(s == -math.inf, 0.0)
    odds = small / (n - small)
    shift, before = sign * root.step, torch.full_like(k, math.inf)
    p = torch.empty_like(e)
    while 2 * int(root.done.sum()) < root.done.numel():
        torch.add(e, steady(torch.exp, -shift), out=p)
        f = torch.div(e, p, out=p).sum(-1, keepdim=True)
        g = steady(torch.log, f / (n - f) / odds)
        going, shrinks = ~root.done, g.abs() < before
        shift = torch.where(going & shrinks, shift - g, shift)
        before = g.abs()
        root.iterations += going
        root.done |= (before <= TOLERANCE) | ~shrinks | (root.iterations >= MOST_ITERATIONS)
    root.step = sign * shift
