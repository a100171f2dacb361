"""A k that is learned beside the k that are given: as Markdown, and drawn. No server."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from khot_client.reproduce import picture
from khot_client.reproduce.ledger import Row, number
from khot_client.reproduce.loss_table import Spread, markdown
from khot_client.reproduce.published import Reported

FIXED, LEARNED = "pi_st", "pi_st_implicit"
PENALTY = 0.01  # lambda of the figure: what each pixel costs
# The k that are given, and the guesses from which it is learned.
WHOLE = ((10, 20, 30, 50, 75, 100, 150), (10, 50, 200, 400))
QUICK = ((5, 20), (10,))


def penalized(row: Row) -> float:
    """What is to be small: the test loss, and the penalty of all that was chosen."""
    return number(row, "test_loss") + PENALTY * number(row, "k")


def guess(row: Row) -> float | None:
    """Where a k that was learned began."""
    found: float | None = json.loads(row["settings"]).get("initial_k")
    return found


def curve(rows: Sequence[Row]) -> dict[int, Spread]:
    """The penalized loss of each k that was given, ascending."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if row["method"] == FIXED:
            found.setdefault(int(number(row, "k")), []).append(penalized(row))
    return {k: Spread.of(found[k]) for k in sorted(found)}


def table(rows: Sequence[Row], _: Mapping[tuple[str, str], Reported]) -> str:
    """Both: the curve, and where each guess has led."""
    fixed = curve(rows)
    best = min((s.mean for s in fixed.values()), default=None)
    lines = [(k, str(s), s.count, _above(s.mean, best)) for k, s in fixed.items()]
    learned = [row for row in rows if row["method"] == LEARNED]
    found = [
        (
            f"{guess(row):g}",
            row["seed"],
            row["k"],
            f"{number(row, 'test_loss'):.4f}",
            f"{penalized(row):.4f}",
            _above(penalized(row), best),
        )
        for row in sorted(learned, key=lambda row: (guess(row) or 0, int(row["seed"])))
    ]
    loss = f"test loss + {PENALTY} k"
    parts = [
        "The paper shows a picture and no numbers: a learned k is near the best of the curve,\n"
        "whatever it began with.",
        f"## k given (`{FIXED}`)",
        markdown(("k", loss, "seeds", "above the best of them"), lines),
        f"## k learned (`{LEARNED}`)",
        markdown(
            ("first guess", "seed", "k found", "test loss", loss, "above the best k given"), found
        ),
    ]
    return "\n\n".join(parts)


def _above(value: float, best: float | None) -> str:
    return "" if best is None else f"{value - best:+.4f}"


def draw(rows: Sequence[Row], _: Mapping[tuple[str, str], Reported], path: Path) -> None:
    """The curve, and from each guess an arrow to what was found.

    Raises:
        BadSettings: matplotlib is missing.
    """
    fixed = curve(rows)
    with picture.panels(path, 1) as (axis,):
        means = [s.mean for s in fixed.values()]
        axis.plot(list(fixed), means, "o-", color=picture.GREY, label="k given")
        learned = [row for row in rows if row["method"] == LEARNED]
        values = [penalized(row) for row in learned]
        ks = [number(row, "k") for row in learned]
        axis.plot(ks, values, "o", color=picture.RED, label="k learned")
        top = max([*means, *values], default=1.0)
        begin = {guess(row) for row in learned}
        for first in sorted(first for first in begin if first is not None):
            its = [row for row in learned if guess(row) == first]
            there = (fmean(number(row, "k") for row in its), fmean(map(penalized, its)))
            axis.annotate(
                "",
                xy=there,
                xytext=(first, 1.15 * top),
                arrowprops={"arrowstyle": "->", "color": picture.RED, "alpha": 0.5},
            )
            axis.text(first, 1.17 * top, f"{first:g}", ha="center", color=picture.RED)
        axis.set_ylim(0, 1.25 * top)
        axis.set_xscale("log")
        axis.minorticks_off()
        marks = sorted({*fixed, *(round(first) for first in begin if first is not None)})
        axis.set_xticks(marks, [str(mark) for mark in marks], fontsize="small")
        axis.set_xlabel("k")
        axis.set_ylabel(f"test loss + {PENALTY} k")
        axis.legend(frameon=False, loc="lower right")
