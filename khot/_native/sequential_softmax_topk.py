"""The kernels of sequential softmax; see `sequential_softmax_topk.c`.

tau is a float64 column (R, 1), or one entry or number for all rows.
"""

import torch
from torch import Tensor

from khot._native.library import INT32, INT64, POINTER, Kernel, accepts, threads
from khot._native.memory import Number, address, column, readable, summed

__all__ = ["accepts", "backward", "forward", "takes"]

_forward = Kernel(
    "khot_sequential_softmax_topk_forward",
    *(POINTER, INT64, POINTER, INT64),  # x, k, tau and its stride
    POINTER,  # y or null
    *(INT64, INT64, INT32),  # rows, n, threads
    restype=INT64,
)
_backward = Kernel(
    "khot_sequential_softmax_topk_backward",
    *(POINTER, POINTER, INT64, POINTER, INT64),  # g, x, k, tau and its stride
    *(POINTER, POINTER),  # grad_x, grad_tau
    *(INT64, INT64, INT32),  # rows, n, threads
    restype=INT64,
)


def forward(x: Tensor, k: int, tau: Number) -> Tensor | None:
    """The sum of k softmaxes; None if the values of some row must be refused.

    Raises:
        MemoryError: there is none for three rows of float64.
    """
    scores = readable(x)
    y = torch.empty_like(scores)
    return y.to(x.dtype) if _takes(scores, k, tau, y) else None


def takes(x: Tensor, k: int, tau: Number) -> bool:
    """Whether `forward` would not refuse the values of any row."""
    return _takes(readable(x), k, tau, None)


def _takes(scores: Tensor, k: int, tau: Number, y: Tensor | None) -> bool:
    refused = _forward[scores.dtype](
        scores.data_ptr(), k, *column(tau), address(y), *scores.shape, threads()
    )
    _refuse_starvation(refused)
    return not refused


def backward(
    g: Tensor, x: Tensor, k: int, tau: Number, *, needs_tau: bool = True
) -> tuple[Tensor, Tensor | None]:
    """The cotangents of x and, if it is needed, tau.

    Raises:
        MemoryError: there is none for some rows of float64, k or the root of it.
    """
    scores, g = readable(x), readable(g)
    grad_x = torch.empty_like(scores)
    grad_tau = x.new_empty(len(x), 1, dtype=torch.float64) if needs_tau else None
    _refuse_starvation(
        _backward[scores.dtype](
            *(g.data_ptr(), scores.data_ptr(), k, *column(tau)),
            *(grad_x.data_ptr(), address(grad_tau), *x.shape, threads()),
        )
    )
    return grad_x.to(x.dtype), summed(grad_tau, tau)


def _refuse_starvation(answer: int) -> None:
    if answer < 0:
        raise MemoryError("sequential_softmax_topk: can't allocate memory for the rounds of a row")
