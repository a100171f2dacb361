r"""Renormalised sigmoids (NCPSS): sigmoids, scaled so that they sum to k.

With p = sigmoid(x / tau), q = 1 - p, P = sum p and Q = sum q = n - P, either the p are
shrunk towards 0 or the q are:

    P >= k:  pi = k p / P,            P < k:  pi = 1 - (n - k) q / Q.

Both keep order and stay in [0, 1], and at P = k both are p.

**Stable forms.** Where all scores are far below 0 every p underflows, and so does every q
far above; p / P = softmax(log p) and q / Q = softmax(log q) do not. The second form loses
the digits of a small pi to the 1; there it is the sum of two terms >= 0,

    pi = p + (k - P) q / Q,

which in turn would lose order near 1. So that one is taken below 1/2, and the other above.

**Gradient.** With w = p / P and v = q / Q, both softmaxes, and g the cotangent of pi, that of
x / tau is

    P >= k:  k w_i q_i (g_i - <g, w>),        P < k:  (n - k) v_i p_i (g_i - <g, v>),

and that of k is <g, w> or <g, v>.

**Modes.** Plain calls go through the kernels, which keep nothing between forward and backward
but x. Under torch.func, forward mode and torch.compile the kernel is one opaque step without a
gradient; the same in torch operations then changes no value, but has the derivatives.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from khot import _checks
from khot._native import renorm_sigmoid_topk as native
from khot._native.library import native_info
from khot._plain import differentiated, plain_apply, plain_arguments, refused, save, saved
from khot._rows import count_units, even, flattened, folded, unflattened
from khot._scores import rounded, scaled, softmax

Number = float | Tensor


def renorm_sigmoid_topk(
    x: Tensor, k: float | Tensor, *, tau: float | Tensor = 1.0, dim: int = -1
) -> Tensor:
    r"""Return sigmoid(x / tau), scaled towards 0 or towards 1 so that it sums to k.

    .. math:: \pi = k \frac{p}{P} \text{ if } P \ge k, \text{ else }
              1 - (n - k) \frac{1 - p}{n - P}, \qquad p = \sigma(x / \tau), \ P = \sum_i p_i

    In closed form: order-preserving, k/n as tau grows, all zeros at k = 0 and all ones at
    k = n, and no more than sigmoid(x / tau) if that already sums to k.

    What it lacks: a shift of x changes the result, and far from 0 on either side it is k/n
    whatever the scores; as tau tends to 0 it is not the top-k but spreads k over the positive
    scores (or fills all of them, and spreads the rest over the others); and the gradient jumps
    where the sigmoids sum to k.

    Args:
        x: scores, float64, float32, bfloat16 or float16. -inf masks a unit: it
            gets exactly 0 and a gradient of exactly 0. NaN and +inf are refused.
        k: how many to choose, in [0, number of unmasked entries], not
            necessarily whole: a number, or a tensor that broadcasts to the shape
            of x without `dim`.
        tau: temperature > 0, a number or a tensor like k.
        dim: the dimension that holds the n units.

    Returns:
        Tensor of x's shape and dtype, entries in [0, 1], summing to k along `dim`.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, or a value is out of range.

    Gradient:
        Exact, in x, k and tau, in reverse and forward mode and of any order; O(n). Where the
        sigmoids sum to exactly k the two forms agree in value but not in slope, and it is
        that of the first. At k = 0 and k = n it is 0 in x and tau.

    Example:
        >>> import torch, khot
        >>> khot.renorm_sigmoid_topk(torch.tensor([2.0, 1.0, 0.0, -1.0]), 2)
        tensor([0.7399, 0.6141, 0.4200, 0.2259])

    References:
        Pervez, Lippe and Gavves (2023), Scalable Subset Sampling with Neural Conditional
        Poisson Networks.
    """
    return relax("renorm_sigmoid_topk", x, k, tau, dim)


def relax(who: str, x: Tensor, k: Number, tau: Number, dim: int) -> Tensor:
    """The map, for the public function `who`, which the messages name."""
    if given := plain_arguments(who, x, k, tau, dim):
        pi = _plain(*given, who) if differentiated(*given) else _value(*given, who)
        return unflattened(pi, x, dim)
    rows, k, tau = flattened(who, x, k, tau, dim)
    pi = rounded(_map(rows, k, tau, count_units(who, rows, k, tau)), x)
    if rows.is_cpu and native_info().in_use:
        # the same bits as of a plain call
        pi = _found(rows.detach(), k.detach(), tau.detach()) + (pi - pi.detach())
    return unflattened(pi, x, dim)


def _value(rows: Tensor, k: Number, tau: Number, who: str) -> Tensor:
    """The map on its kernel."""
    pi = native.forward(rows, k, tau)
    return refused(who, rows, k, tau) if pi is None else pi


def _map(rows: Tensor, k: Tensor, tau: Tensor, n: Tensor) -> Tensor:
    """The map in torch operations, in tau's dtype; n of the units are unmasked."""
    s, unmasked = scaled(even(rows, -torch.inf), tau, centred=False)
    p = torch.sigmoid(s).masked_fill(~unmasked, 0.0)
    total = p.sum(-1, keepdim=True)
    shrunk = k * softmax(logsigmoid(s), unmasked)
    left_out = softmax(logsigmoid(-s), unmasked)
    grown = 1 - (n - k) * left_out
    grown = torch.where(grown > 0.5, grown, p + (k - total) * left_out)
    pi = torch.where((total >= k) & (k < n), shrunk, grown).masked_fill(~unmasked, 0.0)
    pi = pi - (pi - 1).clamp(min=0.0).detach()  # rounding may pass 1; the gradient is right
    return pi[..., : rows.shape[-1]]


def _units(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """How many are unmasked, (R, 1), in rows whose values have been looked at."""
    return (rows > -torch.inf).sum(-1, keepdim=True).to(dtype)


class _Plain(torch.autograd.Function):
    """(x, k, tau) -> pi on the kernel alone, as `_plain.py` has it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: Number, tau: Number, who: str) -> Tensor:
        pi = _value(x, k, tau, who)
        save(ctx, k, tau, x)
        return pi

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, k, tau = saved(ctx, 1)
        needs, twice = ctx.needs_input_grad[:3], torch.is_grad_enabled()
        if not twice and native.accepts(g):
            return *native.backward(g, x, k, tau, needs_k=needs[1], needs_tau=needs[2]), None
        given = x, _checks.column_of(k, x), _checks.column_of(tau, x)
        if not twice:  # what is saved is then watched by nobody
            given = tuple(v.detach().requires_grad_(w) for v, w in zip(given, needs, strict=True))
        wanted = [value for value, needed in zip(given, needs, strict=True) if needed]
        with torch.enable_grad():
            x, k, tau = given
            pi = rounded(_map(x, k, tau, _units(x, k.dtype)), x)
            grads = iter(torch.autograd.grad(pi, wanted, g, create_graph=twice))
        return *(next(grads) if needed else None for needed in needs), None


_plain = plain_apply(_Plain)


@torch.library.custom_op("khot::renorm_sigmoid_topk", mutates_args=())
def _found(x: Tensor, k: Tensor, tau: Tensor) -> Tensor:
    """The map as one opaque step; its values have been looked at."""
    if native.accepts(x, k, tau) and (pi := native.forward(x, k, tau)) is not None:
        return pi
    return rounded(_map(x, k, tau, _units(x, k.dtype)), x)


@_found.register_fake
def _(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


@_found.register_vmap
def _(info: Any, in_dims: tuple[int | None, ...], *given: Tensor) -> tuple[Tensor, int]:
    pi = _found(*folded(info.batch_size, in_dims, *given))
    return pi.unflatten(0, (info.batch_size, -1)), 0
