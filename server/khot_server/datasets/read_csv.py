"""Tables from CSV files.

Space around a cell does not count. A cell that is empty, NA or NaN in any case is missing.
A column of true and false is boolean, one of numbers is numbers, any other is text. As long
as a column can be numbers it is kept as numbers; if it turns out to be text late, its cells
are read once more.
"""

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from khot_server.datasets.coder import Coder
from khot_server.datasets.describe import default_target
from khot_server.datasets.limits import Limits, check_names
from khot_server.datasets.records import BadTable, Summary
from khot_server.datasets.stored import TableWriter

CELLS_AT_ONCE = 1 << 18
MISSING = frozenset({"", "na", "nan"})
BOOLEANS = {"false": 0.0, "true": 1.0}
OTHER_SEPARATORS = ";\t|"

NUMBER, BOOLEAN, TEXT = "number", "boolean", "text"
Cells = Sequence[str]


def read_csv(path: Path, out: Path, sha256: str, limits: Limits) -> Summary:
    """Write the table in a CSV file to the directory `out`; return its summary.

    Raises:
        BadTable: there is none.
    """
    names = _header(path)
    columns = [_Column() for _ in names]
    rows = 0
    for part, plain in _parts(path, len(names)):
        rows += len(part[0])
        limits.check_shape(rows, len(names))
        for column, cells in zip(columns, part, strict=True):
            column.add(cells, plain)
    limits.check_shape(rows, len(names))
    late = {i: column for i, column in enumerate(columns) if column.late}
    for column in late.values():
        column.late = False
    for part, plain in _parts(path, len(names)) if late else ():
        for i, column in late.items():
            column.add(part[i], plain)
    with TableWriter(out, rows, sha256) as writer:
        for name, column in zip(names, columns, strict=True):
            column.write(writer, name)
        return writer.finish(target=default_target(names))


class _Column:
    """A column, of which more is known with each part.

    Attributes:
        late: it was found to be text after other parts, and nothing of it is kept.
    """

    def __init__(self) -> None:
        self.late = False
        self._kind: str | None = None  # until a cell is not missing
        self._values: list[NDArray[np.float64]] = []
        self._coder = Coder()

    def add(self, cells: Cells, plain: bool) -> None:
        """Take the next cells; `plain`: what Python takes for a number is one."""
        if self._kind != TEXT:
            kind, values = _numbers(cells, plain)
            if kind is None or kind == self._kind or (self._kind is None and kind != TEXT):
                self._kind = kind or self._kind
                self._values.append(values)
                return
            self._kind, self.late, self._values = TEXT, bool(self._values), []
        if not self.late:
            self._coder.add(_texts(cells))

    def write(self, writer: TableWriter, name: str) -> None:
        """Write it whole, and forget it."""
        if self._kind == TEXT:
            writer.texts(name, self._coder.finish())
        else:
            writer.numbers(name, np.concatenate(self._values), boolean=self._kind == BOOLEAN)
        self._values, self._coder = [], Coder()


def _numbers(cells: Cells, plain: bool) -> tuple[str | None, NDArray[np.float64]]:
    """What some cells are, None if all are missing, and their values, if they are no text."""
    if plain:
        try:
            return NUMBER, np.array(list(map(float, cells)))
        except ValueError:
            pass
    found = {cell: cell.strip().lower() for cell in set(cells)}
    present = set(found.values()) - MISSING
    if present <= BOOLEANS.keys():
        values = {cell: BOOLEANS.get(text, math.nan) for cell, text in found.items()}
        kind = BOOLEAN if present else None
    elif all(map(_is_number, present)):
        values = {c: math.nan if text in MISSING else float(text) for c, text in found.items()}
        kind = NUMBER
    else:
        return TEXT, np.empty(0)
    return kind, np.array([values[cell] for cell in cells])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return _is_plain(cell)


def _is_plain(text: str) -> bool:
    """Whether it has neither digits of other scripts nor 1_000, which Python takes for numbers."""
    return text.isascii() and "_" not in text


def _texts(cells: Cells) -> list[str | None]:
    found = {cell: cell.strip() for cell in set(cells)}
    known = {cell: None if text.lower() in MISSING else text for cell, text in found.items()}
    return [known[cell] for cell in cells]


def _header(path: Path) -> list[str]:
    _, first = next(_rows(path, _Lines()), (0, []))
    names = [name.strip() for name in first]
    if not names:
        raise BadTable("file: must have a header line; got an empty file")
    other = [mark for mark in OTHER_SEPARATORS if len(names) == 1 and mark in names[0]]
    if other:
        got = f"{other[0]!r} in {names[0][:100]!r}"
        raise BadTable(f"line 1: must be separated by commas; got {got}")
    if all(map(_is_number, names)):
        raise BadTable(f"line 1: must be a header of names; got numbers, {names[0][:100]} first")
    check_names(names)
    return names


class _Lines:
    """Passes lines on, and knows whether all since the last time were plain."""

    def __init__(self) -> None:
        self.plain = True

    def of(self, file: Iterable[str]) -> Iterator[str]:
        for line in file:
            self.plain = self.plain and _is_plain(line)
            yield line


def _parts(path: Path, columns: int) -> Iterator[tuple[list[Cells], bool]]:
    """The rows after the header, some at a time: the cells of each column, and if all are plain."""
    at_once = max(1, CELLS_AT_ONCE // columns)
    lines, rows = _Lines(), []
    numbered = _rows(path, lines)
    next(numbered)
    lines.plain = True
    for line, row in numbered:
        if len(row) != columns:
            if len(row) == 1 and not row[0].strip():  # a line of spaces
                continue
            raise BadTable(f"line {line}: must have {columns} cells, as the header; got {len(row)}")
        rows.append(row)
        if len(rows) == at_once:
            yield list(zip(*rows, strict=True)), lines.plain
            lines.plain, rows = True, []
    if rows:
        yield list(zip(*rows, strict=True)), lines.plain


def _rows(path: Path, lines: _Lines) -> Iterator[tuple[int, list[str]]]:
    """Every line that is not empty, with the number of its last line in the file."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(lines.of(file), strict=True)
        try:
            for row in reader:
                if row:
                    yield reader.line_num, row
        except csv.Error as error:
            raise BadTable(f"line {reader.line_num}: must be CSV; got: {error}") from None
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            got = f"byte 0x{byte:02x} after line {reader.line_num}"
            raise BadTable(f"file: must be UTF-8; got {got}") from None
