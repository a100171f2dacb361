"""The kernel of Gumbel noise; see `gumbel.c`."""

import torch
from torch import Tensor

from khot._native.library import INT32, INT64, POINTER, Kernel, accepts, threads

__all__ = ["accepts", "fill"]

_fill = Kernel(
    "khot_gumbel",
    *(POINTER, INT64, INT64, INT64),  # seeds, samples, rows, n
    *(POINTER, INT32),  # out, threads
)


def fill(seeds: Tensor, samples: int, n: int, dtype: torch.dtype) -> Tensor:
    """The noise (S, R, n) in float64 or float32."""
    seeds = seeds.contiguous()
    out = torch.empty(samples, len(seeds), n, dtype=dtype)
    _fill[dtype](seeds.data_ptr(), samples, len(seeds), n, out.data_ptr(), threads())
    return out
