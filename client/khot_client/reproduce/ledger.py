"""What was found: a CSV with a row for each run, which is only ever added to.

A row is one write, on disk before anything else is done with it. A process that is killed in
the middle of one leaves a line without an end, which the next one takes away: that run has
no row, and is collected again.
"""

import csv
import io
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from khot_client.errors import BadSettings
from khot_client.reproduce.runs import Run, without

Row = Mapping[str, str]

BEFORE = ("experiment", "dataset", "method", "seed")
AFTER = ("epochs_run", "seconds", "settings", "khot", "torch", "commit", "started")


class Ledger:
    """The CSV of an experiment.

    Args:
        path: of the file; it is made by the first row.
        measured: the columns that are of this experiment.

    Raises:
        BadSettings: there is a file with other columns.
    """

    def __init__(self, path: Path, measured: Sequence[str]) -> None:
        self.path, self.columns = path, (*BEFORE, *measured, *AFTER)
        self.rows: list[Row] = []
        if not path.is_file():
            return
        text = path.read_text()
        whole = text[: text.rfind("\n") + 1]
        reader = csv.DictReader(io.StringIO(whole))
        if whole and tuple(reader.fieldnames or ()) != self.columns:
            must = f"must have the columns {', '.join(self.columns)}"
            got = ", ".join(reader.fieldnames or ())
            raise BadSettings(f"{path}: {must}; got {got}. Move it away, and run it again")
        self.rows = list(reader)

    def add(self, row: Mapping[str, object]) -> Row:
        """Write a row; when this returns it is on disk."""
        known = {name: "" if row.get(name) is None else str(row[name]) for name in self.columns}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            end = self._end_of_last_line(file)
            os.ftruncate(file, end)
            lines = [list(self.columns)] if end == 0 else []
            os.pwrite(file, _csv([*lines, list(known.values())]), end)
            os.fsync(file)
        finally:
            os.close(file)
        self.rows.append(known)
        return known

    def missing(self, runs: Iterable[Run]) -> list[Run]:
        """Those of the runs that have no row."""
        done = {row["settings"] for row in self.rows}
        return [run for run in runs if run.settings not in done]

    @staticmethod
    def _end_of_last_line(file: int) -> int:
        content = os.pread(file, os.fstat(file).st_size, 0)
        return content.rfind(b"\n") + 1


def latest(rows: Sequence[Row], varied: Collection[str]) -> list[Row]:
    """Of each method on each data set, the rows of the settings that it was last run with.

    Args:
        rows: in the order in which they were written.
        varied: the settings in which the rows of a method may differ, such as its seed.
    """
    last = {(row["dataset"], row["method"]): without(row["settings"], varied) for row in rows}
    of_last = (
        row
        for row in rows
        if last[row["dataset"], row["method"]] == without(row["settings"], varied)
    )
    return list({row["settings"]: row for row in of_last}.values())


def number(row: Row, column: str) -> float:
    """The number in a cell; NaN where there is none."""
    return float(row.get(column) or "nan")


def _csv(lines: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue().encode()
