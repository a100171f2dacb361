"""How values are printed: tables for people, lines for pipes, JSON for programs."""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

if TYPE_CHECKING:
    from rich.console import Console


def terminal() -> "Console":
    """Where output goes, terminal or not."""
    from rich.console import Console

    return Console(highlight=False)


def plain(value: Any) -> Any:
    """What JSON can say: arrays as lists, times as text, and what is no number as null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        kind = getattr(value, "kind", None)  # of a spec, whose class says it
        value = {"kind": kind, **named} if isinstance(kind, str) else named
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.isoformat()
    return value if value is None or isinstance(value, bool | int) else str(value)


def print_json(value: Any) -> None:
    """Print a value on a line."""
    typer.echo(json.dumps(plain(value), ensure_ascii=False))


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; on anything but a terminal, with tabs between its cells."""
    cells = [[_cell(value) for value in row] for row in rows]
    console = terminal()
    if not console.is_terminal:
        for line in [list(header), *cells]:
            typer.echo("\t".join(" ".join(cell.split()) for cell in line))
        return
    from rich.table import Column, Table
    from rich.text import Text

    # an id is to be copied, so that no part of it may be left out; an empty column may
    first = Column(header[0], no_wrap=True, overflow="fold")
    used = [i for i in range(1, len(header)) if any(row[i] for row in cells)]
    names = (header[i] for i in used)
    table = Table(first, *names, box=None, padding=(0, 2, 0, 0), header_style="bold")
    for row in cells:
        table.add_row(*(Text(row[i]) for i in (0, *used)))
    console.print(table)


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values, one a line, without what is empty."""
    shown = {name: text for name, value in facts.items() if (text := _cell(value))}
    width = max(map(len, shown), default=0)
    separate = terminal().is_terminal
    for name, text in shown.items():
        typer.echo(f"{name:<{width}}  {text}" if separate else f"{name}\t{text}")


def moment(time: datetime | None) -> str:
    """A time as people read it."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC" if time else ""


def age(time: datetime) -> str:
    """How long ago it was, in the unit that says most."""
    seconds = (datetime.now(UTC) - time).total_seconds()
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"


def size(count: int) -> str:
    """Bytes as people read them."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024  # type: ignore[assignment]
    return f"{count:.1f} GiB"


def words(pairs: Mapping[str, object]) -> str:
    """Names and values in a cell."""
    return ", ".join(f"{name}={_cell(value)}" for name, value in pairs.items())


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
