"""coefficients.png, predictions.png: the linear model that a sparse regression found."""

import numpy as np

from khot_server.jobs.artifacts.made import Predicted
from khot_server.jobs.artifacts.pictures.drawing import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    Sheet,
    png,
    short,
    width,
)
from khot_server.jobs.results import SparseRegressionResult

MOST_COLUMNS = 40
NAME_LENGTH = 36


def coefficients(result: SparseRegressionResult) -> bytes:
    """Draw the coefficients as bars, the largest ones if there are many, with their names."""
    values = np.asarray(result.coefficients)
    order = np.sort(np.argsort(-np.abs(values), kind="stable")[:MOST_COLUMNS])
    labels = [short(result.names[i], NAME_LENGTH) or f"column {result.features[i]}" for i in order]
    left, high = max(0.3 + 0.0675 * max(map(width, labels)), 1.0), 0.19 * len(order)
    sheet = Sheet(left + 5.3, high + 1.1)
    more = f", {len(order)} largest shown" if len(order) < len(values) else ""
    sheet.title(f"the {len(values)} coefficients{more}", 0.2, 0.3)
    axes = sheet.axes(left, 0.45, 4.1, high)
    colours = [BLUE if value >= 0 else ORANGE for value in values[order]]
    axes.barh(np.arange(len(order)), values[order], height=0.72, color=colours)
    axes.axvline(0, color=INK, linewidth=0.9)
    axes.set(ylim=(len(order) - 0.5, -0.5), xlabel="in the units of the data")
    axes.set_yticks([])
    axes.grid(False, axis="y")
    for place, (label, i) in enumerate(zip(labels, order, strict=True)):
        y = 0.45 + high * (place + 0.5) / len(order)
        look = {"va": "center_baseline", "fontsize": 8, "family": "monospace"}
        sheet.words(label, left - 0.08, y, ha="right", **look)
        sheet.words(f"{values[i]:#.4g}", left + 4.18, y, **look)
    return png(sheet.figure)


def predictions(predicted: Predicted, target: str) -> bytes:
    """Draw predicted against true targets, a point for each test row."""
    sheet = Sheet(5.0, 4.9)
    sheet.title(f"{short(target, NAME_LENGTH)} of test rows", 0.25, 0.3)
    axes = sheet.axes(0.75, 0.45, 3.95, 3.85)
    both = np.concatenate((predicted.true, predicted.predicted))
    ends = float(both.min()), float(both.max())
    axes.plot(ends, ends, color=GREY, linewidth=1, linestyle="--")
    look = {"markersize": 3, "markeredgewidth": 0, "alpha": 0.5, "color": BLUE}
    axes.plot(predicted.true, predicted.predicted, "o", **look)  # type: ignore[arg-type]
    axes.set(xlabel="true", ylabel="predicted")
    return png(sheet.figure)
