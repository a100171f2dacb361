r"""The map p = sigmoid(x / tau + c), c such that p sums to k, in every mode of torch.

`_solve.py` says how c is found, `_implicit.py` how p is differentiated; here are the
ways that lead there: the kernel alone where nothing watches, an autograd.Function for
torch.func and forward mode, an opaque operator for torch.compile, and where torch.func is
at work inside torch.compile, torch operations about an opaque c.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from khot import _checks
from khot._implicit import backward, jvp, polished
from khot._native import sigmoid_topk as native
from khot._plain import differentiated, plain_apply, plain_arguments, refused, save, saved
from khot._rows import even, flattened, folded, functorch_active, refuse_values, unflattened
from khot._sinkhorn import sinkhorn_shift
from khot._solve import Diagnostics, Root, scale, solve_shift

Number = float | Tensor
# p (R, n), and columns: c, iterations, residual, fallback
Solved = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]

# Root finders by name: scores (R, n), k and n (R, 1) -> the root of each row.
SOLVERS: dict[str, Callable[[Tensor, Tensor, Tensor], Root]] = {
    "halley": solve_shift,
    "sinkhorn": sinkhorn_shift,
}


def relax(
    who: str, x: Tensor, k: Number, tau: Number, dim: int, *, solver: str = "halley"
) -> Tensor:
    """The map, for the public function `who`, which the messages name."""
    if solver == "halley" and (given := plain_arguments(who, x, k, tau, dim)):
        p = _plain(*given, who, None) if differentiated(*given) else native.values(*given)
        return unflattened(p, x, dim) if p is not None else refused(who, *given)
    rows, k, tau = flattened(who, x, k, tau, dim)
    return unflattened(_solve(rows, k, tau, who, solver)[0], x, dim)


def relax_with_diagnostics(
    who: str,
    x: Tensor,
    k: Number,
    tau: Number,
    dim: int,
    *,
    solver: str = "halley",
    shape: torch.Size | None = None,
) -> tuple[Tensor, Diagnostics]:
    """The same, and how each row was solved, in this shape; None: that of x without `dim`."""
    given = plain_arguments(who, x, k, tau, dim) if solver == "halley" else None
    if given is not None and not differentiated(*given):
        wanted = _rows_of(x, dim) if shape is None else shape
        p, *found = native.forward(*given, wanted) or refused(who, *given)
        return unflattened(p, x, dim), Diagnostics(*found)
    columns: list[Tensor] = []
    if given is not None:
        p = _plain(*given, who, columns)
    else:
        p, *watched = _solve(*flattened(who, x, k, tau, dim), who, solver)
        columns = [column.detach() for column in watched]
    wanted = _rows_of(x, dim) if shape is None else shape
    return unflattened(p, x, dim), Diagnostics(*(column.reshape(wanted) for column in columns))


def _rows_of(x: Tensor, dim: int) -> torch.Size:
    return x.shape[:-1] if dim == -1 else x.movedim(dim, -1).shape[:-1]


def _solve(x: Tensor, k: Tensor, tau: Tensor, who: str, solver: str) -> Solved:
    """The map and how it was solved, under any transformation."""
    if not torch.compiler.is_compiling():
        return _eager(x, k, tau, who, solver)
    # torch.compile cannot trace the search for the root, and gives up on a Function with a jvp
    if not functorch_active():
        solved: Solved = _compiled(x, k, tau, who, solver)
        return solved
    # and an opaque step has no jvp: only c is opaque, a constant that torch operations polish
    c, *columns = _shift(x.detach(), k.detach(), tau.detach(), who, solver)
    p, c = polished(x, k, tau, c)
    return p, c, *columns


class _Plain(torch.autograd.Function):
    """(x, k, tau) -> p on the kernel alone, as `_plain.py` has it.

    To `columns`, if they are wanted, it appends c, iterations, residual and fallback. For higher
    derivatives it goes the general way again.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, k: Number, tau: Number, who: str, columns: list[Tensor] | None
    ) -> Tensor:
        if columns is None:
            p, ctx.c = native.relax(x, k, tau) or refused(who, x, k, tau)
        else:
            p, *found = native.forward(x, k, tau, (len(x), 1)) or refused(who, x, k, tau)
            columns += found
            ctx.c = found[0]
        ctx.who = who
        save(ctx, k, tau, x, p)
        return p

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, p, k, tau = saved(ctx, 2)
        _, needs_k, needs_tau, *_ = ctx.needs_input_grad
        if not torch.is_grad_enabled() and native.accepts(g):
            needs = {"needs_k": needs_k, "needs_tau": needs_tau}
            return *native.backward(g, x, k, tau, ctx.c, p=p, **needs), None, None
        k, tau = _checks.column_of(k, x), _checks.column_of(tau, x)
        c = _eager(x, k, tau, ctx.who, "halley")[1] if torch.is_grad_enabled() else ctx.c
        grad_x, grad_k, grad_tau = backward(g, None, x, k, tau, c)
        return grad_x, grad_k if needs_k else None, grad_tau if needs_tau else None, None, None


_plain = plain_apply(_Plain)


class _Sigmoid(torch.autograd.Function):
    """(x, k, tau) -> (p, c, iterations, residual, fallback) for rows x (R, n), columns k and tau.

    c is a differentiable output so that backward, written with it in torch
    operations, can itself be differentiated. A column of one entry serves all
    rows. Forward always sees plain tensors (under vmap they arrive folded), so
    it may look at values and hand memory to the kernel.
    """

    @staticmethod
    def forward(x: Tensor, k: Tensor, tau: Tensor, who: str, solver: str) -> Solved:
        if solver == "halley" and native.accepts(x, k, tau):
            solved = native.forward(x, k, tau, (len(x), 1))
            if solved is not None:
                return solved
        return _forward(x, k, tau, who, solver)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Solved) -> None:
        x, k, tau, _, _ = inputs
        _, c, *others = output
        ctx.mark_non_differentiable(*others)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, k, tau, c)
        ctx.save_for_forward(x, k, tau, c)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, grad_c: Tensor | None, *_: None) -> Any:
        x, k, tau, c = ctx.saved_tensors
        if g is None and grad_c is None:
            return (None,) * 5
        differentiated = torch.is_grad_enabled() or grad_c is not None
        if g is not None and not differentiated and native.accepts(x, k, tau, c, g):
            grads = native.backward(g, x, k, tau, c, needs_tau=ctx.needs_input_grad[2])
        else:
            grads = backward(g, grad_c, x, k, tau, c)
        needed = zip(grads, ctx.needs_input_grad[:3], strict=True)
        return *(grad if needs else None for grad, needs in needed), None, None

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, dk: Tensor | None, dtau: Tensor | None, *_: None) -> Any:
        x, k, tau, c = ctx.saved_tensors
        return *jvp(dx, dk, dtau, x, k, tau, c), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
        x, k, tau = folded(info.batch_size, in_dims[:3], *inputs[:3])
        out = _eager(x, k, tau, *inputs[3:])
        return tuple(part.unflatten(0, (info.batch_size, -1)) for part in out), (0, 0, 0, 0, 0)


_eager: Callable[[Tensor, Tensor, Tensor, str, str], Solved] = _Sigmoid.apply


@torch.library.custom_op("khot::sigmoid_topk", mutates_args=())
def _compiled(
    x: Tensor, k: Tensor, tau: Tensor, who: str, solver: str
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The same map for torch.compile, which takes it as one opaque step."""
    return _Sigmoid.forward(x, k, tau, who, solver)


@_compiled.register_fake
def _(x: Tensor, k: Tensor, *_: Any) -> Solved:
    return x.new_empty(x.shape), *_columns(x, k)


def _columns(x: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Like c, iterations, residual and fallback."""
    c, residual = (x.new_empty(x.shape[0], 1, dtype=k.dtype) for _ in range(2))
    return c, c.to(torch.int32), residual, c.to(torch.bool)


_compiled.register_autograd(
    lambda ctx, g, grad_c, *_: (*backward(g, grad_c, *ctx.saved_tensors), None, None),
    setup_context=_Sigmoid.setup_context,
)


@torch.library.custom_op("khot::sigmoid_topk_shift", mutates_args=())
def _shift(
    x: Tensor, k: Tensor, tau: Tensor, who: str, solver: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """c, iterations, residual and fallback, without a gradient."""
    return _Sigmoid.forward(x, k, tau, who, solver)[1:]


@_shift.register_fake
def _(x: Tensor, k: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _columns(x, k)


@_shift.register_vmap
def _(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
    x, k, tau = folded(info.batch_size, in_dims[:3], *inputs[:3])
    out = _shift(x, k, tau, *inputs[3:])
    return tuple(part.unflatten(0, (info.batch_size, -1)) for part in out), (0, 0, 0, 0)


def _forward(x: Tensor, k: Tensor, tau: Tensor, who: str, solver: str) -> Solved:
    """The reference, in torch operations, on any device."""
    refuse_values(who, x, k, tau)
    units = x.shape[-1]
    x = even(x, -torch.inf)
    s = scale(x, tau)
    free = x > -torch.inf
    n = free.sum(-1, keepdim=True).to(k.dtype)
    k = k.expand_as(n)
    root = SOLVERS[solver](s, k, n)
    p = torch.sigmoid((s + root.c) + root.step)
    p = torch.where(k >= n, 1.0, p).masked_fill(~free | (k <= 0), 0.0)
    p = p.float() if x.dtype.itemsize < 8 else p  # half types through it, as by the kernel
    total = p.sum(-1, keepdim=True, dtype=k.dtype)
    smaller = torch.minimum(k, n - k).clamp(min=torch.finfo(k.dtype).tiny)
    residual = torch.where((k > 0) & (k < n), (total - k).abs() / smaller, 0.0)
    p = p.to(x.dtype).narrow_copy(-1, 0, units)  # no view: as the kernel and torch.compile have it
    return p, root.c + root.step, root.iterations, residual, root.bisections > 0
