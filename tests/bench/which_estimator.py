"""The tables of "Which estimator should I use?" in khot/README.md, of committed results alone.

    python tests/bench/which_estimator.py

Losses are of `khot reproduce table3`, the equation of `khot reproduce ks`, times and memory of
`bench_estimator_steps.py` and `bench_table3_steps.py`, what there is to be had of
`bench_table3_limits.py`: all in tests/bench/results, where each says how it was made.
"""

import csv
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
HEADER = (
    "estimator",
    "MNIST loss",
    "Fashion-MNIST loss",
    "equations found",
    "step",
    "plain step",
    "memory",
)
LIMITS = ("sees", "network", "least test loss", "test accuracy", "after epoch", "train loss then")


def rows(name: str) -> list[dict[str, str]]:
    """Those of a CSV among the results."""
    with (RESULTS / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def table() -> str:
    """The lines of the table, in Markdown."""
    losses, found = _losses(), _equations()
    plain = {row["method"]: f"{float(row['plain / khot']):.1f}" for row in rows("table3_steps")}
    lines = []
    for row in rows("estimator_steps"):
        name = row["estimator"]
        if name == "gates":
            continue
        lines.append(
            (
                f"`{name}`" + (f" (k = {row['k']})" if row["k"] == "1" else ""),
                *(losses.get((dataset, name), "") for dataset in ("mnist", "fashion-mnist")),
                found.get(name, ""),
                f"{float(row['/ gates']):.2f}",
                plain.get(name, ""),
                f"{float(row['of the draw']):.1f} MB",
            )
        )
    return _markdown(HEADER, lines)


def limits() -> str:
    """What there is to be had on Fashion-MNIST, in Markdown."""
    told = [row for row in rows("table3_limits") if row["data set"] == "fashion-mnist"]
    return _markdown(LIMITS, [[row[name] for name in LIMITS] for row in told])


def _markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    cells = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _losses() -> dict[tuple[str, str], str]:
    """Mean test losses by data set and method, with the number of seeds where it is not five."""
    by_cell = defaultdict(list)
    for row in rows("table3"):
        by_cell[row["dataset"], row["method"]].append(float(row["test_loss"]))
    return {
        cell: f"{statistics.fmean(values):.4f}" + ("" if len(values) == 5 else f" ({len(values)})")
        for cell, values in by_cell.items()
    }


def _equations() -> dict[str, str]:
    by_method = defaultdict(list)
    for row in rows("ks"):
        by_method[row["method"]].append(row["found"] == "1")
    return {name: f"{sum(hits)} of {len(hits)}" for name, hits in by_method.items()}


if __name__ == "__main__":
    print(table(), limits(), sep="\n\n")
