"""Losses of VAEs as they learn, beside those of a paper: as Markdown, and drawn. No server.

Runs of different lengths are compared by their curves: each row keeps the loss after every fifth
epoch, on validation rows. What a curve tends to is guessed by a power law through its later half.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from khot_client.jobs import Job
from khot_client.reproduce import picture
from khot_client.reproduce.ledger import Row, number
from khot_client.reproduce.loss_table import Spread, by_dataset, in_order, markdown, shown, spread
from khot_client.reproduce.published import Reported
from khot_client.specs import Result, VaeResult

MEASURED = (
    "test_loss",
    "test_reconstruction",
    "test_prior",
    "test_top_reconstruction",
    "test_elbo",
    "validation_loss",
    "every_fifth",
)
EVERY = 5  # epochs
FURTHER = 10  # times as many epochs, to which a curve is drawn out
POWERS = np.linspace(0.05, 2.0, 40)
TERMS = ("reconstruction", "prior")
LEAST = 4  # points of a curve that is drawn out

Curve = dict[int, float]  # by epoch


def measured(result: Result, job: Job) -> dict[str, object]:
    """What is kept of a VAE: its terms on test rows, and its losses on validation rows."""
    assert isinstance(result, VaeResult)
    losses = job.metrics("validation_loss")["validation_loss"].values
    return {
        "test_loss": loss(result.test),
        "test_reconstruction": result.test["reconstruction"],
        "test_prior": result.test["prior"],
        "test_top_reconstruction": result.test.get("top_reconstruction"),
        "test_elbo": result.test.get("elbo"),
        "validation_loss": loss(result.validation),
        "every_fifth": every_fifth(losses),
    }


def every_fifth(values: NDArray[np.float64]) -> str:
    """Those after every fifth epoch, as a row keeps them."""
    return json.dumps([round(float(one), 4) for one in values[EVERY - 1 :: EVERY]])


def loss(terms: Mapping[str, float]) -> float:
    """The sum of both terms, which is minus the bound if it is one."""
    return terms["loss"] if "loss" in terms else -terms["elbo"]


def curve(row: Row, column: str = "every_fifth") -> Curve:
    """The validation loss of a run, or what else a column keeps, after every fifth epoch."""
    values: list[float] = json.loads(row[column])
    return {EVERY * place: value for place, value in enumerate(values, 1)}


def mean(rows: Sequence[Row], column: str = "every_fifth") -> Curve:
    """That of several runs, as far as all of them go."""
    curves = [curve(row, column) for row in rows]
    shared = [epoch for epoch in curves[0] if all(epoch in one for one in curves)]
    return {epoch: fmean(one[epoch] for one in curves) for epoch in shared}


def drawn_out(seen: Curve, epochs: int) -> float | None:
    """What the loss may be after so many epochs: a + b t^-c, fitted to the later half of a curve.

    A guess and no result: c is the best of a grid, a and b are least squares, b >= 0.
    """
    later = list(seen.items())[-max(LEAST, (len(seen) + 1) // 2) :]
    if len(later) < LEAST:
        return None
    t, y = np.array(later, float).T
    fits = []
    for power in POWERS:
        basis = np.stack([np.ones_like(t), t**-power], 1)
        (a, b), *_ = np.linalg.lstsq(basis, y, rcond=None)
        if b >= -1e-9 * abs(a):  # or flat, but for rounding
            fits.append((float(((basis @ (a, b) - y) ** 2).sum()), float(a + b * epochs**-power)))
    return min(fits)[1] if fits else None


@dataclass(frozen=True)
class Compared:
    """The runs of a method on a data set, and what the paper says of it.

    Attributes:
        guess: what the loss may be after FURTHER times as many epochs as the longest run of any.
    """

    method: str
    rows: Sequence[Row]
    ours: Spread
    theirs: Reported | None
    guess: float | None


def table(rows: Sequence[Row], reported: Mapping[tuple[str, str], Reported]) -> str:
    """For each data set the final losses beside the paper's, and the curves."""
    parts = []
    for dataset, its in by_dataset(rows):
        further = FURTHER * max(int(row["epochs_run"]) for row in its)
        compared = [_compare(m, its, reported.get((dataset, m)), further) for m in in_order(its)]
        header = (
            *("method", "published", "ours", "seeds", "difference", "at or below"),
            *("top codes", "reconstruction", "prior"),
            *("epochs", f"at {further} epochs?", "seconds an epoch"),
        )
        parts.append(f"## {dataset}\n\n{markdown(header, [_line(one) for one in compared])}")
        parts += _plainly(compared, further)
        parts.append(_curves(compared))
    asked = (
        "Top codes: the test loss if codes are not drawn, but those of the k largest logits.\n"
        "The column with a question mark is a guess: the curve, drawn out to "
        f"{FURTHER} times as many\n"
        "epochs by a power law through its later half. Seconds are those on the clock, with\n"
        "evaluations, checkpoints and whatever else the machine did; to compare methods,\n"
        "`python tests/bench/bench_table4_steps.py` measures their steps side by side."
    )
    return "\n\n".join([*parts, asked])


def _compare(method: str, rows: Sequence[Row], theirs: Reported | None, further: int) -> Compared:
    its = [row for row in rows if row["method"] == method]
    ours = spread(its, method, "test_loss")
    assert ours is not None
    return Compared(method, its, ours, theirs, drawn_out(mean(its), further))


def _line(one: Compared) -> tuple[str, ...]:
    ours, theirs = one.ours, one.theirs
    each = fmean(number(row, "seconds") / int(row["epochs_run"]) for row in one.rows)
    return (
        shown(one.method),
        f"{theirs.mean:.2f} ± {theirs.deviation:.2f}" if theirs else "",
        in_nats(ours),
        str(ours.count),
        f"{ours.mean - theirs.mean:+.2f}" if theirs else "",
        ("yes" if ours.mean <= theirs.mean else "no") if theirs else "",
        _by_top_codes(one.rows),
        *(f"{fmean(number(row, f'test_{term}') for row in one.rows):.2f}" for term in TERMS),
        str(max(int(row["epochs_run"]) for row in one.rows)),
        "" if one.guess is None else f"{one.guess:.1f}",
        f"{each:.1f}",
    )


def _by_top_codes(rows: Sequence[Row]) -> str:
    """The mean test loss if each vector is that of the k largest logits; empty if not known."""
    losses = [number(row, "test_top_reconstruction") + number(row, "test_prior") for row in rows]
    mean_loss = fmean(losses)
    return "" if isnan(mean_loss) else f"{mean_loss:.2f}"


def _plainly(compared: Sequence[Compared], further: int) -> list[str]:
    """In words: what is above the published numbers, and whether it may stay so."""
    above: list[str] = []
    reached: list[str] = []
    stay: list[str] = []
    for one in compared:
        if one.theirs is None or one.ours.mean <= one.theirs.mean:
            continue
        above.append(one.method)
        if one.guess is not None:
            (reached if one.guess <= one.theirs.mean else stay).append(one.method)
    if not above:
        return []
    said = [f"Above the published number: {listed(above)}."]
    if reached:
        said.append(
            f"After {further} epochs the drawn-out curve is at or below it: {listed(reached)}."
        )
    if stay:
        said.append(f"After {further} epochs it is above it still: {listed(stay)}.")
    return [" ".join(said)]


def listed(names: Sequence[str]) -> str:
    """Names in a sentence."""
    return ", ".join(f"`{name}`" for name in names)


def in_nats(values: Spread) -> str:
    """The mean of seeds, and their deviation."""
    more = "" if values.deviation is None else f" ± {values.deviation:.2f}"
    return f"{values.mean:.2f}{more}"


def _curves(compared: Sequence[Compared]) -> str:
    """The validation loss of each method after some of the epochs."""
    curves = {one.method: mean(one.rows) for one in compared}
    epochs = sorted({epoch for one in curves.values() for epoch in one})
    some = [epoch for epoch in epochs if epoch == EVERY or epoch % (2 * EVERY) == 0]
    lines = [
        (f"`{method}`", *(f"{one[epoch]:.2f}" if epoch in one else "" for epoch in some))
        for method, one in curves.items()
    ]
    return "Validation loss after epochs:\n\n" + markdown(("method", *map(str, some)), lines)


def draw(rows: Sequence[Row], reported: Mapping[tuple[str, str], Reported], path: Path) -> None:
    """A panel for each data set: the curves, and at its right edge what the paper reports.

    Raises:
        BadSettings: matplotlib is missing.
    """
    datasets = by_dataset(rows)
    with picture.panels(path, len(datasets)) as axes:
        for axis, (dataset, its) in zip(axes, datasets, strict=True):
            last = 0
            for colour, method in zip(picture.COLOURS, in_order(its), strict=False):
                seen = mean([row for row in its if row["method"] == method])
                line = "-" if len(seen) > 1 else "o"
                axis.plot(list(seen), list(seen.values()), line, color=colour, label=method)
                last = max([last, *seen])
                if theirs := reported.get((dataset, method)):
                    axis.axhline(theirs.mean, color=colour, linestyle=":", linewidth=1)
            axis.set_title(f"{dataset} (dotted: published)" if reported else dataset)
            axis.set_xlabel("epoch")
            axis.set_ylabel("validation loss, nats")
            axis.legend(frameon=False, fontsize="small")
