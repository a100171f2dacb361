"""The kernel of the k largest; see `largest.c`."""

import math

import torch
from torch import Tensor

from khot._native.library import INT32, INT64, POINTER, Kernel, accepts, threads

__all__ = ["accepts", "largest"]

_largest = Kernel(
    "khot_largest",
    *(POINTER, POINTER, INT64),  # x, k, how many k there are
    *(INT64, INT64, POINTER, INT32),  # rows, n, z, threads
)


def largest(x: Tensor, k: Tensor) -> Tensor:
    """Zeros and ones like x (S, R, n), float64 or float32, for k (R, 1) or (1, 1), int64."""
    x, k = x.contiguous(), k.contiguous()
    z = torch.empty_like(x)
    *rows, n = x.shape
    sizes = (k.data_ptr(), k.numel())
    _largest[x.dtype](x.data_ptr(), *sizes, math.prod(rows), n, z.data_ptr(), threads())
    return z
