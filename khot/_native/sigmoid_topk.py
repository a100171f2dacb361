"""The kernels of sigmoid top-k; see `sigmoid_topk.c`.

k and tau are float64 columns (R, 1), or one entry or number for all rows.
"""

import torch
from torch import Tensor

from khot._native.library import INT32, INT64, POINTER, Kernel, accepts, threads
from khot._native.memory import Number, address, column, readable, summed

__all__ = ["accepts", "backward", "forward", "relax"]

_forward = Kernel(
    "khot_sigmoid_topk_forward",
    *(POINTER, POINTER, INT64, POINTER, INT64),  # x, k and its stride, tau and its stride
    *(POINTER, POINTER, POINTER, POINTER),  # p, c, iterations, fallback
    *(INT64, INT64, INT32),  # rows, n, threads
    restype=INT64,
)
_backward = Kernel(
    "khot_sigmoid_topk_backward",
    *(POINTER, POINTER, POINTER),  # g, x, p
    *(POINTER, INT64, POINTER, INT64, POINTER),  # k, tau, c
    *(POINTER, POINTER, POINTER),  # grad_x, grad_k, grad_tau
    *(INT64, INT64, INT32),  # rows, n, threads
)


def relax(x: Tensor, k: Number, tau: Number) -> tuple[Tensor, Tensor] | None:
    """p and c; None if the values of some row must be refused."""
    return _solved(x, k, tau, None, None)


def forward(x: Tensor, k: Number, tau: Number) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """p, c, iterations and fallback; None if the values of some row must be refused."""
    iterations = torch.empty(x.shape[0], 1, dtype=torch.int32)
    fallback = torch.empty(x.shape[0], 1, dtype=torch.bool)
    solved = _solved(x, k, tau, iterations, fallback)
    return None if solved is None else (*solved, iterations, fallback)


def _solved(
    x: Tensor, k: Number, tau: Number, iterations: Tensor | None, fallback: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    rows, n = x.shape
    scores = readable(x)
    p, c = torch.empty_like(scores), torch.empty((rows, 1), dtype=torch.float64)
    refused = _forward[scores.dtype](
        scores.data_ptr(),
        *column(k),
        *column(tau),
        p.data_ptr(),
        c.data_ptr(),
        address(iterations),
        address(fallback),
        rows,
        n,
        threads(),
    )
    return None if refused else (p if p.dtype is x.dtype else p.to(x.dtype), c)


def backward(
    g: Tensor,
    x: Tensor,
    k: Number,
    tau: Number,
    c: Tensor,
    *,
    p: Tensor | None = None,
    needs_k: bool = True,
    needs_tau: bool = True,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The cotangents of x and, if they are needed, k and tau; quicker if p is at hand."""
    rows, n = x.shape
    scores, g = readable(x), readable(g)
    grad_x = torch.empty_like(scores)
    grad_k = torch.empty_like(c) if needs_k else None
    grad_tau = torch.empty_like(c) if needs_tau else None
    _backward[scores.dtype](
        g.data_ptr(),
        scores.data_ptr(),
        address(p if p is not None and p.dtype is scores.dtype else None),
        *column(k),
        *column(tau),
        c.data_ptr(),
        grad_x.data_ptr(),
        address(grad_k),
        address(grad_tau),
        rows,
        n,
        threads(),
    )
    return (
        grad_x if grad_x.dtype is x.dtype else grad_x.to(x.dtype),
        summed(grad_k, k),
        summed(grad_tau, tau),
    )
