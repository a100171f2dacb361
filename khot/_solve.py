r"""The root finder behind sigmoid top-k: the shift c with sum_i sigmoid(s_i + c) = k.

This is the reference in torch operations; `_native/sigmoid_topk.c` is the same
algorithm in C. Rows are independent, and each stops by itself.

**What is summed.** With t = s + c, let h = #{t_i > 0} and

    L = sum_{t_i <= 0} sigmoid(t_i),    H = sum_{t_i > 0} sigmoid(-t_i).

Then f(c) - k = (h - k) + L - H. Each unit enters with whichever of p and 1 - p
is small, so nothing cancels: the residual keeps its relative precision when k
is 1e-6, when k is n - 1e-6, and when every unit is saturated.

**Three steps, one rule.**

1. *Halley* on g(c) = logit(f/n) - logit(k/n), which is linear in c when all
   scores are equal, and nearly so otherwise. Cubic, but it crawls (steps of 1
   or 2) where everything is saturated, and can leave the bracket.
2. *Balance*: the root of (h - k) + L e^d - H e^-d = 0, a quadratic in e^d. As
   sigmoid(t + d) <= sigmoid(t) e^d for d > 0, the model grows faster than f on
   either side, so this step **never passes the root**: the distance to the root
   is at least |d|. It is exact where all units are saturated, which is where
   Halley crawls.
3. *Bisection* of a bracket, for rows whose scores are so far apart that the
   root lies many units away and the other two see only the nearest one.

The longer of 1 and 2 is taken if it stays in the bracket (balance being a lower
bound on the distance, a shorter Halley step is known to be too short); if the
bracket did not halve in the last two steps and the step is not yet small, 3.

**The bracket.** With l = logit(k/n): at c = l - max s every term is at most
k/n, at c = l - min s at least k/n. So the root lies between.

**Stopping.** A step shorter than `LAST_STEP` is taken and is the last: Halley
leaves an error of the order of its cube. It is kept apart from c, because s + c
is exact near the threshold (two close floats) while c + step would round at
offsets of 1e6. Where even the root's neighbours in floating point are too far
apart (all scores at 1e17, say), c no longer moves or the bracket closes without a
solution; the row is then solved again from s + c, and what is found there is the step.
If c was not yet near the root, that ends likewise or far from 0, and is the next c to be
solved from; there a step too short to move c is no longer taken for the root's being near.
Of the two ends of a closed bracket, c is the one whose units make up k: those of
the lower if with all of them there are enough, or else those of the upper. Seen from the
other end they are as far as before.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from khot._rows import steady

LAST_STEP = 1e-5
# Nearly every row is done by then; the rest go on without the others.
COMMON_ITERATIONS = 6
# At least every third step halves the bracket: 3 * (1024 + 52) covers float64.
MOST_ITERATIONS = 3300
# Nearly always one is enough; more are needed where c was not near the root.
MOST_ANCHORS, NEAR = 8, 1024


@dataclass(frozen=True)
class Diagnostics:
    """How each row of a relaxation was solved; every field has the shape of the rows.

    Of an estimator that relaxes every sample on its own, after num_samples if that is given.

    Attributes:
        c: the shift, float64; -inf where k = 0 and +inf where every unit is taken.
        iterations: how often the row was summed, int32; 0 where k leaves no choice.
        residual: |sum of the row - k| / max(min(k, n - k), tiny), float64; of a half type,
            before it is rounded to that.
        fallback: whether the row needed bisection, bool.
    """

    c: Tensor
    iterations: Tensor
    residual: Tensor
    fallback: Tensor

    @property
    def converged(self) -> Tensor:
        """Whether the residual is at most 1e-5, bool.

        The sum of a row grows by at most min(k, n - k) times what the shift does, so a row above
        it is further from its root than the solver's last step may be.
        """
        return self.residual <= LAST_STEP

    def hardest(self) -> "Diagnostics":
        """Of samples along the first dimension, for each row the one of the most iterations."""
        at = self.iterations.argmax(0, keepdim=True)
        fields = (self.c, self.iterations, self.residual, self.fallback)
        return Diagnostics(*(field.gather(0, at).squeeze(0) for field in fields))


@dataclass
class Root:
    """A column per quantity, a row per row; `step` is the last step, not yet in c."""

    c: Tensor
    step: Tensor
    lo: Tensor
    hi: Tensor
    iterations: Tensor
    bisections: Tensor
    done: Tensor
    stuck: Tensor

    def take(self, rows: Tensor) -> "Root":
        return Root(*(column[rows] for column in vars(self).values()))

    def put(self, rows: Tensor, other: "Root") -> None:
        for column, new in zip(vars(self).values(), vars(other).values(), strict=True):
            column[rows] = new


def scale(x: Tensor, tau: Tensor) -> Tensor:
    """x / tau in tau's dtype, kept finite wherever x is: the bracket must not overflow."""
    most = torch.finfo(tau.dtype).max / 5
    s = (x.to(tau.dtype) / tau).clamp(max=most)
    return torch.where(x > -math.inf, s.clamp(min=-most), -math.inf)


def solve_shift(s: Tensor, k: Tensor, n: Tensor) -> Root:
    """Return the root c of sum_i sigmoid(s_i + c) = k for each row.

    Args:
        s: scores (R, n) from `scale`: -inf marks a unit that takes no part, every
            other entry is finite.
        k: (R, 1), in [0, n].
        n: (R, 1), the number of entries above -inf.

    Returns:
        The root; sigmoid((s + c) + step) sums to k. Rows with k = 0 or k = n are
        done with c = -inf or +inf and no iterations.
    """
    root = _solve(s, k, n)
    stuck = _rows(root.stuck)
    for _ in range(MOST_ANCHORS):
        if not stuck.numel():
            break
        root.c[stuck] += root.step[stuck]
        inner = _solve(s[stuck] + root.c[stuck], k[stuck], n[stuck], anchored=True)
        root.step[stuck] = inner.c + inner.step
        root.iterations[stuck] += inner.iterations
        stuck = stuck[_rows(inner.stuck | (inner.c.abs() > NEAR))]
    return root


def _solve(s: Tensor, k: Tensor, n: Tensor, *, anchored: bool = False) -> Root:
    root = _start(s, k, n)
    _iterate(root, s, k, n, COMMON_ITERATIONS, anchored=anchored)
    if (left := _rows(~root.done)).numel():
        rest = root.take(left)
        _iterate(rest, s[left], k[left], n[left], MOST_ITERATIONS, anchored=anchored)
        root.put(left, rest)
    return root


def _rows(column: Tensor) -> Tensor:
    """The indices of the rows where a column of booleans is true."""
    return column.squeeze(-1).nonzero().squeeze(-1)


def _start(s: Tensor, k: Tensor, n: Tensor) -> Root:
    """The bracket, and the probit guess logit(k/n) sqrt(1 + pi var/8) - mean inside it.

    The guess is exact for equal scores, and for normal scores as far as a
    sigmoid is a normal distribution function of variance 8/pi.
    """
    free = s > -math.inf
    most = s.amax(-1, keepdim=True)
    least = torch.where(free, s, math.inf).amin(-1, keepdim=True)
    centred = torch.where(free, s - most, 0.0)
    mean = centred.sum(-1, keepdim=True) / n
    var = torch.where(free, centred - mean, 0.0).square().sum(-1, keepdim=True) / n
    logit = steady(torch.log, k) - steady(torch.log, n - k)
    lo, hi = logit - most, logit - least
    guess = (logit * (1 + math.pi / 8 * var).sqrt() - mean - most).clamp(lo, hi)
    guess = torch.where(guess.isfinite(), guess, lo / 2 + hi / 2)
    empty, full = k <= 0, k >= n
    c = torch.where(empty, -math.inf, torch.where(full, math.inf, guess))
    none, never = torch.zeros_like(k, dtype=torch.int32), torch.zeros_like(empty)
    return Root(c, torch.zeros_like(c), lo, hi, none, none.clone(), empty | full, never)


def _iterate(
    root: Root, s: Tensor, k: Tensor, n: Tensor, iterations: int, *, anchored: bool
) -> None:
    """Improve the rows of `root` that are not done, in place, until all are."""
    rest = n - k
    before = width = torch.full_like(k, math.inf)
    for _ in range(iterations):
        if bool(root.done.all()):
            return
        h, low, high, f1, f2 = _sums(s, root.c)
        r = (h - k) + low - high
        root.iterations += ~root.done
        root.lo = torch.where(r < 0, torch.maximum(root.lo, root.c), root.lo)
        root.hi = torch.where(r > 0, torch.minimum(root.hi, root.c), root.hi)

        halley, balance = _halley_step(r, f1, f2, k, rest, n), _balance_step(h - k, low, high)
        inside = _within(root.c + halley, root)
        step = torch.where(inside & ~(halley.abs() < balance.abs()), halley, balance)
        step = torch.where(r == 0, 0.0, step)
        new = root.c + step
        crawls = (root.hi - root.lo > 0.5 * before) & (step.abs() > 1)
        before, width = width, root.hi - root.lo
        short = step.abs() <= 2 * torch.finfo(s.dtype).eps * root.c.abs()
        bisect = ~_within(new, root) | crawls | (short & anchored & (r != 0))
        middle = root.lo / 2 + root.hi / 2
        new = torch.where(bisect, middle, new)
        solved = ~bisect & (step.abs() <= LAST_STEP)
        closed = bisect & ((new <= root.lo) | (new >= root.hi))
        stuck = ~solved & (short & ~bisect | closed)
        last = solved | stuck

        going = ~root.done
        if bool((going & closed).any()):
            reached = (s + root.lo >= 0).sum(-1, keepdim=True)
            end = torch.where(reached >= k, root.lo, root.hi)
            root.c = torch.where(going & closed, end, root.c)
        root.bisections += going & bisect
        root.step = torch.where(going & solved, step, root.step)
        root.c = torch.where(going & ~last, new, root.c)
        root.stuck |= going & stuck
        root.done |= last


def _within(c: Tensor, root: Root) -> Tensor:
    """Whether c lies in the bracket, up to the rounding of a converged row."""
    return (c >= root.lo - LAST_STEP) & (c <= root.hi + LAST_STEP)


def _sums(s: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """h, L, H of the module docstring, and the first and second derivative of f."""
    t = s + c
    small = torch.sigmoid(-t.abs())  # min(p, 1 - p)
    positive = t > 0
    slope = small * (1 - small)
    curvature = torch.where(positive, -slope, slope) * (1 - 2 * small)
    terms = (torch.where(positive, 0.0, small), torch.where(positive, small, 0.0), slope, curvature)
    low, high, f1, f2 = (term.sum(-1, keepdim=True) for term in terms)
    return positive.sum(-1, keepdim=True), low, high, f1, f2


def _halley_step(r: Tensor, f1: Tensor, f2: Tensor, k: Tensor, rest: Tensor, n: Tensor) -> Tensor:
    """Halley's step for g = logit(f/n) - logit(k/n), with f = k + r and n - f = rest - r."""
    f = k + r
    g = steady(torch.log1p, r / k) - steady(torch.log1p, -r / rest)
    v = f * (rest - r) / n
    g1 = f1 / v
    g2 = f2 / v - g1.square() * (1 - 2 * f / n)
    return -2 * g * g1 / (2 * g1.square() - g * g2)


def _balance_step(excess: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """log of the positive root of low E^2 + excess E - high = 0, without cancellation."""
    # sqrt(low) sqrt(high), for low * high underflows where neither factor does; not
    # torch.hypot, which rounds a row by its place in the batch
    balanced = 2 * low.sqrt() * high.sqrt()
    root = torch.where(excess == 0, balanced, (excess.square() + balanced.square()).sqrt())
    e = torch.where(excess > 0, 2 * high / (root + excess), (root - excess) / (2 * low))
    return steady(torch.log, e)
