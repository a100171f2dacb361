r"""The map y = clip(t, 0, 1)^m, t = (x - nu) / tau, nu such that y sums to k, in every mode.

m = 1 / (p - 1) is 1 or 3; `cube` says which. The sum f is monotone in nu, so nu is a root.

**What is summed.** With h = #{t_i > 1/2}, each unit enters with whichever of y and 1 - y
is small: f - k = (h - k) + sum_{t_i <= 1/2} y_i - sum_{t_i > 1/2} (1 - y_i), so that
nothing cancels.

**The search.** With an `anchor` among the scores,

    t = (x - anchor) / tau + d

and d is searched for: Newton's step if it stays in the bracket (from the greatest score
out to the least one capped), else its middle; the bracket halves at least every third step.
It starts from d of normal scores (clip(t)^m is the distribution function of the largest of m
uniform variables U, so f / n is that of x - tau U). For m = 1, f is piecewise linear and Newton's
step ends the search once it stays on a piece. For m = 3 the step is taken on the cube root of
f while few units take part, which is linear for one.

The anchor follows: it becomes the least score with t >= 0. There x - anchor is exact, and a
unit that takes part is a sum of two terms >= 0: neither an offset of x nor a small k costs
digits, not in float32 either. What sums about a far anchor got wrong widens the bracket.

**Derivatives.** Only the free units, 0 < t < 1, move. With r = m t^(m-1) there, S = sum r and
w = r / S,

    dy_i = r_i (ds_i - <w, ds>) + w_i dk,    ds = dx / tau - t dtau / tau,

so for a cotangent g of y, with a = <w, g>: grad_x = r (g - a) / tau, grad_k = a and
grad_tau = -<grad_x, t>. Where no unit is free (k whole and a gap of tau about the threshold,
or k = 0 or n) the first two are 0 and w is shared by the greatest scores with y = 0, the
derivative for k growing, or at k = n by the least scores, that for k falling.

**Modes.** Plain calls go through the kernels. Under torch.func, forward mode and
torch.compile the search is one opaque step without a gradient. Newton's step from its d,
in torch operations, then changes no value but has the derivatives of the root: all of them
for m = 1; each step doubles the order of contact, so two give three orders for m = 3.
"""

from typing import Any

import torch
from torch import Tensor

from khot import _checks
from khot._native import sparse_topk as native
from khot._plain import differentiated, plain_apply, plain_arguments, refused, save, saved
from khot._rows import flattened, folded, refuse_spread, refuse_values, unflattened
from khot._sparse_solve import solve

Number = float | Tensor
Found = tuple[Tensor, Tensor, Tensor]  # y (R, n), and columns: c = -anchor, d


def relax(who: str, x: Tensor, k: Number, tau: Number, dim: int, *, cube: bool) -> Tensor:
    """The map, for the public function `who`, which the messages name."""
    if given := plain_arguments(who, x, k, tau, dim):
        if differentiated(*given):
            return unflattened(_plain(*given, cube, who), x, dim)
        y, *_ = native.forward(*given, cube) or refused(who, *given)
        return unflattened(y, x, dim)
    rows, k, tau = flattened(who, x, k, tau, dim)
    y, c, d = _found(rows.detach(), k.detach(), tau.detach(), cube, who)
    moves = _Free(rows, k, tau, c, d, cube).values(k)
    y = y + (moves - moves.detach()).to(y.dtype)
    return unflattened(y, x, dim)


class _Plain(torch.autograd.Function):
    """(x, k, tau) -> y on the kernel alone, as `_plain.py` has it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: Number, tau: Number, cube: bool, who: str) -> Tensor:
        y, ctx.c, ctx.d = native.forward(x, k, tau, cube) or refused(who, x, k, tau)
        ctx.cube = cube
        save(ctx, k, tau, x)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, k, tau = saved(ctx, 1)
        _, needs_k, needs_tau, _, _ = ctx.needs_input_grad
        if not torch.is_grad_enabled() and native.accepts(g):
            needs = {"needs_k": needs_k, "needs_tau": needs_tau}
            return *native.backward(g, x, k, tau, ctx.c, ctx.d, ctx.cube, **needs), None, None
        k, tau = _checks.column_of(k, x), _checks.column_of(tau, x)
        grads = _Free(x, k, tau, ctx.c, ctx.d, ctx.cube).pull_back(g)
        needed = zip(grads, (True, needs_k, needs_tau), strict=True)
        return *(grad if needs else None for grad, needs in needed), None, None


_plain = plain_apply(_Plain)


@torch.library.custom_op("khot::sparse_topk", mutates_args=())
def _found(
    x: Tensor, k: Tensor, tau: Tensor, cube: bool, who: str
) -> tuple[Tensor, Tensor, Tensor]:
    """The search as one opaque step; it sees plain tensors and refuses their values."""
    if native.accepts(x, k, tau) and (found := native.forward(x, k, tau, cube)) is not None:
        return found
    refuse_values(who, x, k, tau)
    refuse_spread(who, x)
    return solve(x, k, tau, cube)


@_found.register_fake
def _(x: Tensor, k: Tensor, *_: Any) -> Found:
    c, d = (x.new_empty(x.shape[0], 1, dtype=k.dtype) for _ in range(2))
    return x.new_empty(x.shape), c, d


@_found.register_vmap
def _(info: Any, in_dims: tuple[int | None, ...], *given: Any) -> tuple[Any, tuple[int, ...]]:
    x, k, tau = folded(info.batch_size, in_dims[:3], *given[:3])
    found = _found(x, k, tau, *given[3:])
    return tuple(part.unflatten(0, (info.batch_size, -1)) for part in found), (0, 0, 0)


class _Free:
    """The units that move, about a root (c, d); all in torch operations."""

    def __init__(self, x: Tensor, k: Tensor, tau: Tensor, c: Tensor, d: Tensor, cube: bool) -> None:
        unmasked = x > -torch.inf
        t = (x.detach().to(tau.dtype) + c) / tau.detach() + d
        self.free = (t > 0) & (t < 1)
        self.capped = (t >= 1).sum(-1, keepdim=True)
        self.dtype, self.tau, self.cube = x.dtype, tau, cube
        # where nothing is free nothing may pass, not even 0 * inf of a subnormal tau
        self.a = torch.where(self.free, x, 0.0).to(tau.dtype) + torch.where(self.free, c, 0.0)
        self.k_shape, self.d = k.shape, d
        for _ in range(2 if cube else 1):
            self.d = self._newton(k)
        scores = x.detach()
        below = torch.where(unmasked & (t <= 0), scores, -torch.inf).amax(-1, keepdim=True)
        least = torch.where(unmasked, scores, torch.inf).amin(-1, keepdim=True)
        edge = (scores == torch.where(below > -torch.inf, below, least)) & unmasked
        self.edge = edge / edge.sum(-1, keepdim=True).clamp(min=1).to(tau.dtype)

    def _rates(self) -> tuple[Tensor, Tensor, Tensor]:
        """t and m t^(m-1) of the free units, 0 elsewhere, and the sum of the latter."""
        t = torch.where(self.free, self.a / self.tau + self.d, 0.0)
        rate = 3 * t.square() if self.cube else self.free.to(t.dtype)
        return t, rate, rate.sum(-1, keepdim=True)

    def _newton(self, k: Tensor) -> Tensor:
        """d after Newton's step, the same number with one more derivative."""
        t, _, total = self._rates()
        y = t.pow(3) if self.cube else t
        missing = (k - self.capped) - y.sum(-1, keepdim=True)
        return self.d + torch.where(total > 0, missing / torch.where(total > 0, total, 1.0), 0.0)

    def values(self, k: Tensor) -> Tensor:
        """What has the derivatives of y; its value does not matter."""
        t, _, total = self._rates()
        y = t.pow(3) if self.cube else t
        return torch.where(total > 0, y, self.edge * (k - k.detach()))

    def pull_back(self, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The cotangents of x, k and tau, by the formulas of the module docstring."""
        t, rate, total = self._rates()
        g = g.to(t.dtype)
        w = torch.where(total > 0, rate / torch.where(total > 0, total, 1.0), self.edge)
        grad_k = (w * g).sum(-1, keepdim=True)
        grad_x = rate * (g - grad_k) / self.tau
        grad_tau = -(grad_x * t).sum(-1, keepdim=True)
        return (
            grad_x.to(self.dtype),
            grad_k.sum_to_size(self.k_shape),
            grad_tau.sum_to_size(self.tau.shape),
        )
