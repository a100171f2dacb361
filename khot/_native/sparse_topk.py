"""The kernels of sparse top-k; see `sparse_topk.c`.

k and tau are float64 columns (R, 1), or one entry or number for all rows.
"""

import torch
from torch import Tensor

from khot._native.library import INT32, INT64, POINTER, Kernel, accepts, threads
from khot._native.memory import Number, address, column, readable, summed

__all__ = ["accepts", "backward", "forward"]

_forward = Kernel(
    "khot_sparse_topk_forward",
    *(POINTER, POINTER, INT64, POINTER, INT64, INT32),  # x, k and its stride, tau and its, cube
    *(POINTER, POINTER, POINTER),  # y, c, d
    *(INT64, INT64, INT32),  # rows, n, threads
    restype=INT64,
)
_backward = Kernel(
    "khot_sparse_topk_backward",
    *(POINTER, POINTER, POINTER, INT64, INT32),  # g, x, tau and its stride, cube
    *(POINTER, POINTER),  # c, d
    *(POINTER, POINTER, POINTER),  # grad_x, grad_k, grad_tau
    *(INT64, INT64, INT32),  # rows, n, threads
)


def forward(x: Tensor, k: Number, tau: Number, cube: bool) -> tuple[Tensor, Tensor, Tensor] | None:
    """y, c and d; None if the values of some row must be refused."""
    rows, n = x.shape
    scores = readable(x)
    y = torch.empty_like(scores)
    c, d = (torch.empty(rows, 1, dtype=torch.float64) for _ in range(2))
    refused = _forward[scores.dtype](
        scores.data_ptr(),
        *column(k),
        *column(tau),
        cube,
        y.data_ptr(),
        c.data_ptr(),
        d.data_ptr(),
        rows,
        n,
        threads(),
    )
    return None if refused else (y.to(x.dtype), c, d)


def backward(
    g: Tensor,
    x: Tensor,
    k: Number,
    tau: Number,
    c: Tensor,
    d: Tensor,
    cube: bool,
    *,
    needs_k: bool = True,
    needs_tau: bool = True,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The cotangents of x and, if they are needed, k and tau."""
    rows, n = x.shape
    scores, g = readable(x), readable(g)
    grad_x = torch.empty_like(scores)
    grad_k = torch.empty_like(c) if needs_k else None
    grad_tau = torch.empty_like(c) if needs_tau else None
    _backward[scores.dtype](
        g.data_ptr(),
        scores.data_ptr(),
        *column(tau),
        cube,
        c.data_ptr(),
        d.data_ptr(),
        grad_x.data_ptr(),
        address(grad_k),
        address(grad_tau),
        rows,
        n,
        threads(),
    )
    return grad_x.to(x.dtype), summed(grad_k, k), summed(grad_tau, tau)
