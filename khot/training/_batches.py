"""Which examples each step of a training has."""

import torch
from torch import Tensor

from khot._random import Source, row_seeds

# So many bytes of examples are gathered at once: one look-up serves many small batches, and what
# is gathered stays in a processor's cache.
_AT_ONCE = 2**21


class Batches:
    """The examples of each step: in an epoch all of them once, in an order of its own.

    Args:
        seed: of the orders.
        size: of a batch; the last one of an epoch may be smaller.
        parts: what belongs to an example, (m, ...) each.

    Attributes:
        per_epoch: how many there are.
    """

    def __init__(self, seed: int, size: int, *parts: Tensor) -> None:
        self._seed, self._size, self._parts = seed, size, parts
        self._m = len(parts[0])
        self.per_epoch = -(-self._m // size)
        each = sum(part[0].nbytes for part in parts)
        self._together = max(1, _AT_ONCE // max(1, each * size))  # batches
        self._gathered: tuple[int, int] | None = None  # epoch, and which of its blocks
        self._batches: list[tuple[Tensor, ...]] = []
        self._epoch, self._order = -1, torch.empty(0)

    def __getitem__(self, step: int) -> tuple[Tensor, ...]:
        """The parts of the examples of step `step`, from 0."""
        epoch, batch = divmod(step, self.per_epoch)
        block, place = divmod(batch, self._together)
        if self._gathered != (epoch, block):
            rows = self._order_of(epoch).split(self._size * self._together)[block]
            parts = (part.index_select(0, rows).split(self._size) for part in self._parts)
            self._batches, self._gathered = list(zip(*parts, strict=True)), (epoch, block)
        return self._batches[place]

    def _order_of(self, epoch: int) -> Tensor:
        if epoch != self._epoch:
            order = shuffled(self._seed, self._m, epoch=epoch)
            self._epoch, self._order = epoch, order.to(self._parts[0].device)
        return self._order


def shuffled(seed: int, m: int, *, epoch: int = 0) -> Tensor:
    """Return 0, ..., m - 1 in a random order, int64 on the CPU: the same on every machine."""
    return Source(row_seeds(seed, 1, first=epoch)).permutations(m)[0, 0]
