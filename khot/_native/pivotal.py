"""The kernel of the pivotal method; see `pivotal.c`."""

import ctypes

import torch
from torch import Tensor

from khot._native.library import INT32, INT64, POINTER, Kernel, threads
from khot._random import Source

_draw = Kernel(
    "khot_pivotal",
    *(POINTER, POINTER, ctypes.c_double, POINTER),  # pi, k or null, tolerance, seeds
    *(POINTER, INT64, INT64, INT64),  # z, samples, rows, n
    *(INT32, INT32),  # stateful, threads
    restype=INT64,
)


def draw(
    pi: Tensor, k: Tensor | None, tolerance: float, source: Source, *, stateful: bool = False
) -> Tensor | None:
    """z (S, R, n) of zeros and ones; None if the values of some row must be refused.

    Args:
        pi: rows (R, n), of which the kernel finds out the sum if k is None.
        k: what they sum to, a float64 column (R, 1).
        tolerance: how far a sum may be from a whole number, relative to it.
        source: the seeds of the rows, and how many samples.
        stateful: draw from a generator with a state instead, for the benchmark.
    """
    rows, n = pi.shape
    pi = pi.float() if pi.dtype.itemsize < 4 else pi.contiguous()
    seeds = source.seeds.contiguous()
    k = None if k is None else k.contiguous()
    z = torch.empty(source.samples, rows, n, dtype=pi.dtype)
    refused = _draw[pi.dtype](
        pi.data_ptr(),
        None if k is None else k.data_ptr(),
        tolerance,
        seeds.data_ptr(),
        z.data_ptr(),
        source.samples,
        rows,
        n,
        stateful,
        threads(),
    )
    if refused < 0:
        raise MemoryError("pivotal: the kernel must have memory for its rows; got none")
    return None if refused else z
