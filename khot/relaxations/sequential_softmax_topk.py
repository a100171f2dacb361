r"""Sequential softmax: k softmaxes, each of what the last ones left.

From alpha^1 = x, for j = 1, ..., k,

    p^j = softmax(alpha^j / tau),    alpha^(j+1) = alpha^j + log(1 - p^j),

and the result is the sum of the p^j. Were p^j a hard choice, log(1 - p^j) would be -inf
there and 0 elsewhere: drawing without replacement.

**Stability.** The softmaxes are of b = alpha / tau, from the row's greatest down. Where one
unit takes nearly all, 1 - p cannot be had from p, which rounds to 1; but it is the sum of
the others:

    log(1 - p_i) = logsumexp_{l != i} b_l - logsumexp b,

which is taken for the greatest b. The others have p <= 1/2 and log1p(-p). Everything is
then finite and within rounding of the formula, whatever the spread: clamping 1 - p at some
small number, as published code does, is another map for scores further apart than its log.
Both logsumexps are written out about constants, so that on a CPU no bit of a row depends on
its batch (`_rows.even`, `_rows.steady`).

**Modes.** Plain calls go through the kernels, which keep nothing between forward and backward
but x. Under torch.func, forward mode and torch.compile the kernel is one opaque step without a
gradient; the rounds in torch operations then change no value, but have the derivatives.
"""

from typing import Any

import torch
from torch import Tensor

from khot import _checks
from khot._checks import refuse
from khot._native import sequential_softmax_topk as native
from khot._native.library import native_info
from khot._plain import differentiated, plain_apply, plain_arguments, refused, save, saved
from khot._rows import (
    as_rows,
    count_units,
    even,
    flattened,
    folded,
    kept,
    steady,
    unflattened,
)
from khot._scores import rounded, scaled, softmax

Number = float | Tensor


def sequential_softmax_topk(
    x: Tensor, k: int, *, tau: float | Tensor = 1.0, dim: int = -1
) -> Tensor:
    r"""Return the sum of k softmaxes, each with what was chosen before taken out.

    .. math:: p = \sum_{j=1}^k p^j, \quad p^j = \operatorname{softmax}(\alpha^j / \tau), \quad
              \alpha^1 = x, \ \alpha^{j+1} = \alpha^j + \log(1 - p^j)

    Invariant to shifts of x, k/n as tau grows, the hard top-k as tau tends to 0; softmax at
    k = 1.

    What it lacks: entries may exceed 1 (at k = n = 2 and scores far apart they are 1.5 and
    0.5); order is not kept at all temperatures, nor are all entries 1 at k = n. It is the
    top-k for small tau, not for a large spread: at tau = 1 a unit that takes a whole softmax
    falls to the level of the next, not below it, and takes half of that one too. k is one
    whole number for all rows and has no gradient. The k steps one after the other take
    O(n k) time; torch operations, if there is a gradient, O(n k) memory for each row too, and
    torch.compile unrolls them.

    Args:
        x: scores, float64, float32, bfloat16 or float16. -inf masks a unit: it
            gets exactly 0 and a gradient of exactly 0. NaN and +inf are refused.
        k: how many to choose, one whole number in [0, number of unmasked entries of each
            row].
        tau: temperature > 0, a number, or a tensor that broadcasts to the shape of x
            without `dim`.
        dim: the dimension that holds the n units.

    Returns:
        Tensor of x's shape and dtype, entries >= 0, summing to k along `dim`.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, or a value is out of range.

    Gradient:
        Exact, in x and tau, in reverse and forward mode and of any order; O(n k).

    Example:
        >>> import torch, khot
        >>> khot.sequential_softmax_topk(torch.tensor([2.0, 1.0, 0.0, -1.0]), 2)
        tensor([1.0843, 0.5841, 0.2399, 0.0917])

    References:
        Xie and Ermon (2019), Reparameterizable Subset Sampling via Continuous Relaxations,
        Algorithm 2; Plötz and Roth (2018), Neural Nearest Neighbors Networks.
    """
    return relax("sequential_softmax_topk", x, k, tau, dim)


def relax(
    who: str, x: Tensor, k: int, tau: Number, dim: int, *, instead: Tensor | None = None
) -> Tensor:
    """The map, for the public function `who`, which the messages name.

    Given `instead`, of x's shape, that is returned with the map's gradient (straight through). A
    plain call then does not compute the map, but refuses what it refuses.
    """
    steps = _whole(who, k)
    if given := plain_arguments(who, x, k, tau, dim):
        rows, _, tau = given
        value = instead if instead is None else as_rows(instead, dim)[0]
        function = _plain if differentiated(rows, tau) else _value
        return unflattened(function(rows, tau, steps, who, value), x, dim)
    rows, column, tau = flattened(who, x, k, tau, dim)
    n = count_units(who, rows, column, tau)
    p = rounded(kept(_sum(rows, tau, steps), n), x)
    if instead is not None:
        return instead + unflattened(p - p.detach(), x, dim)
    if rows.is_cpu and native_info().in_use:
        # the same bits as of a plain call
        p = _found(rows.detach(), tau.detach(), steps) + (p - p.detach())
    return unflattened(p, x, dim)


def _value(rows: Tensor, tau: Number, k: int, who: str, instead: Tensor | None) -> Tensor:
    """The map on its kernel, or `instead`."""
    p = None
    if 0 <= k <= rows.shape[-1] or len(rows) == 0:  # the kernel would cut a k of more than 64 bits
        if instead is None:
            p = native.forward(rows, k, tau)
        elif native.takes(rows, k, tau):
            p = instead
    return refused(who, rows, float(k), tau) if p is None else p


def _sum(rows: Tensor, tau: Tensor, k: int) -> Tensor:
    """The map in torch operations, in tau's dtype."""
    units = rows.shape[-1]
    rows = even(rows, -torch.inf)
    alpha, unmasked = scaled(rows, torch.ones_like(tau), centred=True)
    lowest = torch.finfo(alpha.dtype).min / 5
    p = 0 * alpha
    # of a k that is to be refused when the compiled function runs, no more steps than units
    for j in range(min(k, units)):
        b, _ = scaled(torch.where(unmasked, alpha, -torch.inf), tau, centred=True)
        p = p + softmax(b, unmasked)
        if j + 1 < k:
            alpha = (alpha + _log_rest(b, unmasked)).clamp(min=lowest)
    return p[..., :units]


class _Plain(torch.autograd.Function):
    """(x, tau) -> p on the kernel alone, as `_plain.py` has it; or another value instead."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, tau: Number, k: int, who: str, instead: Tensor | None
    ) -> Tensor:
        p = _value(x, tau, k, who, instead)
        ctx.k = k
        save(ctx, float(k), tau, x)
        return p

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, _, tau = saved(ctx, 1)
        needs_tau = ctx.needs_input_grad[1]
        if not torch.is_grad_enabled() and native.accepts(g):
            return *native.backward(g, x, ctx.k, tau, needs_tau=needs_tau), None, None, None
        twice = torch.is_grad_enabled()
        with torch.enable_grad():
            if not twice:  # what is saved is then watched by nobody
                x = x.detach().requires_grad_()
                tau = tau.detach().requires_grad_() if needs_tau else tau
            p = rounded(_sum(x, _checks.column_of(tau, x), ctx.k), x)
            wanted = [x, tau] if needs_tau else [x]
            grad_x, *grad_tau = torch.autograd.grad(p, wanted, g, create_graph=twice)
        return grad_x, grad_tau[0] if needs_tau else None, None, None, None


_plain = plain_apply(_Plain)


@torch.library.custom_op("khot::sequential_softmax_topk", mutates_args=())
def _found(x: Tensor, tau: Tensor, k: int) -> Tensor:
    """The map as one opaque step; its values have been looked at."""
    if native.accepts(x, tau) and (p := native.forward(x, k, tau)) is not None:
        return p
    return rounded(_sum(x, tau, k), x)


@_found.register_fake
def _(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


@_found.register_vmap
def _(info: Any, in_dims: tuple[int | None, ...], *given: Any) -> tuple[Any, int]:
    x, tau = folded(info.batch_size, in_dims[:2], *given[:2])
    return _found(x, tau, given[2]).unflatten(0, (info.batch_size, -1)), 0


def _whole(who: str, k: object) -> int:
    must = "k must be one whole number"
    if isinstance(k, bool) or not isinstance(k, (int, float)):
        refuse(who, must, type(k).__name__, TypeError)
    if isinstance(k, float) and not k.is_integer():
        refuse(who, must, str(k))
    return int(k)


def _log_rest(b: Tensor, unmasked: Tensor) -> Tensor:
    """log(1 - softmax(b)) of the unmasked units, 0 of the others; finite if two are unmasked."""
    least = torch.finfo(b.dtype).min
    b = b.masked_fill(~unmasked, least)
    top = b.argmax(-1, keepdim=True)
    is_top = torch.arange(b.shape[-1], device=b.device) == top
    second = b.masked_fill(is_top, least)
    at = second.detach().amax(-1, keepdim=True)
    others = at + steady(torch.log, (second - at).exp().sum(-1, keepdim=True))
    total = steady(_log_add, b.gather(-1, top), others)
    small = (b - total).masked_fill(is_top | ~unmasked, least)
    return torch.where(is_top, others - total, torch.log1p(-small.exp()))


def _log_add(a: Tensor, b: Tensor) -> Tensor:
    """log(e^a + e^b) for a not far below b, differentiable to any order also where they meet."""
    at = a.detach()
    return at + torch.log1p(torch.exp(b - at) + torch.expm1(a - at))
