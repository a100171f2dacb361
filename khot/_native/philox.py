"""The kernels of the random numbers; see `philox.c`."""

import torch
from torch import Tensor

from khot._native.library import INT32, INT64, POINTER, Kernel, accepts, threads

__all__ = ["accepts", "fill"]

_fill = Kernel(
    "khot_philox",
    *(POINTER, INT64, INT64, INT64, INT64),  # seeds, samples, rows, count, block
    *(POINTER, INT32),  # out, threads
    suffixes={torch.float64: "_f64", torch.int64: "_i64"},
)


def fill(seeds: Tensor, samples: int, count: int, block: int, dtype: torch.dtype) -> Tensor:
    """The numbers (S, R, count) from `block` on: float64 in (0, 1), or int64 words."""
    seeds = seeds.contiguous()
    out = torch.empty(samples, len(seeds), count, dtype=dtype)
    _fill[dtype](seeds.data_ptr(), samples, len(seeds), count, block, out.data_ptr(), threads())
    return out
