"""Columns of values, and what is told of each."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from khot_server.datasets.coder import Coded
from khot_server.datasets.records import MAX_COUNTED, BadTable, Column, ColumnType

Numbers = NDArray[np.floating[Any]]  # float32 or float64

MAX_CLASSES = 100  # that are listed
MAX_CLASSES_BYTES = 1 << 20  # of all columns; beyond it they are not listed
MAX_TOLD = 100  # characters of a text where it is an example
TARGETS = ("target", "label", "class", "y")


def narrowed(values: NDArray[Any]) -> Numbers:
    """Return the numbers as float32 if none changes by that, else as float64."""
    if values.dtype == np.float32:
        return values
    wide = values.astype(np.float64, copy=False)
    with np.errstate(over="ignore"):  # then it is not equal
        narrow = wide.astype(np.float32)
    same = (narrow == wide) | np.isnan(wide)
    return narrow if same.all() else wide


def describe_numbers(name: str, values: Numbers, *, boolean: bool = False) -> Column:
    """Return the summary of a column of numbers, of which NaN are missing.

    Raises:
        BadTable: a value is infinite.
    """
    infinite = np.isinf(values)
    if infinite.any():
        row = int(infinite.argmax())
        raise BadTable(f"column {name!r}: must be finite; got {values[row]} in row {row + 1}")
    present = values[~np.isnan(values)]
    missing = len(values) - len(present)
    if not len(present):
        return Column(name=name, type=ColumnType.FLOAT, missing=missing, distinct=0)
    found, counts = np.unique(present, return_counts=True)
    kind = _kind(found, boolean)
    least = int(counts.argmin())
    listed = found if len(found) <= MAX_CLASSES else found[:0]
    (rarest,) = number_texts(found[least : least + 1], kind)
    return Column(
        name=name,
        type=kind,
        missing=missing,
        distinct=min(len(found), MAX_COUNTED + 1),
        min=float(found[0]),
        max=float(found[-1]),
        mean=float(present.mean(dtype=np.float64)),
        classes=tuple(number_texts(listed, kind)),
        rarest=(rarest, int(counts[least])) if len(found) <= MAX_COUNTED else None,
    )


def _kind(found: Numbers, boolean: bool) -> ColumnType:
    if boolean:
        return ColumnType.BOOLEAN
    return ColumnType.INTEGER if (found == np.floor(found)).all() else ColumnType.FLOAT


def number_texts(values: Numbers, kind: ColumnType) -> list[str]:
    """Return values of a column as they are told."""
    if kind is ColumnType.BOOLEAN:
        return ["true" if value else "false" for value in values]
    if kind is ColumnType.INTEGER:
        return [str(int(value)) for value in values]
    return [str(value) for value in values + 0]  # no -0.0


def describe_texts(name: str, coded: Coded) -> Column:
    """Return the summary of a column of text."""
    codes, texts = coded.codes, coded.texts
    missing = int((codes < 0).sum())
    if texts is None:
        distinct = MAX_COUNTED + 1
        return Column(name=name, type=ColumnType.TEXT, missing=missing, distinct=distinct)
    counts = np.bincount(codes[codes >= 0], minlength=len(texts))
    return Column(
        name=name,
        type=ColumnType.TEXT,
        missing=missing,
        distinct=len(texts),
        classes=texts if len(texts) <= MAX_CLASSES else (),
        rarest=(texts[counts.argmin()][:MAX_TOLD], int(counts.min())) if texts else None,
    )


def default_target(names: Iterable[str]) -> str | None:
    """Return the column that is a target by its name, if there is one."""
    lower = {name.lower(): name for name in reversed(list(names))}
    return next((lower[name] for name in TARGETS if name in lower), None)


def within_budget(columns: Sequence[Column], target: str | None) -> tuple[Column, ...]:
    """Return the columns, without the classes of some if they would be megabytes in all."""
    left = MAX_CLASSES_BYTES
    kept = {}
    for column in sorted(columns, key=lambda column: column.name != target):
        size = sum(len(text.encode()) + 3 for text in column.classes)
        left -= size
        kept[column.name] = column if left >= 0 else replace(column, classes=())
    return tuple(kept[column.name] for column in columns)
