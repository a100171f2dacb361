r"""Root finders for the shift of sigmoid top-k, side by side.

All look for the c with f(c) = sum_i sigmoid(x_i + c) = k. `khot.sigmoid_topk` has
the fastest of them built in; here each can be run by itself, and watched, to compare
them as Table 5 and Figure 8 of the paper do (`tests/bench/bench_root_finding.py`).

**Steps.** With r = f(c) - k, p = sigmoid(x + c) and the derivatives f' = sum p (1 - p)
and f'' = sum p (1 - p)(1 - 2 p):

- `bisection`: to the middle of the bracket; it needs no guess.
- `newton`: -r / f', quadratic.
- `halley`: -2 r f' / (2 f'^2 - r f''), cubic.
- `ours`: Halley's step on logit(f/n) - logit(k/n), which is nearly linear in c, or the
  balance step if that is longer; `_solve.py` has both, with the proofs.

**Guesses** (the second and third are the two heuristics at the end of the paper's
Appendix A, which do not have numbers):

- `zero`: c = 0.
- `quantile`: c = -x_{((n-k)/n)}, minus the (n-k)/n quantile of the row: exact in the
  limit of scores far apart, where the sigmoid is a step. It sorts.
- `logit`: c = logit(k/n) - mean(x): exact where all scores are equal.
- `both`: of these two, in each row the one with the smaller |f(c) - k|.
- `probit`: c = logit(k/n) sqrt(1 + pi var(x) / 8) - mean(x): the logit guess, corrected
  for normal scores as if the sigmoid were a normal distribution function.

**The bracket.** The paper's, +-(max|x| + logit(1 - eps)), made wider where k/n < eps
needs it; `ours` takes [logit(k/n) - max x, logit(k/n) - min x], which is proven. Every
sum narrows it. A step that would leave it becomes a bisection, and so does, once a row
has taken `PATIENCE` steps, one longer than 1 after two that did not halve the bracket. The
paper's text evaluates *both* steps and keeps the better; that doubles the sums, and takes
more iterations than its table reports (Halley from zero 7.0, published 5.8), while the
rule here reproduces the table.

**Counting.** A row is done, and frozen, at |f(c) - k| <= tolerance. An iteration is a
step: the guess is not one, the first midpoint of a bisection is. With the largest count
of the batch as the count of the batch, this is what Table 5 reports.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from khot import _solve
from khot._checks import refuse
from khot._rows import count_units, flattened

Proposal = tuple[Tensor, Tensor, Tensor]  # r, the step, and a step known to be too short

PATIENCE = 12  # more than any ordinary row takes

_WHO = "solve"


@dataclass(frozen=True)
class Solution:
    """What `solve` found; the first three have the shape of the rows.

    Attributes:
        c: the shift, float64.
        iterations: the steps taken, int32.
        converged: whether the tolerance was reached.
        errors: the largest |f(c) - k| of all rows at the guess and after each step.
    """

    c: Tensor
    iterations: Tensor
    converged: Tensor
    errors: Tensor


@torch.no_grad()
def solve(
    x: Tensor,
    k: float | Tensor,
    *,
    step: str = "ours",
    guess: str | None = None,
    tolerance: float = 1e-8,
    max_iterations: int = 200,
) -> Solution:
    r"""Return the root c of sum_i sigmoid(x_i + c) = k, and how it was reached.

    The module's docstring says what each step and guess is.

    Args:
        x: scores, rows along the last dimension; -inf masks a unit.
        k: strictly between 0 and the number of unmasked entries: a number, or a tensor
            that broadcasts to the shape of x without the last dimension.
        step: `bisection`, `newton`, `halley` or `ours`.
        guess: `zero`, `quantile`, `logit`, `both` or `probit`. None is the step's own:
            probit for ours, both for newton and halley, and for bisection, which has
            no use for another, an end of the bracket.
        tolerance: a row is done at |f(c) - k| <= tolerance, which is absolute. Where
            no float64 c gets that close, the row stops without having converged.
        max_iterations: after which all rows stop.

    Returns:
        The `Solution`, without a gradient.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, or a value is out of range.

    Example:
        >>> import torch
        >>> from khot.solvers import solve
        >>> found = solve(torch.tensor([2.0, 1.0, 0.0, -1.0]), 1.5, step="halley", guess="both")
        >>> found.c, found.iterations
        (tensor(-1.1608, dtype=torch.float64), tensor(2, dtype=torch.int32))

    References:
        Differentiable Top-k: from one-hot to k-hot, Appendix A, Table 5 and Figure 8.
    """
    _check_options(step, guess, tolerance, max_iterations)
    rows, k, tau = flattened(_WHO, x, k, 1.0, -1)
    n = count_units(_WHO, rows, k, tau)
    if bool(((k <= 0) | (k >= n)).any()):
        must = "k must be strictly between 0 and n, the number of entries above -inf"
        refuse(_WHO, must, "an end of the interval, where the root is infinite")
    s, k = rows.to(k.dtype), k.expand_as(n)
    lo, hi, c = _proven(s, k, n) if step == "ours" else _published(s, k, n)
    if guess is None and step in ("newton", "halley"):
        guess = "both"
    if guess is not None and (step, guess) != ("ours", "probit"):
        c = GUESSES[guess](s, k, n).clamp(lo, hi)
    found = _search(STEPS[step], s, k, n, c, lo, hi, tolerance, max_iterations)
    c, iterations, converged = (column.reshape(x.shape[:-1]) for column in found[:3])
    return Solution(c, iterations, converged, torch.tensor(found[3], dtype=torch.float64))


def _search(
    propose: Callable[[Tensor, Tensor, Tensor, Tensor], Proposal],
    s: Tensor,
    k: Tensor,
    n: Tensor,
    c: Tensor,
    lo: Tensor,
    hi: Tensor,
    tolerance: float,
    max_iterations: int,
) -> tuple[Tensor, Tensor, Tensor, list[float]]:
    """From the guess c in the bracket: c, iterations, converged, errors."""
    iterations = torch.zeros_like(k, dtype=torch.int32)
    stuck = torch.zeros_like(k, dtype=torch.bool)
    before = width = torch.full_like(k, math.inf)
    errors: list[float] = []
    while True:
        r, step, least = propose(s, k, n, c)
        converged = r.abs() <= tolerance
        errors.append(float(r.abs().amax()) if r.numel() else 0.0)
        done = converged | stuck
        if bool(done.all()) or len(errors) > max_iterations:
            return c, iterations, converged, errors
        lo = torch.where(r < 0, torch.maximum(lo, c), lo)
        hi = torch.where(r > 0, torch.minimum(hi, c), hi)
        reach = c + step
        good = (reach >= lo) & (reach <= hi) & ~(step.abs() < least.abs())
        step = torch.where(good, step, least)
        new = c + step
        crawls = (hi - lo > 0.5 * before) & (step.abs() > 1) & (iterations >= PATIENCE)
        before, width = width, hi - lo
        new = torch.where((new >= lo) & (new <= hi) & ~crawls, new, lo / 2 + hi / 2)
        stuck |= ~done & (new == c)
        going = ~(done | stuck)
        iterations += going
        c = torch.where(going, new, c)


def _bisection(s: Tensor, k: Tensor, _: Tensor, c: Tensor) -> Proposal:
    """No step of its own: NaN lies in no bracket."""
    r = torch.sigmoid(s + c).sum(-1, keepdim=True) - k
    nowhere = torch.full_like(r, math.nan)
    return r, nowhere, nowhere


def _newton(s: Tensor, k: Tensor, _: Tensor, c: Tensor) -> Proposal:
    p = torch.sigmoid(s + c)
    r = p.sum(-1, keepdim=True) - k
    step = -r / (p * (1 - p)).sum(-1, keepdim=True)
    return r, step, torch.full_like(r, math.nan)


def _halley(s: Tensor, k: Tensor, _: Tensor, c: Tensor) -> Proposal:
    r, f1, f2 = _derivatives(s, k, c)
    step = -2 * r * f1 / (2 * f1.square() - r * f2)
    return r, step, torch.full_like(r, math.nan)


def _ours(s: Tensor, k: Tensor, n: Tensor, c: Tensor) -> Proposal:
    r, f1, f2 = _derivatives(s, k, c)
    step = _solve._halley_step(r, f1, f2, k, n - k, n)
    least = torch.full_like(r, math.nan)
    far = _solve._rows(~(step.abs() <= 0.5))  # nearer the root balance has nothing to add
    if far.numel():
        h, low, high, _, _ = _solve._sums(s[far], c[far])
        least[far] = _solve._balance_step(h - k[far], low, high)
    return r, step, least


def _derivatives(s: Tensor, k: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """r, f' and f''."""
    p = torch.sigmoid(s + c)
    slope = p * (1 - p)
    r = p.sum(-1, keepdim=True) - k
    return r, slope.sum(-1, keepdim=True), (slope * (1 - 2 * p)).sum(-1, keepdim=True)


def _proven(s: Tensor, k: Tensor, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The bracket of `ours`, and its guess."""
    start = _solve._start(s, k, n)
    return start.lo, start.hi, start.c


def _published(s: Tensor, k: Tensor, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The paper's bracket, and its end: so bisection's first midpoint is its first step."""
    eps = torch.finfo(s.dtype).eps
    logit = (k.log() - (n - k).log()).abs().clamp(min=math.log1p(-eps) - math.log(eps))
    most = torch.where(s > -math.inf, s.abs(), 0.0).amax(-1, keepdim=True) + logit
    return -most, most, most


def _zero(_s: Tensor, k: Tensor, _n: Tensor) -> Tensor:
    return torch.zeros_like(k)


def _quantile(s: Tensor, k: Tensor, n: Tensor) -> Tensor:
    """Minus the (n-k)/n quantile of what is not masked, interpolated linearly."""
    ascending = s.sort(-1).values
    place = s.shape[-1] - n + (n - k) / n * (n - 1)  # the masked come first
    below, above = place.floor().long(), place.ceil().long()
    return -torch.lerp(ascending.gather(-1, below), ascending.gather(-1, above), place.frac())


def _logit(s: Tensor, k: Tensor, n: Tensor) -> Tensor:
    mean = torch.where(s > -math.inf, s, 0.0).sum(-1, keepdim=True) / n
    return k.log() - (n - k).log() - mean


def _both(s: Tensor, k: Tensor, n: Tensor) -> Tensor:
    quantile, logit = _quantile(s, k, n), _logit(s, k, n)
    of_quantile, of_logit = (_bisection(s, k, n, c)[0].abs() for c in (quantile, logit))
    return torch.where(of_quantile < of_logit, quantile, logit)


def _probit(s: Tensor, k: Tensor, n: Tensor) -> Tensor:
    return _solve._start(s, k, n).c


STEPS = {"bisection": _bisection, "newton": _newton, "halley": _halley, "ours": _ours}
GUESSES = {
    "zero": _zero,
    "quantile": _quantile,
    "logit": _logit,
    "both": _both,
    "probit": _probit,
}


def _check_options(step: str, guess: str | None, tolerance: float, max_iterations: int) -> None:
    if step not in STEPS:
        refuse(_WHO, f"step must be one of {', '.join(STEPS)}", repr(step))
    if step == "bisection" and guess is not None:
        refuse(_WHO, "guess must be None for bisection, which starts from its bracket", repr(guess))
    if guess is not None and guess not in GUESSES:
        refuse(_WHO, f"guess must be one of {', '.join(GUESSES)}", repr(guess))
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)):
        refuse(_WHO, "tolerance must be a number", type(tolerance).__name__, TypeError)
    if not 0 < tolerance < math.inf:
        refuse(_WHO, "tolerance must be finite and above 0", str(tolerance))
    if isinstance(max_iterations, bool) or not isinstance(max_iterations, int):
        refuse(_WHO, "max_iterations must be an integer", type(max_iterations).__name__, TypeError)
    if max_iterations < 1:
        refuse(_WHO, "max_iterations must be at least 1", str(max_iterations))
