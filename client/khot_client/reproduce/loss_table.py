"""Losses of methods on data sets, beside those of a paper: as Markdown, and drawn. No server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from statistics import fmean, stdev

from khot_client.reproduce import picture
from khot_client.reproduce.ledger import Row, number
from khot_client.reproduce.published import NAMES, Reported

HEADER = ("method", "published", "ours", "seeds", "difference", "at or below")


@dataclass(frozen=True)
class Spread:
    """Where the values of several seeds lie; one seed has no deviation."""

    mean: float
    deviation: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(fmean(values), stdev(values) if len(values) > 1 else None, len(values))

    def __str__(self) -> str:
        more = "" if self.deviation is None else f" ± {self.deviation:.1e}"
        return f"{self.mean:.4f}{more}"


def table(rows: Sequence[Row], reported: Mapping[tuple[str, str], Reported]) -> str:
    """A table for each data set: the mean over seeds, and one standard deviation of a sample."""
    parts = []
    for dataset, its in by_dataset(rows):
        classes = any(row["test_accuracy"] for row in its)
        header = (*HEADER, "test accuracy") if classes else HEADER
        lines = [
            _line(method, its, reported.get((dataset, method)))[: len(header)]
            for method in in_order(its)
        ]
        parts.append(f"## {dataset}\n\n{markdown(header, lines)}")
    return "\n\n".join(parts)


def by_dataset(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """The rows of each data set."""
    names = dict.fromkeys(row["dataset"] for row in rows)
    return [(name, [row for row in rows if row["dataset"] == name]) for name in names]


def markdown(header: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """The lines of a table."""
    cells = [list(header), ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in cells)


def spread(rows: Sequence[Row], method: str, column: str) -> Spread | None:
    """A column of the rows of a method, if any has a number there."""
    values = [number(row, column) for row in rows if row["method"] == method]
    known = [value for value in values if not isnan(value)]
    return Spread.of(known) if known else None


def _line(method: str, rows: Sequence[Row], theirs: Reported | None) -> tuple[str, ...]:
    ours = spread(rows, method, "test_loss")
    accuracy = spread(rows, method, "test_accuracy")
    assert ours is not None
    return (
        shown(method),
        f"{theirs.mean:.3f} ± {theirs.deviation:.1e}" if theirs else "",
        str(ours),
        str(ours.count),
        f"{ours.mean - theirs.mean:+.4f}" if theirs else "",
        ("yes" if ours.mean <= theirs.mean else "no") if theirs else "",
        f"{accuracy.mean:.2%}" if accuracy else "",
    )


def shown(method: str) -> str:
    """A method as the paper calls it, and as we do."""
    return f"{NAMES[method]} (`{method}`)" if method in NAMES else method.replace("_", " ")


def in_order(rows: Sequence[Row]) -> list[str]:
    """Those that there are rows of, in the order of the paper."""
    there = dict.fromkeys(row["method"] for row in rows)
    return [*(name for name in NAMES if name in there), *(n for n in there if n not in NAMES)]


def draw(rows: Sequence[Row], reported: Mapping[tuple[str, str], Reported], path: Path) -> None:
    """A panel for each data set: ours, each seed a point, beside the paper's mean and deviation.

    Raises:
        BadSettings: matplotlib is missing.
    """
    datasets = by_dataset(rows)
    with picture.panels(path, len(datasets)) as axes:
        for axis, (dataset, its) in zip(axes, datasets, strict=True):
            methods = in_order(its)
            for place, method in enumerate(methods):
                _column(axis, place, [row for row in its if row["method"] == method])
                if theirs := reported.get((dataset, method)):
                    axis.errorbar(
                        place + 0.15,
                        theirs.mean,
                        theirs.deviation,
                        fmt="D",
                        color=picture.GREY,
                        capsize=3,
                        label="paper" if place == 0 else None,
                    )
            axis.set_xlim(-0.6, len(methods) - 0.4)
            axis.set_title(dataset)
            axis.set_ylabel("test loss")
            axis.set_xticks(range(len(methods)), methods, rotation=30, ha="right")
            axis.legend(frameon=False)


def _column(axis: picture.Axis, place: int, rows: Sequence[Row]) -> None:
    values = [number(row, "test_loss") for row in rows]
    found = Spread.of(values)
    axis.plot([place - 0.15] * len(values), values, ".", color=picture.BLUE, alpha=0.4)
    axis.errorbar(
        place - 0.15,
        found.mean,
        found.deviation or 0,
        fmt="o",
        color=picture.BLUE,
        capsize=3,
        label="khot" if place == 0 else None,
    )
