"""The tables of the load benchmark."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

import harness


@dataclass(frozen=True)
class Must:
    """A number of the service, and what it must be.

    Attributes:
        least, most: over the rounds, for how far to trust it.
        quiet: in how many rounds the machine was ours alone; if in fewer than 3, all count.
    """

    case: str
    what: str
    measured: float
    least: float
    most: float
    must: str
    quiet: str = ""
    holds: str = ""

    def judged(self, holds: bool) -> Self:
        return replace(self, holds="yes" if holds else "NO")


def same_columns(rows: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """The rows with the columns of all of them, blank where a row has none."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name, "") for name in names} for row in rows]


def show(name: str, rows: Sequence[Mapping[str, object]], out: Path | None) -> None:
    if rows:
        harness.report(name, same_columns(rows), out)


def show_musts(name: str, musts: Sequence[Must], out: Path | None) -> None:
    show(name, [asdict(must) for must in musts], out)
