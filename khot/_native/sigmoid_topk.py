"""The kernels of sigmoid top-k; see `sigmoid_topk.c`.

k and tau are float64 columns (R, 1), or one entry or number for all rows.
"""

import ctypes

import torch
from torch import Tensor

from khot._native.library import INT32, INT64, POINTER, Kernel, accepts, threads

__all__ = ["accepts", "backward", "forward", "relax"]

Number = float | Tensor

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
    scores = _readable(x)
    p, c = torch.empty_like(scores), torch.empty((rows, 1), dtype=torch.float64)
    refused = _forward[scores.dtype](
        scores.data_ptr(),
        *_column(k),
        *_column(tau),
        p.data_ptr(),
        c.data_ptr(),
        _address(iterations),
        _address(fallback),
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
    scores, g = _readable(x), _readable(g)
    grad_x = torch.empty_like(scores)
    grad_k = torch.empty_like(c) if needs_k else None
    grad_tau = torch.empty_like(c) if needs_tau else None
    _backward[scores.dtype](
        g.data_ptr(),
        scores.data_ptr(),
        _address(p if p is not None and p.dtype is scores.dtype else None),
        *_column(k),
        *_column(tau),
        c.data_ptr(),
        grad_x.data_ptr(),
        _address(grad_k),
        _address(grad_tau),
        rows,
        n,
        threads(),
    )
    return (
        grad_x if grad_x.dtype is x.dtype else grad_x.to(x.dtype),
        _summed(grad_k, k),
        _summed(grad_tau, tau),
    )


def _readable(rows: Tensor) -> Tensor:
    """Contiguous, half types as float32."""
    return rows.float() if rows.dtype.itemsize < 4 else rows.contiguous()


def _column(column: Number) -> tuple[object, int]:
    """Address and stride of a float64 column; one entry serves all rows."""
    if isinstance(column, Tensor):
        return column.data_ptr(), 0 if column.shape[0] == 1 else column.stride(0)
    return ctypes.byref(ctypes.c_double(column)), 0


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _summed(grad: Tensor | None, column: Number) -> Tensor | None:
    """Summed over the rows that one entry served."""
    if grad is None or not isinstance(column, Tensor):
        return None
    return grad if grad.shape == column.shape else grad.sum_to_size(column.shape)
