"""The tables of "Which estimator should I use?" in khot/README.md, of committed results alone.

    python tests/bench/which_estimator.py

Losses are of `khot reproduce table3`, `table4` and `table4-large`, the equation of `khot reproduce
ks`, times and memory of `bench_estimator_steps.py`, `bench_table3_steps.py` and
`bench_table4_steps.py`, what there is to be had of `bench_table3_limits.py`: all in
tests/bench/results, where each says how it was made.
"""

import csv
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from khot_client.reproduce import experiments

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
VAES = {"small": "table4", "large": "table4-large"}
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


def vaes() -> str:
    """Losses of Table 4's VAEs beside the published ones, and seconds an epoch, in Markdown."""
    header, cells = ["estimator"], defaultdict(list)
    for size, experiment in VAES.items():
        steps = {row["method"]: row for row in rows("table4_steps") if row["vae"] == size}
        test, losses = _tests(experiment), published_losses(experiment)
        for dataset in dict.fromkeys(dataset for dataset, _ in test):
            header += [f"{size}, {dataset}", "published"]
            for name in steps:
                theirs = losses.get((dataset, name))
                cells[name] += [_mean(test[dataset, name], 3, 2), f"{theirs:.2f}" if theirs else ""]
        header += [f"{size}: epoch s", "plain / ours", "ours / dense"]
        for name, row in steps.items():
            ratios = (f"{float(row[key]):.2f}" for key in ("plain / khot", "khot / dense"))
            cells[name] += [f"{float(row['khot epoch s']):.1f}", *ratios]
    return _markdown(header, [[f"`{name}`", *line] for name, line in cells.items()])


def _tests(experiment: str) -> dict[tuple[str, str], list[float]]:
    """Test losses by data set and method."""
    found = defaultdict(list)
    for row in rows(experiment):
        found[row["dataset"], row["method"]].append(float(row["test_loss"]))
    return found


def _mean(values: Sequence[float], usual: int, digits: int) -> str:
    """Their mean, and their number where it is another than the usual."""
    more = "" if len(values) == usual else f" ({len(values)})"
    return f"{statistics.fmean(values):.{digits}f}{more}"


def published_losses(experiment: str) -> dict[tuple[str, str], float]:
    """What the paper reports, by data set and method."""
    return {cell: one.mean for cell, one in experiments.find(experiment).reported.items()}


def limits() -> str:
    """What there is to be had on Fashion-MNIST, in Markdown."""
    told = [row for row in rows("table3_limits") if row["data set"] == "fashion-mnist"]
    return _markdown(LIMITS, [[row[name] for name in LIMITS] for row in told])


def _markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    cells = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _losses() -> dict[tuple[str, str], str]:
    """Mean test losses by data set and method, with the number of seeds where it is not five."""
    return {cell: _mean(values, 5, 4) for cell, values in _tests("table3").items()}


def _equations() -> dict[str, str]:
    by_method = defaultdict(list)
    for row in rows("ks"):
        by_method[row["method"]].append(row["found"] == "1")
    return {name: f"{sum(hits)} of {len(hits)}" for name, hits in by_method.items()}


if __name__ == "__main__":
    print(table(), vaes(), limits(), sep="\n\n")
