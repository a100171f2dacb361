"""The engine's look at a slot: the arrays of a batch as tensors over shared memory."""

from itertools import accumulate, pairwise

import torch
from torch import Tensor

from khot import seeds_of_items
from khot_server.messages import ITEM_BYTES, BatchRequest, unit_dtype

_DTYPES = {
    "k": torch.float64,
    "tau": torch.float64,
    "gradient_k": torch.float64,
    "gradient_tau": torch.float64,
    "residual": torch.float64,
    "iterations": torch.int32,
    "counts": torch.int32,
    "bits": torch.uint8,
}
_OF_UNITS = ("scores", "pi", "gradient")


class Slot:
    """A batch in its slot."""

    def __init__(self, request: BatchRequest, memory: memoryview) -> None:
        self.request, self.memory, self.layout = request, memory, request.layout
        self.ends = [0, request.rows]
        if request.items > 1:
            self.ends = list(accumulate(self.table[:, 0].tolist(), initial=0))

    @property
    def table(self) -> Tensor:
        """(rows, seed, first) of each item."""
        words = ITEM_BYTES // 8 * self.request.items
        return torch.frombuffer(self.memory, dtype=torch.int64, count=words).view(-1, 3)

    def rows(self, item: int | None = None) -> "Rows":
        """The rows of one item, or of all."""
        return Rows(self, range(len(self.ends) - 1) if item is None else range(item, item + 1))

    def array(self, name: str, start: int, stop: int) -> Tensor:
        """These rows of an array, flat."""
        at, width = self.layout[name]
        dtype = _DTYPES.get(name) or getattr(torch, self.request.call.dtype)
        return torch.frombuffer(
            self.memory,
            dtype=dtype,
            count=(stop - start) * width // dtype.itemsize,
            offset=at + start * width,
        )


class Rows:
    """The rows of some items, which follow each other.

    Attributes:
        pulled: the inputs that gradients are for, which there are.
    """

    def __init__(self, slot: Slot, items: range) -> None:
        self._slot, self._items, self._call = slot, items, slot.request.call
        self._start, self._stop = slot.ends[items.start], slot.ends[items.stop]
        names = ("cotangent", "losses", "baseline") if self._call.pulled else ()
        self.pulled = [name for name in names if name in slot.layout]

    def __getitem__(self, name: str) -> Tensor:
        """An array of one value, or one of each unit, for each row."""
        flat = self._slot.array(name, self._start, self._stop)
        return flat.view(-1, self._call.n) if name in _OF_UNITS else flat

    def seeds(self) -> Tensor:
        """From the item's seed and the row's place in it, so that batching changes nothing."""
        table = self._slot.table[self._items.start : self._items.stop]
        return seeds_of_items(table[:, 1], table[:, 0], table[:, 2])

    def drawn(self, name: str) -> Tensor:
        """An array with the samples, if there are some, before the rows."""
        parts = [self._of_item(name, start, stop) for start, stop in self._spans()]
        return parts[0] if len(parts) == 1 else torch.cat(parts, self._rows_dim)

    def write_drawn(self, name: str, values: Tensor) -> None:
        """Write such an array."""
        if self._call.samples is None:
            target = self._of_item(name, self._start, self._stop)
            target.copy_(values.view(target.shape))
            return
        for start, stop in self._spans():
            part = values[:, start - self._start : stop - self._start]
            self._of_item(name, start, stop).copy_(part)

    def write_units(self, values: Tensor) -> None:
        """Write which units are chosen, and how many in each row."""
        chosen, dtype = values.cpu() != 0, unit_dtype(self._call.n)
        for start, stop in self._spans():
            part = chosen[..., start - self._start : stop - self._start, :]
            self._of_item("counts", start, stop).copy_(part.sum(-1))
            units = part.nonzero()[:, -1].numpy().astype(dtype)
            at, width = self._slot.layout["units"]
            at += start * width
            self._slot.memory[at : at + units.nbytes] = units.tobytes()

    @property
    def _rows_dim(self) -> int:
        return 0 if self._call.samples is None else 1

    def _spans(self) -> list[tuple[int, int]]:
        """The rows of each item."""
        return list(pairwise(self._slot.ends[self._items.start : self._items.stop + 1]))

    def _of_item(self, name: str, start: int, stop: int) -> Tensor:
        """Rows of one array that lie together, the samples of all of them one after another."""
        call = self._call
        rows = stop - start
        shape: tuple[int, ...] = (rows,) if call.samples is None else (call.samples, rows)
        if name not in ("losses", "baseline", "counts"):
            shape += (-1,) if call.ranks is None else (call.n, call.ranks)
        return self._slot.array(name, start, stop).view(shape)
