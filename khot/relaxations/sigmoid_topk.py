r"""Sigmoid top-k: the k-hot softmax.

For scores s = x / tau, the map is p = sigmoid(s + c) with the one shift c that makes
the entries sum to k. `_solve.py` says how c is found, `_implicit.py` how p is
differentiated; here are the ways that lead there: the kernel alone where nothing
watches, an autograd.Function for torch.func, an opaque operator for torch.compile.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from khot import _checks
from khot._implicit import backward, jvp
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
    rows, k, tau = _flattened(x, k, tau, dim)
    if not _transformed() and native.accepts(rows, k, tau):
        p = _plain(rows, k, tau)
    else:
        p = _solve(rows, k, tau)[0]
    return _unflattened(p, x, dim)


def sigmoid_topk_with_diagnostics(
    x: Tensor, k: float | Tensor, *, tau: float | Tensor = 1.0, dim: int = -1
) -> tuple[Tensor, Diagnostics]:
    """Return `sigmoid_topk` of the same arguments, and how each row was solved."""
    rows, k, tau = _flattened(x, k, tau, dim)
    p, *columns = _solve(rows, k, tau)
    c, iterations, fallback = (column.squeeze(-1) for column in columns)
    n = (rows > -torch.inf).sum(-1)
    wanted, total = k.detach().squeeze(-1).expand(n.shape), p.detach().sum(-1, dtype=k.dtype)
    scale = torch.minimum(wanted, n - wanted).clamp(min=torch.finfo(k.dtype).tiny)
    residual = torch.where((wanted > 0) & (wanted < n), (total - wanted).abs() / scale, 0.0)
    shape = x.movedim(dim, -1).shape[:-1]
    found = (column.reshape(shape) for column in (c.detach(), iterations, residual, fallback))
    return _unflattened(p, x, dim), Diagnostics(*found)


def _flattened(
    x: Tensor, k: float | Tensor, tau: float | Tensor, dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Check the arguments; return x as rows (R, n), k and tau as columns."""
    x = _checks.check_scores(_WHO, x, dim)
    units_last = x.movedim(dim, -1)
    shape = units_last.shape[:-1]
    k, tau = (_checks.per_row(_WHO, name, v, x, shape) for name, v in (("k", k), ("tau", tau)))
    return units_last.reshape(-1, x.shape[dim]), k, tau


def _unflattened(rows: Tensor, x: Tensor, dim: int) -> Tensor:
    """Rows (R, n) in the shape of x."""
    return rows.reshape(x.movedim(dim, -1).shape).movedim(-1, dim)


def _solve(x: Tensor, k: Tensor, tau: Tensor) -> tuple[Tensor, ...]:
    """p, c, iterations and fallback, under any transformation."""
    # torch.compile cannot trace the search for the root, and gives up on a Function with a jvp
    return _compiled(x, k, tau) if torch.compiler.is_compiling() else _eager(x, k, tau)


def _transformed() -> bool:
    """Whether torch.compile, torch.func or forward mode is at work."""
    return torch.compiler.is_compiling() or _functorch_active() or _dual_level() >= 0


# Private to torch; were they to go, every call takes the general way.
_functorch_active: Callable[[], bool] = getattr(
    torch._C, "_are_functorch_transforms_active", lambda: True
)


def _dual_level() -> int:
    return getattr(torch.autograd.forward_ad, "_current_level", 0)


class _Plain(torch.autograd.Function):
    """(x, k, tau) -> p on the kernel alone, in a quarter of the time of the general way.

    In the old form, without setup_context, whose binding of arguments costs more than a
    small row; so it knows no transformation, and for higher derivatives it goes the
    general way again.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: Tensor, tau: Tensor) -> Tensor:
        solved = native.forward(x, k, tau)
        if solved is None:
            solved = _forward(x, k, tau)  # which refuses
        p, ctx.c, _, _ = solved
        ctx.save_for_backward(x, k, tau)
        return p

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, k, tau = ctx.saved_tensors
        if not torch.is_grad_enabled() and native.accepts(x, k, tau, g):
            return native.backward(g, x, k, tau, ctx.c, needs_tau=ctx.needs_input_grad[2])
        c = _eager(x, k, tau)[1] if torch.is_grad_enabled() else ctx.c
        return backward(g, None, x, k, tau, c)


# The C++ method itself: Function.apply around it only serves transformations.
_plain: Callable[[Tensor, Tensor, Tensor], Tensor] = super(torch.autograd.Function, _Plain).apply


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
            grads = backward(g, grad_c, x, k, tau, c)
        return tuple(
            grad if needed else None
            for grad, needed in zip(grads, ctx.needs_input_grad, strict=True)
        )

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, dk: Tensor | None, dtau: Tensor | None) -> Any:
        x, k, tau, c = ctx.saved_tensors
        return *jvp(dx, dk, dtau, x, k, tau, c), None, None

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
    lambda ctx, g, grad_c, *_: backward(g, grad_c, *ctx.saved_tensors),
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
