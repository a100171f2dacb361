"""A table in memory, or mapped from files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from khot_server.datasets.coder import CODE
from khot_server.datasets.describe import Numbers, number_texts
from khot_server.datasets.records import Summary


@dataclass(frozen=True)
class Block:
    """Columns of one dtype: values (columns, rows)."""

    names: tuple[str, ...]
    values: NDArray[Any]


@dataclass(frozen=True)
class Table:
    """A whole table.

    Attributes:
        sha256: tells it from all others.
        blocks: the columns of numbers, NaN where missing.
        codes: the columns of text, as places in `texts`, -1 where missing.
    """

    summary: Summary
    sha256: str
    blocks: tuple[Block, ...]
    codes: Block = field(default_factory=lambda: Block((), np.empty((0, 0), CODE)))
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def matrix(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Return the columns of these names, which are numbers, as (rows, columns)."""
        out = np.empty((self.summary.rows, len(names)), dtype=np.float32)
        place = {name: i for i, name in enumerate(names)}
        for block in self.blocks:
            here = [i for i, name in enumerate(block.names) if name in place]
            there = [place[block.names[i]] for i in here]
            out[:, _run(there)] = block.values[_run(here)].T
        return out

    def numbers(self, name: str) -> Numbers:
        """Return a column of numbers."""
        (values,) = (
            block.values[block.names.index(name)] for block in self.blocks if name in block.names
        )
        return np.asarray(values)

    def classes(self, name: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """Return a column without missing values as classes from 0, and their texts."""
        column = self.summary.by_name[name]
        if not column.is_number:
            codes = self.codes.values[self.codes.names.index(name)]
            return codes.astype(np.int64), self.texts[name]
        found, places = np.unique(self.numbers(name), return_inverse=True)
        return places.astype(np.int64), tuple(number_texts(found, column.type))


def _run(places: list[int]) -> slice | list[int]:
    """As a slice, if they are one: that copies several times faster."""
    if places and places == list(range(places[0], places[0] + len(places))):
        return slice(places[0], places[0] + len(places))
    return places
