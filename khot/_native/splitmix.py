"""The kernel of the seeds of rows; see `splitmix.c`."""

import torch
from torch import Tensor

from khot._native.library import INT64, POINTER, Kernel, accepts
from khot._native.memory import address

__all__ = ["accepts", "row_seeds"]

_row_seeds = Kernel(
    "khot_row_seeds",
    *(POINTER, POINTER, POINTER, INT64, POINTER),  # seeds, rows, first, items, out
    suffixes={torch.int64: "_i64"},
)


def row_seeds(seeds: Tensor, rows: Tensor, first: Tensor | None, total: int) -> Tensor:
    """The seeds of all rows of the items, (total,), for int64 (I,); `total` is what rows sum to."""
    seeds, rows = seeds.contiguous(), rows.contiguous()
    first = None if first is None else first.contiguous()
    out = torch.empty(total, dtype=torch.int64)
    given = (seeds.data_ptr(), rows.data_ptr(), address(first))
    _row_seeds[torch.int64](*given, len(seeds), out.data_ptr())
    return out
