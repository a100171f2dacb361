r"""The k-subset law with given marginals: theta with mu(theta) = pi.

theta minimises F(theta) = log Z(theta) - <pi, theta>, which is convex, with gradient mu - pi and
the covariance J of z as its Hessian; the law is the one of greatest entropy with these marginals
(Chen, Dempster and Liu 1994).

**Nearly always** the marginals are close to sigmoid(theta + c), and

    theta <- theta + logit(pi) - logit(mu)

gains a digit or two a step. The off-diagonal of J is negative and its rows sum to 0, so with
the diagonal D = mu (1 - mu) the matrix D^-1 J has its eigenvalues in [0, 2]: most of them
are near 1, but one at 2 (two units, k = 1) makes this step swing for ever, and one near 0 (groups
of units that hardly exchange) makes it crawl.

**Otherwise** by Newton's method: J delta = pi - mu by conjugate gradients, preconditioned with D,
at O(n) a product, and delta halved until F falls. F is convex, so that ends at the root.

**Derivatives.** mu(theta) = pi gives d theta = J^+ d pi, and J is symmetric: a cotangent of
theta is pulled back to pi by one more such solution, to the last digits. `inverse` has that.

Rows stop each by itself, are summed in an order that depends on n alone, and are filled up with
units at 0 (`_rows.even`): no bit of one depends on the others.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from khot import _checks, _ksubset
from khot._rows import even

_STEPS, _NEWTON, _HALVINGS = 25, 60, 40

RowSum = Callable[[Tensor], Tensor]  # (..., n) to (..., 1)


def inverse(who: str, pi: Tensor, k: Tensor, row_sum: RowSum) -> tuple[Tensor, Tensor]:
    """theta and k of `fit`, with the gradient of theta in pi; for `who`, if there is none, refused.

    The gradient is that of pi brought to the sum k by a factor of all odds, as `fit` has it: on
    pi that sum to k it is the one, and it does not see a step of pi off them.
    """
    theta, left, found = _inverse(even(pi, 0.0), k, row_sum)
    if not bool(found.all()):
        got = f"no theta with marginals pi in {int((~found).sum())} of {len(found)} rows"
        _checks.refuse(who, "fitted must be False for a pi that cannot be fitted", got)
    return theta[:, : pi.shape[-1]], left


class _Inverse(torch.autograd.Function):
    """(pi, k, row_sum) -> what `fit` returns; units at 0 and at 1 have no gradient."""

    @staticmethod
    def forward(pi: Tensor, k: Tensor, row_sum: RowSum) -> tuple[Tensor, Tensor, Tensor]:
        k = k.expand(len(pi), 1)
        # one row that was expanded is fitted once
        rows = slice(0, 1) if len(pi) and bool((pi == pi[:1]).all() & (k == k[:1]).all()) else ...
        theta, left, found = fit(pi[rows], k[rows], row_sum)
        return theta.expand(pi.shape), left.expand(k.shape), found.expand(len(pi))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        theta, left, found = output
        ctx.row_sum = inputs[2]
        ctx.mark_non_differentiable(left, found)
        ctx.save_for_backward(inputs[0], theta, left)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, *_: Tensor) -> Any:
        pi, theta, left = ctx.saved_tensors
        g = torch.where(theta > -torch.inf, g, 0.0)
        least = 1e-26 if g.dtype is torch.float64 else 1e-12
        d = torch.where(theta > -torch.inf, pi * (1 - pi), 0.0)
        return _conjugate_gradients(theta, left, g, d, ctx.row_sum, least), None, None


_inverse: Callable[..., tuple[Tensor, Tensor, Tensor]] = _Inverse.apply


def fit(pi: Tensor, k: Tensor, row_sum: RowSum) -> tuple[Tensor, Tensor, Tensor]:
    """theta (R, n) with marginals pi; k without its certain units; and which rows have it, (R,).

    Args:
        pi: (R, n) in the work dtype and in [0, 1], summing to k up to rounding.
        k: (R, 1), whole.
        row_sum: sums of rows, (R, 1).

    Units at 0 and at 1 get -inf: they are no part of the law.
    """
    theta, left = free(pi, k)
    theta = theta + torch.where((c := _ksubset.shift(theta, left)).isfinite(), c, 0.0)
    p = torch.sigmoid(theta)  # pi, with a sum that is k to the last bit
    tolerance = 1e-12 if pi.dtype is torch.float64 else 1e-6
    certain = ~c.isfinite().squeeze(-1)
    theta, error = _fixed_point(theta, p, left, tolerance)
    rest = (error > tolerance) & ~certain
    if bool(rest.any()):
        theta[rest], error[rest] = _newton(theta[rest], p[rest], left[rest], tolerance, row_sum)
    return theta, left, certain | (error <= tolerance)


def free(pi: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """logit(pi), -inf for the units at 0 and at 1, and k without the latter."""
    inner = (pi > 0) & (pi < 1)
    p = even(torch.where(inner, pi, 0.5), 0.5)  # so that the others get no NaN as their gradient
    logit = (p.log() - torch.log1p(-p))[..., : pi.shape[-1]]
    theta = torch.where(inner, logit, -torch.inf)
    left = k.to(pi.dtype) - (pi == 1).sum(-1, keepdim=True).to(pi.dtype)
    # sums that are whole up to rounding only may leave rounding alone to choose from
    return theta, torch.minimum(left.clamp(min=0), (theta > -torch.inf).sum(-1, keepdim=True))


def _fixed_point(theta: Tensor, p: Tensor, k: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """The best theta of some steps, and its greatest error."""
    best, least = theta.clone(), torch.full_like(p[:, 0], torch.inf)
    going = torch.arange(len(p), device=p.device)
    for _ in range(_STEPS):
        mu = _ksubset.law(theta, k[going])[0]
        error = (mu - p[going]).abs().amax(-1)
        better = error < least[going]
        best[going[better]], least[going[better]] = theta[better], error[better]
        # a step that does not gain a factor of two is no good, but for the first ones
        goes_on = (error > tolerance) & (error < 2 * least[going])
        going, theta, mu = going[goes_on], theta[goes_on], mu[goes_on]
        if not len(going):
            break
        step = torch.logit(p[going]) - torch.logit(mu)
        theta = theta + torch.where(theta > -torch.inf, step, 0.0).nan_to_num(0.0, 0.0, 0.0)
    return best, least


def _newton(
    theta: Tensor, p: Tensor, k: Tensor, tolerance: float, row_sum: RowSum
) -> tuple[Tensor, Tensor]:
    """theta and its greatest error, from any start."""
    value, mu = _objective(theta, p, k, row_sum)
    for _ in range(_NEWTON):
        r = p - mu
        error = r.abs().amax(-1, keepdim=True)
        if bool((error <= tolerance).all()):
            break
        step = _conjugate_gradients(theta, k, r, mu * (1 - mu), row_sum)
        step = torch.where(error > tolerance, step, 0.0)
        scale = torch.ones_like(error)
        for _ in range(_HALVINGS):
            new_value, new_mu = _objective(theta + scale * step, p, k, row_sum)
            # F is known to its last digits only: near the root the error decides
            fell = (new_value < value) | ((p - new_mu).abs().amax(-1, keepdim=True) < error)
            if bool((fell | (error <= tolerance)).all()):
                break
            scale = torch.where(fell, scale, scale / 2)
        theta = theta + torch.where(fell, scale, 0.0) * step
        value, mu = torch.where(fell, new_value, value), torch.where(fell, new_mu, mu)
    return theta, (p - mu).abs().amax(-1)


def _objective(theta: Tensor, p: Tensor, k: Tensor, row_sum: RowSum) -> tuple[Tensor, Tensor]:
    """F, (R, 1), and the marginals."""
    mu, rest, c = _ksubset.law(theta, k)
    t = torch.where(theta > -torch.inf, theta + c, 0.0)
    return rest + row_sum(torch.where(t > 0, t * (1 - p), -t * p)), mu


def _conjugate_gradients(
    theta: Tensor, k: Tensor, r: Tensor, d: Tensor, row_sum: RowSum, least: float = 1e-8
) -> Tensor:
    """x with J x = r and <d, x> = 0, for J does not see a constant.

    Until r D^-1 r has fallen to `least` of what it was.
    """
    c, total = _ksubset.shift(theta, k), row_sum(d)
    total = torch.where(total > 0, total, 1.0)
    inverse = torch.where(d > 0, 1 / torch.where(d > 0, d, 1.0), 0.0)
    r = r - d * (row_sum(r) / total)
    x, y = torch.zeros_like(r), inverse * r
    direction, old = y, row_sum(r * y)
    first = old
    for _ in range(min(2 * r.shape[-1], 100)):
        product = _ksubset.times_covariance(theta, k, direction, c)
        curvature = row_sum(direction * product)
        good = (curvature > 1e-14 * row_sum(d * direction.square())) & (old > least * first)
        if not bool(good.any()):
            break
        length = torch.where(good, old / torch.where(good, curvature, 1.0), 0.0)
        x, r = x + length * direction, r - length * product
        y = inverse * r
        new = row_sum(r * y)
        direction = y + torch.where(good, new / torch.where(good, old, 1.0), 0.0) * direction
        old = torch.where(good, new, 0.0)
    return torch.where(d > 0, x - row_sum(d * x) / total, 0.0)
