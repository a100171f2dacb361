"""What the search has found: the settings of each method with the least validation loss."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from khot_client.reproduce import settings
from khot_client.reproduce.ledger import Row, latest, number
from khot_client.reproduce.loss_table import markdown
from khot_client.reproduce.settings import Settings


@dataclass(frozen=True)
class Best:
    """The best of what was tried of a method on a data set."""

    dataset: str
    method: str
    values: dict[str, Any]
    validation_loss: float
    tried: int


def best(rows: Sequence[Row], known: Settings) -> list[Best]:
    """The best of each method on each data set, with what the grid varies."""
    kept = latest(rows, ("seed", *known.grid))
    keys = dict.fromkeys((row["dataset"], row["method"]) for row in kept)
    found = []
    for dataset, method in keys:
        tried = [row for row in kept if (row["dataset"], row["method"]) == (dataset, method)]
        first = min(tried, key=lambda row: number(row, "validation_loss"))
        asked = json.loads(first["settings"])
        values = {name: asked[name] for name in known.grid if name in asked}
        loss = number(first, "validation_loss")
        found.append(Best(dataset, method, values, loss, len(tried)))
    return found


def blocks(experiment: str, found: Sequence[Best]) -> list[str]:
    """What to write into `settings.toml`."""
    return [settings.block(experiment, one.dataset, one.method, one.values) for one in found]


def page(experiment: str, rows: Sequence[Row], known: Settings) -> str:
    """The best of each, all that was tried, and what to paste."""
    found = best(rows, known)
    budget = f"the same grid, epochs ({_epochs(rows)}) and seed for each method"
    for method, names in known.own_grids.items():
        budget += f"; of `{method}` also {', '.join(f'`{name}`' for name in names)}"
    header = ("data set", "method", *known.grid, "validation loss", "of")
    lines = [
        (
            *(b.dataset, b.method),
            *(b.values.get(name, "") for name in known.grid),
            *(f"{b.validation_loss:.4f}", b.tried),
        )
        for b in found
    ]
    everything = [
        (
            row["dataset"],
            row["method"],
            *(json.loads(row["settings"]).get(name, "") for name in known.grid),
            f"{number(row, 'validation_loss'):.4f}",
        )
        for row in latest(rows, ("seed", *known.grid))
    ]
    return (
        "\n\n".join(
            [
                f"# Settings for {experiment}, selected by validation loss",
                f"Made by `khot reproduce {experiment} --search` of "
                f"[{experiment}_search.csv]({experiment}_search.csv): {budget}. No test row was "
                "looked at.",
                markdown(header, lines),
                "For `settings.toml` (`--search --write` writes it there):",
                "```toml\n" + "\n\n".join(blocks(experiment, found)) + "\n```",
                "## All that was tried",
                markdown(("data set", "method", *known.grid, "validation loss"), everything),
            ]
        )
        + "\n"
    )


def _epochs(rows: Sequence[Row]) -> str:
    """How many there were of, by the settings."""
    told = {json.loads(row["settings"]).get("epochs", "the usual") for row in rows}
    return ", ".join(sorted(map(str, told)))
