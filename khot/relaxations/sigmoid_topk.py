r"""Sigmoid top-k: the k-hot softmax.

For scores s = x / tau, the map is p = sigmoid(s + c) with the one shift c that
makes the entries sum to k. Implicit differentiation of sum_i p_i = k, with
d = p (1 - p), S = sum_i d_i and w = d / S, gives

    dp_i = d_i (ds_i - <w, ds>) + w_i dk,        dc = -<w, ds> + dk / S,

so for a cotangent g of p, with m = <w, g>,

    grad_s = d (g - m),   grad_k = m,   grad_x = grad_s / tau,
    grad_tau = -<grad_s, s> / tau = -<grad_s, s + c> / tau

(the entries of grad_s sum to 0, and s + c does not lose digits at an offset).
The weights w = softmax(log d) stay defined where every d underflows, and tend to
softmax(s) as k -> 0 and to softmax(-s) as k -> n, which are the values taken
there. d itself is 0 at both ends, and so are the gradients in x and tau.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from khot import _checks
from khot._native import sigmoid_topk as native
from khot._solve import Diagnostics, scale, solve_shift

_WHO = "sigmoid_topk"


def sigmoid_topk(
    x: Tensor, k: float | Tensor, *, tau: float | Tensor = 1.0, dim: int = -1
) -> Tensor:
    r"""Return the soft k-hot vector sigmoid(x / tau + c), c such that it sums to k.

    .. math:: p = \sigma(x / \tau + c), \qquad \sum_i p_i = k

    It is the maximiser of <x, p> + tau sum_i H(p_i) over the k-capped simplex,
    with H the binary entropy: order-preserving, invariant to shifts of x, k/n as
    tau grows, the hard top-k as tau tends to 0, all zeros at k = 0 and all ones
    at k = n. The root c is found in about 3 sums over the row, whatever n.

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
        Exact, by implicit differentiation, in x, k and tau, in reverse and
        forward mode and of any order; O(n). At k = 0 and k = n it is 0 in x and
        tau, and in k the one-sided limit softmax(x / tau) or softmax(-x / tau).

    Example:
        >>> import torch, khot
        >>> khot.sigmoid_topk(torch.tensor([2.0, 1.0, 0.0, -1.0]), 2)
        tensor([0.8176, 0.6225, 0.3775, 0.1824])

    References:
        Differentiable Top-k: from one-hot to k-hot, Equations 9 to 11,
        Propositions 1 and 2.
    """
    return _solved(x, k, tau, dim)[0]


def sigmoid_topk_with_diagnostics(
    x: Tensor, k: float | Tensor, *, tau: float | Tensor = 1.0, dim: int = -1
) -> tuple[Tensor, Diagnostics]:
    """Return `sigmoid_topk` of the same arguments, and how each row was solved."""
    p, c, iterations, fallback = _solved(x, k, tau, dim)
    rows = x.movedim(dim, -1)
    n = (rows > -torch.inf).sum(-1)
    total = p.detach().movedim(dim, -1).sum(-1, dtype=_checks.work_dtype(x))
    wanted = torch.as_tensor(k, device=x.device).detach().to(total.dtype).expand(total.shape)
    scale = torch.minimum(wanted, n - wanted).clamp(min=torch.finfo(total.dtype).tiny)
    residual = torch.where((wanted > 0) & (wanted < n), (total - wanted).abs() / scale, 0.0)
    return p, Diagnostics(c.detach(), iterations, residual, fallback)


def _solved(
    x: Tensor, k: float | Tensor, tau: float | Tensor, dim: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Flatten to rows, solve, and give p the shape of x and the rest that of its rows."""
    x = _checks.check_scores(_WHO, x, dim)
    units_last = x.movedim(dim, -1)
    rows = units_last.shape[:-1]
    # torch.compile cannot trace the search for the root, and gives up on a Function with a jvp
    solve = _compiled if torch.compiler.is_compiling() else _eager
    p, *per_row = solve(
        units_last.reshape(-1, x.shape[dim]),
        _checks.per_row(_WHO, "k", k, x, rows),
        _checks.per_row(_WHO, "tau", tau, x, rows),
    )
    c, iterations, fallback = (column.reshape(rows) for column in per_row)
    return p.reshape(units_last.shape).movedim(-1, dim), c, iterations, fallback


class _SigmoidTopk(torch.autograd.Function):
    """(x, k, tau) -> (p, c, iterations, fallback) for rows x (R, n), columns k and tau.

    c is a differentiable output so that backward, written with it in torch
    operations, can itself be differentiated. A column of one entry serves all
    rows. Forward always sees plain tensors (under vmap they arrive folded), so
    it may look at values and hand memory to the kernel.
    """

    @staticmethod
    def forward(x: Tensor, k: Tensor, tau: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if native.accepts(x, k, tau):
            solved = native.forward(x, k, tau)
            if solved is not None:
                return solved
        return _forward(x, k, tau)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        x, k, tau = inputs
        _, c, iterations, fallback = output
        ctx.mark_non_differentiable(iterations, fallback)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, k, tau, c)
        ctx.save_for_forward(x, k, tau, c)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, grad_c: Tensor | None, *_: None) -> Any:
        x, k, tau, c = ctx.saved_tensors
        if g is None and grad_c is None:
            return None, None, None
        differentiated = torch.is_grad_enabled() or grad_c is not None
        if g is not None and not differentiated and native.accepts(x, k, tau, c, g):
            needs_tau = ctx.needs_input_grad[2]
            grads = native.backward(g, x, k, tau, c, needs_tau=needs_tau)
        else:
            grads = _backward(g, grad_c, x, k, tau, c)
        return tuple(
            grad if needed else None
            for grad, needed in zip(grads, ctx.needs_input_grad, strict=True)
        )

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, dk: Tensor | None, dtau: Tensor | None) -> Any:
        x, k, tau, c = ctx.saved_tensors
        return *_jvp(dx, dk, dtau, x, k, tau, c), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], x: Tensor, k: Tensor, tau: Tensor) -> Any:
        batch = info.batch_size
        x = x.movedim(in_dims[0], 0) if in_dims[0] is not None else x.expand(batch, *x.shape)
        rows = x.shape[1]

        def fold(column: Tensor, dim: int | None) -> Tensor:
            if dim is None and column.shape == (1, 1):
                return column
            column = column.unsqueeze(0) if dim is None else column.movedim(dim, 0)
            return column.expand(batch, rows, 1).flatten(0, 1)

        out = _eager(x.flatten(0, 1), fold(k, in_dims[1]), fold(tau, in_dims[2]))
        return tuple(part.unflatten(0, (batch, rows)) for part in out), (0, 0, 0, 0)


_eager: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]] = _SigmoidTopk.apply


@torch.library.custom_op("khot::sigmoid_topk", mutates_args=())
def _compiled(x: Tensor, k: Tensor, tau: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same map for torch.compile, which takes it as one opaque step."""
    return _SigmoidTopk.forward(x, k, tau)


@_compiled.register_fake
def _(x: Tensor, k: Tensor, _tau: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    column = x.new_empty(x.shape[0], 1, dtype=k.dtype)
    return x.new_empty(x.shape), column, column.to(torch.int32), column.to(torch.bool)


_compiled.register_autograd(
    lambda ctx, g, grad_c, *_: _backward(g, grad_c, *ctx.saved_tensors),
    setup_context=_SigmoidTopk.setup_context,
)


def _forward(x: Tensor, k: Tensor, tau: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The reference, in torch operations, on any device."""
    _refuse_values(x, k, tau)
    s = scale(x, tau)
    free = x > -torch.inf
    n = free.sum(-1, keepdim=True).to(k.dtype)
    k = k.expand_as(n)
    root = solve_shift(s, k, n)
    p = torch.sigmoid((s + root.c) + root.step)
    p = torch.where(k >= n, 1.0, p).masked_fill(~free | (k <= 0), 0.0)
    p = p.to(x.dtype).contiguous()  # as the kernel and torch.compile have it
    return p, root.c + root.step, root.iterations, root.bisections > 0


def _backward(
    g: Tensor | None, grad_c: Tensor | None, x: Tensor, k: Tensor, tau: Tensor, c: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The cotangents of x, k and tau, by the formulas of the module docstring."""
    t, c, d, w = _slopes(x, k, tau, c)
    grad_s, grad_k = torch.zeros_like(t), torch.zeros_like(c)
    grad_tau = torch.zeros_like(c)
    if g is not None:
        g = g.to(t.dtype)
        grad_k = (w * g).sum(-1, keepdim=True)
        grad_s = d * (g - grad_k)
    if grad_c is not None:
        grad_s = grad_s - w * grad_c
        total = d.sum(-1, keepdim=True)
        grad_k = grad_k + torch.where(total > 0, grad_c / torch.where(total > 0, total, 1.0), 0.0)
        grad_tau = -c * grad_c / tau
    grad_tau = grad_tau - (grad_s * t).sum(-1, keepdim=True) / tau
    return (
        (grad_s / tau).to(x.dtype),
        grad_k.sum_to_size(k.shape),
        grad_tau.sum_to_size(tau.shape),
    )


def _jvp(
    dx: Tensor | None,
    dk: Tensor | None,
    dtau: Tensor | None,
    x: Tensor,
    k: Tensor,
    tau: Tensor,
    c: Tensor,
) -> tuple[Tensor, Tensor]:
    """The tangents of p and c, by the formulas of the module docstring."""
    t, c, d, w = _slopes(x, k, tau, c)
    ds = torch.zeros_like(t)
    if dx is not None:
        ds = ds + dx.to(t.dtype) / tau
    if dtau is not None:
        ds = ds - (t - c) * dtau / tau
    mean = (w * ds).sum(-1, keepdim=True)
    dp, dc = d * (ds - mean), -mean
    if dk is not None:
        total = d.sum(-1, keepdim=True)
        dp = dp + w * dk
        dc = dc + torch.where(total > 0, dk / torch.where(total > 0, total, 1.0), 0.0)
    return dp.to(x.dtype), dc


def _slopes(x: Tensor, k: Tensor, tau: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """t = s + c, c (both finite everywhere), d = p (1 - p) and w = d / sum d."""
    free = x > -torch.inf
    s = scale(torch.where(free, x, 0.0), tau)
    empty, full = k <= 0, k >= free.sum(-1, keepdim=True)
    c = torch.where(empty | full, 0.0, c)
    t = s + c
    log_d = -t.abs() - 2 * torch.log1p(torch.exp(-t.abs()))
    log_w = torch.where(empty, t, torch.where(full, -t, log_d))
    # the least finite number, not -inf: a row that is all masked must not give NaN
    log_w = log_w.masked_fill(~free, torch.finfo(t.dtype).min)
    w = torch.softmax(log_w, -1).masked_fill(~free, 0.0)
    d = log_d.exp().masked_fill(~free | empty | full, 0.0)
    return t.masked_fill(~free, 0.0), c, d, w


def _refuse_values(x: Tensor, k: Tensor, tau: Tensor) -> None:
    """Refuse what only the values show; one look at the device when all is well."""
    n = (x > -torch.inf).sum(-1, keepdim=True)
    bad_x = (x.isnan() | (x == torch.inf)).any(-1, keepdim=True)
    bad_k = ~((k >= 0) & (k <= n))
    bad_tau = ~((tau > 0) & (tau < torch.inf))
    if not bool((bad_x | bad_k | bad_tau).any()):
        return
    of = f"of {x.shape[0]} rows"
    if bad_x.any():
        _checks.refuse(
            _WHO, "x must hold finite numbers or -inf", f"NaN or +inf in {int(bad_x.sum())} {of}"
        )
    if bad_tau.any():
        got = f"{float(tau)}" if tau.numel() == 1 else f"another value in {int(bad_tau.sum())} {of}"
        _checks.refuse(_WHO, "tau must be finite and above 0", got)
    got = f"another value in {int(bad_k.sum())} {of}"
    if k.numel() == 1:
        got = f"k = {float(k):g} for n = {int(n.min())}"
    _checks.refuse(_WHO, "k must be in [0, n], n the number of entries above -inf", got)
