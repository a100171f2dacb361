"""Curves in a terminal, drawn with the eight dots of a braille character."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from khot_client.job_values import Series

COLOURS = ("cyan", "yellow", "magenta", "green", "red", "blue")
# The bit of each dot of a character, by its row and column.
_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
_BLANK = 0x2800


def chart(curves: Mapping[str, Series], width: int, height: int) -> Text:
    """Curves over the same axes, with a legend in their colours; what is no number is left out."""
    kept = {name: _finite(series) for name, series in curves.items()}
    kept = {name: series for name, series in kept.items() if len(series.steps)}
    if not kept:
        return Text("no measurements yet")
    steps = np.concatenate([series.steps for series in kept.values()])
    values = np.concatenate([series.values for series in kept.values()])
    low, high = float(values.min()), float(values.max())
    first, last = int(steps.min()), int(steps.max())
    labels = [f"{high:.4g}", f"{low:.4g}"]
    margin = max(map(len, labels))
    columns = max(8, width - margin - 2)
    cells = np.zeros((height, columns), int)
    owners = np.full((height, columns), -1)
    for owner, series in enumerate(kept.values()):
        drawn = _drawn(series, (first, last), (low, high), columns, height)
        cells |= drawn
        owners[drawn > 0] = owner
    rows = []
    for number in range(height):
        label = {0: labels[0], height - 1: labels[1]}.get(number, "")
        row = Text(f"{label:>{margin}} │")
        for bits, owner in zip(cells[number].tolist(), owners[number].tolist(), strict=True):
            row.append(chr(_BLANK + bits) if bits else " ", _colour(owner))
        row.rstrip()
        rows.append(row)
    rows.append(Text(" " * margin + " └" + "─" * columns))
    ends = f"{first}{f'step {last}':>{columns - len(str(first))}}"
    rows.append(Text(" " * (margin + 2) + ends))
    legend = Text(" " * (margin + 2))
    for owner, (name, series) in enumerate(kept.items()):
        legend.append(f"{name} {series.values[-1]:.4g}   ", _colour(owner))
    legend.rstrip()
    return Text("\n").join([legend, *rows])


def _drawn(
    series: Series, xs: tuple[int, int], ys: tuple[float, float], columns: int, height: int
) -> NDArray[np.int_]:
    """A curve as the bits of its characters, (height, columns)."""
    wide, tall = 2 * columns, 4 * height
    at = np.rint((series.steps - xs[0]) / max(1, xs[1] - xs[0]) * (wide - 1)).astype(int)
    share = (series.values - ys[0]) / ((ys[1] - ys[0]) or 1.0)
    level = np.rint((1.0 - share) * (tall - 1))
    dots = np.zeros((tall, wide), bool)
    across = np.arange(at[0], at[-1] + 1)
    heights = np.rint(np.interp(across, at, level)).astype(int)
    before = heights[0]
    for x, y in zip(across.tolist(), heights.tolist(), strict=True):
        # from where the last column ended, so that the curve has no gaps
        low, high = sorted((y, before + np.sign(y - before)))
        dots[low : high + 1, x] = True
        before = y
    blocks = dots.reshape(height, 4, columns, 2)
    bits: NDArray[np.int_] = (blocks * _DOTS[:, None, :]).sum((1, 3))
    return bits


def _finite(series: Series) -> Series:
    kept = np.isfinite(series.values)
    return Series(series.steps[kept], series.values[kept])


def _colour(owner: int) -> str:
    return COLOURS[owner % len(COLOURS)] if owner >= 0 else ""
