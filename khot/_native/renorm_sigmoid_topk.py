"""The kernels of renormalised sigmoids; see `renorm_sigmoid_topk.c`.

k and tau are float64 columns (R, 1), or one entry or number for all rows.
"""

import torch
from torch import Tensor

from khot._native.library import INT32, INT64, POINTER, Kernel, accepts, threads
from khot._native.memory import Number, address, column, readable, summed

__all__ = ["accepts", "backward", "forward"]

_forward = Kernel(
    "khot_renorm_sigmoid_topk_forward",
    *(POINTER, POINTER, INT64, POINTER, INT64),  # x, k and its stride, tau and its stride
    POINTER,  # pi
    *(INT64, INT64, INT32),  # rows, n, threads
    restype=INT64,
)
_backward = Kernel(
    "khot_renorm_sigmoid_topk_backward",
    *(POINTER, POINTER, POINTER, INT64, POINTER, INT64),  # g, x, k and its stride, tau and its
    *(POINTER, POINTER, POINTER),  # grad_x, grad_k, grad_tau
    *(INT64, INT64, INT32),  # rows, n, threads
)


def forward(x: Tensor, k: Number, tau: Number) -> Tensor | None:
    """pi; None if the values of some row must be refused."""
    scores = readable(x)
    pi = torch.empty_like(scores)
    refused = _forward[scores.dtype](
        *(scores.data_ptr(), *column(k), *column(tau)),
        *(pi.data_ptr(), *x.shape, threads()),
    )
    return None if refused else pi.to(x.dtype)


def backward(
    g: Tensor,
    x: Tensor,
    k: Number,
    tau: Number,
    *,
    needs_k: bool = True,
    needs_tau: bool = True,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The cotangents of x and, if they are needed, k and tau."""
    scores, g = readable(x), readable(g)
    grad_x = torch.empty_like(scores)
    grad_k, grad_tau = (
        x.new_empty(len(x), 1, dtype=torch.float64) if needed else None
        for needed in (needs_k, needs_tau)
    )
    _backward[scores.dtype](
        *(g.data_ptr(), scores.data_ptr(), *column(k), *column(tau)),
        *(grad_x.data_ptr(), address(grad_k), address(grad_tau), *x.shape, threads()),
    )
    return grad_x.to(x.dtype), summed(grad_k, k), summed(grad_tau, tau)
