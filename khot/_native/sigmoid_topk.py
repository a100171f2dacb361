"""The kernels of sigmoid top-k; see `sigmoid_topk.c`."""

import torch
from torch import Tensor

from khot._native.library import INT32, INT64, POINTER, Kernel, accepts, threads

__all__ = ["accepts", "backward", "forward"]

_forward = Kernel(
    "khot_sigmoid_topk_forward",
    *(POINTER, POINTER, INT64, POINTER, INT64),  # x, k and its stride, tau and its stride
    *(POINTER, POINTER, POINTER, POINTER),  # p, c, iterations, fallback
    *(INT64, INT64, INT32),  # rows, n, threads
    restype=INT64,
)
_backward = Kernel(
    "khot_sigmoid_topk_backward",
    *(POINTER, POINTER, POINTER, INT64, POINTER, INT64, POINTER),  # g, x, k, tau, c
    *(POINTER, POINTER, POINTER),  # grad_x, grad_k, grad_tau
    *(INT64, INT64, INT32),  # rows, n, threads
)


def forward(x: Tensor, k: Tensor, tau: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """p, c, iterations and fallback; None if the values of some row must be refused."""
    rows, n = x.shape
    scores = _readable(x)
    p = torch.empty_like(scores)
    c = torch.empty(rows, 1, dtype=torch.float64)
    iterations = torch.empty(rows, 1, dtype=torch.int32)
    fallback = torch.empty(rows, 1, dtype=torch.bool)
    refused = _forward[scores.dtype](
        scores.data_ptr(),
        *_column(k),
        *_column(tau),
        p.data_ptr(),
        c.data_ptr(),
        iterations.data_ptr(),
        fallback.data_ptr(),
        rows,
        n,
        threads(),
    )
    return None if refused else (p.to(x.dtype), c, iterations, fallback)


def backward(
    g: Tensor, x: Tensor, k: Tensor, tau: Tensor, c: Tensor, *, needs_tau: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The cotangents of x, k and, if it is needed, tau."""
    rows, n = x.shape
    scores, g = _readable(x), _readable(g)
    grad_x = torch.empty_like(scores)
    grad_k, grad_tau = torch.empty_like(c), torch.empty_like(c) if needs_tau else None
    _backward[scores.dtype](
        g.data_ptr(),
        scores.data_ptr(),
        *_column(k),
        *_column(tau),
        c.data_ptr(),
        grad_x.data_ptr(),
        grad_k.data_ptr(),
        None if grad_tau is None else grad_tau.data_ptr(),
        rows,
        n,
        threads(),
    )
    if grad_tau is not None:
        grad_tau = grad_tau.sum_to_size(tau.shape)
    return grad_x.to(x.dtype), grad_k.sum_to_size(k.shape), grad_tau


def _readable(rows: Tensor) -> Tensor:
    """Contiguous, half types as float32."""
    dtype = rows.dtype if rows.dtype.itemsize >= 4 else torch.float32
    return rows.to(dtype).contiguous()


def _column(column: Tensor) -> tuple[int, int]:
    """Address and stride of a float64 column; one entry serves all rows."""
    return column.data_ptr(), 0 if column.shape[0] == 1 else column.stride(0)
