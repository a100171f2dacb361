"""The tables of "Which estimator should I use?" in khot/README.md, of committed results alone.

    python tests/bench/which_estimator.py

Losses are of `khot reproduce table3`, `table3-classes`, `table4`, `table4-mean` and `table4-large`,
the equation of `khot reproduce ks`, times and memory of `bench_estimator_steps.py`,
`bench_table3_steps.py` and `bench_table4_steps.py`, what there is to be had of
`bench_table3_limits.py` and by the paper's own settings of `bench_table3_published.py`: all in
tests/bench/results, where each says how it was made.
"""

import csv
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from khot_client.reproduce import experiments
from khot_client.reproduce.ledger import latest, number

RESULTS = Path(__file__).parent / "results"
HEADER = (
    "estimator",
    "MNIST classes",
    "Fashion-MNIST classes",
    "MNIST pixels",
    "Fashion-MNIST pixels",
    "equations found",
    "step",
    "as published",
    "shared",
    "memory",
)
DATASETS = ("mnist", "fashion-mnist")
VAES = {
    "table4": "Small, ten vectors with k = 5 of n = 10:",
    "table4-large": "Large, one vector with k = 500 of n = 1000:",
}
LIMITS = ("sees", "network", "least test loss", "test accuracy", "after epoch", "train loss then")


def rows(name: str) -> list[dict[str, str]]:
    """Those of a CSV among the results."""
    with (RESULTS / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def table() -> str:
    """The lines of the table, in Markdown."""
    classes, pixels, found = _losses("table3-classes"), _losses("table3"), _equations()
    plain = {
        row["method"]: [f"{float(row[f'{way} / khot']):.1f}" for way in ("rows", "shared")]
        for row in rows("table3_steps")
        if row["predicts"] == "classes"  # as in estimator_steps
    }
    lines = []
    for row in rows("estimator_steps"):
        name = row["estimator"]
        if name == "gates":
            continue
        lines.append(
            (
                f"`{name}`" + (f" (k = {row['k']})" if row["k"] == "1" else ""),
                *(losses.get((d, name), "") for losses in (classes, pixels) for d in DATASETS),
                found.get(name, ""),
                f"{float(row['/ gates']):.2f}",
                *plain.get(name, ("", "")),
                f"{float(row['of the draw']):.1f} MB",
            )
        )
    return _markdown(HEADER, lines)


def vaes() -> str:
    """Losses of Table 4's VAEs beside the published ones, and seconds an epoch, in Markdown."""
    there = [name for name in VAES if (RESULTS / f"{name}.csv").exists()]
    return "\n\n".join(f"{VAES[name]}\n\n{_vaes(name)}" for name in there)


def _vaes(experiment: str) -> str:
    size = "large" if experiment.endswith("large") else "small"
    steps = [row for row in rows("table4_steps") if row["vae"] == size]
    test, reported = _tests(experiment), experiments.find(experiment).reported
    datasets = tuple(dict.fromkeys(dataset for dataset, _ in test))
    header = ["estimator", *(name for one in datasets for name in (one, "published"))]
    lines = []
    for row in steps:
        name, cells = row["method"], []
        for dataset in datasets:
            theirs = reported.get((dataset, name))
            cells += [_mean(test[dataset, name], 3, 2), f"{theirs.mean:.2f}" if theirs else ""]
        ratios = (f"{float(row[key]):.2f}" for key in ("plain / khot", "khot / dense"))
        lines.append([f"`{name}`", *cells, f"{float(row['khot epoch s']):.1f}", *ratios])
    return _markdown([*header, "seconds an epoch", "plain", "of dense"], lines)


def means() -> str:
    """What the small VAEs lose with the mean of their divergences, in Markdown."""
    experiment = experiments.find("table4-mean")
    there = {
        (row["dataset"], row["method"]): row
        for row in latest(rows("table4-mean"), experiment.varied)
    }
    summed = _tests("table4")
    lines = []
    for cell, theirs in experiment.reported.items():
        row = there[cell]
        loss = number(row, "test_loss")
        top = number(row, "test_top_reconstruction") + number(row, "test_prior")
        losses = f"{theirs.mean:.2f}", _mean(summed[cell], 3, 2), f"{loss:.2f}", f"{top:.2f}"
        lines.append([cell[0], f"`{cell[1]}`", *losses, row["epochs_run"]])
    header = ("data set", "estimator", "published", "sum", "mean", "mean, top codes", "epochs")
    return _markdown(header, lines)


def _tests(experiment: str) -> dict[tuple[str, str], list[float]]:
    """Test losses by data set and method, with the settings that it was last run with."""
    found = defaultdict(list)
    for row in latest(rows(experiment), experiments.find(experiment).varied):
        found[row["dataset"], row["method"]].append(float(row["test_loss"]))
    return found


def _mean(values: Sequence[float], usual: int, digits: int) -> str:
    """Their mean, and their number where it is another than the usual."""
    more = "" if len(values) == usual else f" ({len(values)})"
    return f"{statistics.fmean(values):.{digits}f}{more}"


def published() -> str:
    """What Table 3 comes to by the paper's own settings, read as pixels, in Markdown."""
    ours, told = _tests("table3"), rows("table3_published")
    last = max(told, key=lambda row: int(row["epoch"]))["epoch"]
    there = {(row["data set"], row["method"]): row for row in told if row["epoch"] == last}
    lines = []
    for cell, theirs in experiments.find("table3").reported.items():
        row = there[cell]
        losses = row["test loss"], row["test loss, drawn masks"], _mean(ours[cell], 5, 4)
        lines.append([cell[0], f"`{cell[1]}`", f"{theirs.mean:.3f}", *losses])
    by_theirs = f"by its settings, {last} epochs"
    header = ("data set", "estimator", "published", by_theirs, "the same, drawn masks", "by ours")
    return _markdown(header, lines)


def limits() -> str:
    """What there is to be had on Fashion-MNIST, in Markdown."""
    told = [row for row in rows("table3_limits") if row["data set"] == "fashion-mnist"]
    return _markdown(LIMITS, [[row[name] for name in LIMITS] for row in told])


def _markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    cells = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _losses(experiment: str) -> dict[tuple[str, str], str]:
    """Mean test losses by data set and method, with the number of seeds where it is not five."""
    return {cell: _mean(values, 5, 4) for cell, values in _tests(experiment).items()}


def _equations() -> dict[str, str]:
    by_method = defaultdict(list)
    for row in rows("ks"):
        by_method[row["method"]].append(row["found"] == "1")
    return {name: f"{sum(hits)} of {len(hits)}" for name, hits in by_method.items()}


if __name__ == "__main__":
    print(table(), vaes(), means(), published(), limits(), sep="\n\n")
