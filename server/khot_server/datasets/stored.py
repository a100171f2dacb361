"""A table in files, so that an attempt has it at once.

    datasets/D/summary.json    what is known of it
    datasets/D/layout.json     which column is where, and the texts
    datasets/D/float32.bin     columns of numbers one after the other, NaN where missing
    datasets/D/float64.bin     those that float32 would change
    datasets/D/codes.bin       columns of text as places in their texts, -1 where missing

Of a text column with more than MAX_COUNTED texts nothing is stored, for nothing can use it.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from khot_server.datasets.coder import CODE, Coded
from khot_server.datasets.describe import (
    describe_numbers,
    describe_texts,
    narrowed,
    within_budget,
)
from khot_server.datasets.frame import Block, Table
from khot_server.datasets.records import Column, Pixels, Summary

DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
    "codes": CODE,
}


class TableWriter:
    """Writes a table into a new directory, column by column; durable after `finish`.

    A context: its files are closed at the end.

    Raises, in every method:
        OSError: it cannot be written.
        BadTable: a value is infinite.
    """

    def __init__(self, directory: Path, rows: int, sha256: str) -> None:
        directory.mkdir(parents=True)
        self._directory, self._rows, self._sha256 = directory, rows, sha256
        self._files: dict[str, BinaryIO] = {}
        self._names: dict[str, list[str]] = {kind: [] for kind in DTYPES}
        self._texts: dict[str, Sequence[str]] = {}
        self._columns: list[Column] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files.values():
            file.close()

    def numbers(self, name: str, values: NDArray[Any], *, boolean: bool = False) -> None:
        """Add a column of numbers, NaN where missing."""
        values = narrowed(values)
        self._columns.append(describe_numbers(name, values, boolean=boolean))
        self._add(str(values.dtype), name, values)

    def pixels(self, names: Sequence[str], values: NDArray[Any]) -> None:
        """Add columns (columns, rows) that are not described one by one."""
        values = narrowed(values)
        for name, column in zip(names, values, strict=True):
            self._add(str(values.dtype), name, column)

    def texts(self, name: str, coded: Coded) -> None:
        """Add a column of text."""
        self._columns.append(describe_texts(name, coded))
        if coded.texts is not None:
            self._texts[name] = coded.texts
            self._add("codes", name, coded.codes)

    def finish(
        self,
        *,
        target: str | None,
        example_shape: tuple[int, ...] = (),
        pixels: Pixels | None = None,
    ) -> Summary:
        """Write the rest; return the summary."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        layout = {"sha256": self._sha256, "names": self._names, "texts": self._texts}
        _write(self._directory / "layout.json", json.dumps(layout))
        summary = Summary(
            rows=self._rows,
            column_count=len(self._columns) + int(np.prod(example_shape or (0,))),
            target=target,
            columns=within_budget(self._columns, target),
            example_shape=example_shape,
            pixels=pixels,
            table_bytes=sum(path.stat().st_size for path in self._directory.iterdir()),
        )
        _write(self._directory / "summary.json", summary.to_json())
        return summary

    def _add(self, kind: str, name: str, values: NDArray[Any]) -> None:
        if kind not in self._files:
            self._files[kind] = (self._directory / f"{kind}.bin").open("wb")
        self._names[kind].append(name)
        self._files[kind].write(np.ascontiguousarray(values, DTYPES[kind]).data)


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def read_summary(directory: Path) -> Summary:
    """Return the summary of a table that `TableWriter` wrote."""
    return Summary.from_json((directory / "summary.json").read_text(encoding="utf-8"))


def read_table(directory: Path) -> Table:
    """Return a table that `TableWriter` wrote; its values are read when they are used."""
    summary = read_summary(directory)
    layout = json.loads((directory / "layout.json").read_text(encoding="utf-8"))
    names, blocks = layout["names"], {}
    for kind, dtype in DTYPES.items():
        shape = (len(names[kind]), summary.rows)
        path = directory / f"{kind}.bin"
        values = np.memmap(path, dtype, "r", shape=shape) if names[kind] else np.empty(shape, dtype)
        blocks[kind] = Block(tuple(names[kind]), values)
    codes = blocks.pop("codes")
    texts = {name: tuple(values) for name, values in layout["texts"].items()}
    return Table(summary, layout["sha256"], tuple(blocks.values()), codes, texts)
