"""The kernel of iterated Poisson sampling; see `iterated_poisson.c`."""

import ctypes

import torch
from torch import Tensor

from khot._native.library import INT32, INT64, POINTER, Kernel, threads
from khot._native.memory import address, readable
from khot._random import Source

_draw = Kernel(
    "khot_iterated_poisson",
    *(POINTER, POINTER, ctypes.c_double, POINTER),  # pi, k or null, tolerance, seeds
    *(POINTER, INT64, INT64, INT64),  # z, samples, rows, n
    *(INT64, INT32),  # rounds, threads
    restype=INT64,
)


def draw(
    pi: Tensor, k: Tensor | None, tolerance: float, source: Source, *, rounds: int
) -> Tensor | None:
    """z (S, R, n) of zeros and ones; None if torch must draw, or say what is wrong.

    Args:
        pi: rows (R, n), of which the kernel finds out the sum if k is None.
        k: what they sum to, a float64 column (R, 1).
        tolerance: how far a sum may be from a whole number, relative to it.
        source: the seeds of the rows, and how many samples.
        rounds: how many at most.
    """
    pi, seeds = readable(pi), source.seeds.contiguous()
    k = None if k is None else k.contiguous()
    z = torch.empty(source.samples, *pi.shape, dtype=pi.dtype)
    refused = _draw[pi.dtype](
        *(pi.data_ptr(), address(k), tolerance, seeds.data_ptr()),
        *(z.data_ptr(), *z.shape, rounds, threads()),
    )
    if refused < 0:
        raise MemoryError("iterated_poisson: the kernel must have memory for a row; got none")
    return None if refused else z
