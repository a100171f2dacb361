"""The kernels of sigmoid top-k; see `sigmoid_topk.c`.

k and tau are float64 columns (R, 1), or one entry or number for all rows.
"""

import torch
from torch import Tensor

from khot._native.library import INT32, INT64, POINTER, Kernel, accepts, threads
from khot._native.memory import Number, address, column, readable, summed

__all__ = ["accepts", "backward", "forward", "relax", "values"]

_forward = Kernel(
    "khot_sigmoid_topk_forward",
    *(POINTER, POINTER, INT64, POINTER, INT64),  # x, k and its stride, tau and its stride
    *(POINTER, POINTER, POINTER, POINTER, POINTER),  # p, c, iterations, residual, fallback
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


def values(x: Tensor, k: Number, tau: Number) -> Tensor | None:
    """p; None if the values of some row must be refused."""
    return _solved(x, k, tau)


def relax(x: Tensor, k: Number, tau: Number) -> tuple[Tensor, Tensor] | None:
    """p and c; None if the values of some row must be refused."""
    c = torch.empty((x.shape[0], 1), dtype=torch.float64)
    p = _solved(x, k, tau, c)
    return None if p is None else (p, c)


def forward(
    x: Tensor, k: Number, tau: Number, shape: tuple[int, ...]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor] | None:
    """p and, a row each, in this shape, c, iterations, residual and fallback.

    None if the values of some row must be refused.
    """
    c = torch.empty(shape, dtype=torch.float64)
    residual = torch.empty_like(c)
    iterations = torch.empty_like(c, dtype=torch.int32)
    fallback = torch.empty_like(c, dtype=torch.bool)
    p = _solved(x, k, tau, c, iterations, residual, fallback)
    return None if p is None else (p, c, iterations, residual, fallback)


def _solved(
    x: Tensor,
    k: Number,
    tau: Number,
    c: Tensor | None = None,
    iterations: Tensor | None = None,
    residual: Tensor | None = None,
    fallback: Tensor | None = None,
) -> Tensor | None:
    rows, n = x.shape
    scores = readable(x)
    p = torch.empty_like(scores)
    refused = _forward[scores.dtype](
        scores.data_ptr(),
        *column(k),
        *column(tau),
        p.data_ptr(),
        address(c),
        address(iterations),
        address(residual),
        address(fallback),
        rows,
        n,
        threads(),
    )
    if refused:
        return None
    return p if p.dtype is x.dtype else p.to(x.dtype)


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
