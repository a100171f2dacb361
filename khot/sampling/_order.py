"""Order sampling: the k units with the smallest ranking variables win.

Ties must be broken, and always in the same way, or a draw could depend on the batch it
is in. So rankings are compared as integers that have the unit's index in their lowest
bits: no two are equal, and every sort and every topk agree.
"""

import torch
from torch import Tensor


def smallest(ranking: Tensor, k: Tensor) -> Tensor:
    """Whether a unit has one of the k smallest rankings, ties going to the lower index.

    Args:
        ranking: (S, R, n), at least 0, inf allowed. Of float64, the lowest
            ceil(log2 n) of the 52 bits are not looked at.
        k: (R, 1), int64.
    """
    n = ranking.shape[-1]
    most = int(k.max()) if k.numel() else 0
    keys = _distinct(ranking)
    unit = keys.topk(most, largest=False).values & _mask(ranking)
    wins = torch.arange(most, device=k.device) < k
    z = torch.zeros_like(ranking, dtype=torch.bool)
    return z.scatter_(-1, unit, wins.expand(unit.shape)) if n else z


def _distinct(ranking: Tensor) -> Tensor:
    """Integers in the order of the floats, which for positive ones is that of their bits."""
    index = torch.arange(ranking.shape[-1], device=ranking.device)
    if ranking.dtype == torch.float64:
        return (ranking.view(torch.int64) & ~_mask(ranking)) | index
    return (ranking.view(torch.int32).to(torch.int64) << 31) | index


def _mask(ranking: Tensor) -> int:
    """Ones where the keys have the index."""
    if ranking.dtype == torch.float64:
        return (1 << (ranking.shape[-1] - 1).bit_length()) - 1
    return 2**31 - 1
