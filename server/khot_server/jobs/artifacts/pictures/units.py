"""units.png: what single units of a VAE's code draw."""

from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps

from khot_server.jobs.artifacts.made import Effects, Floats
from khot_server.jobs.artifacts.pictures.drawing import GREY, PALE, Sheet, fitted, png, tiled

ACROSS = 10
MOST = 60
WIDEST = 20  # table, and the highest
SIZE = 0.8  # inches
LEFT, TOP = 0.7, 0.65  # of what is drawn, its title and labels before it
KEY = 1.1  # the width of the colours and their names
CHANGES = colormaps["RdBu_r"].with_extremes(bad=PALE)
SMALL: Any = {"fontsize": 8, "color": GREY}


def units(effects: Effects, code: tuple[int, int], shape: tuple[int, int] | None) -> bytes:
    """Draw what units change in what is decoded; a line for each if that is no picture.

    All units of a code (vectors, units of each) that is small are a table. Of a larger one,
    those that change most are shown, one after the other.
    """
    if shape is not None and len(effects.units) == code[0] * code[1] and max(code) <= WIDEST:
        return _table(effects.changes, code, shape)
    shown = _largest(effects, code)
    return _lines(shown) if shape is None else _tiles(shown, shape)


class _Shown(NamedTuple):
    """Some of the units: what each is called, and what it changes."""

    title: str
    labels: list[str]
    changes: Floats


def _largest(effects: Effects, code: tuple[int, int]) -> _Shown:
    """All in their order if they are few; else the largest, by root mean square, first."""
    order = np.arange(len(effects.units))
    if len(order) > MOST:
        order = np.argsort(-np.square(effects.changes).mean(-1), kind="stable")[:MOST]
    one = code[0] == 1
    labels = [f"{unit}" if one else f"{vector}, {unit}" for vector, unit in effects.units]
    title = "what each unit changes"
    if len(order) < len(labels):
        title = f"the {len(order)} largest effects of {len(labels)} units"
    if len(labels) < (total := code[0] * code[1]):
        title += f" (of {total})"
    title += "" if one else ": vector, unit"
    return _Shown(title, [labels[place] for place in order], effects.changes[order])


def _table(changes: Floats, code: tuple[int, int], shape: tuple[int, int]) -> bytes:
    """A row for each vector, a column for each unit."""
    vectors, n = code
    side = SIZE * min(1, ACROSS / max(code))
    wide, high = fitted(shape, side, side)
    width, height = n * max(wide, 0.2), vectors * max(high, 0.15)  # room for the labels
    sheet, look = _sheet(changes, width, height, ("brighter", "darker"))
    sheet.image(_tiled(changes, shape, n), LEFT, TOP, width, height, **look)
    sheet.frame(LEFT, TOP, width, height)
    sheet.title("what each unit changes", LEFT, 0.3)
    middle: Any = {"ha": "center", "va": "center"}
    sheet.words("unit", LEFT - 0.08, TOP - 0.07, ha="right", **SMALL)
    sheet.words("vector", LEFT - 0.4, TOP + height / 2, rotation=90, **middle, **SMALL)
    for unit in range(n):
        x = LEFT + (unit + 0.5) * width / n
        sheet.words(f"{unit}", x, TOP - 0.07, ha="center", **SMALL)
    for vector in range(vectors):
        y = TOP + (vector + 0.5) * height / vectors
        sheet.words(f"{vector}", LEFT - 0.08, y, ha="right", va="center", **SMALL)
    return png(sheet.figure)


def _tiles(shown: _Shown, shape: tuple[int, int]) -> bytes:
    """One after the other, each with its label above."""
    wide, high = fitted(shape, SIZE, SIZE)
    wide = max(wide, 0.5)
    across = min(len(shown.labels), ACROSS)
    rows, pitch = -(-len(shown.labels) // across), high + 0.22
    sheet, look = _sheet(shown.changes, across * wide, rows * pitch - 0.22, ("brighter", "darker"))
    sheet.title(shown.title, LEFT, 0.3)
    for row in range(rows):
        part, top = slice(row * across, (row + 1) * across), TOP + row * pitch
        labels, changes = shown.labels[part], shown.changes[part]
        width = len(labels) * wide
        sheet.image(_tiled(changes, shape, len(labels)), LEFT, top, width, high, **look)
        sheet.frame(LEFT, top, width, high)
        for column, label in enumerate(labels):
            sheet.words(label, LEFT + (column + 0.5) * wide, top - 0.05, ha="center", **SMALL)
    return png(sheet.figure)


def _lines(shown: _Shown) -> bytes:
    """A row for each, the features from left to right."""
    height = 0.14 * len(shown.labels)
    sheet, look = _sheet(shown.changes, 6.0, height, ("higher", "lower"))
    sheet.title(shown.title, LEFT, 0.3)
    sheet.words("features, from left to right", LEFT, TOP - 0.1, **SMALL)
    sheet.image(shown.changes, LEFT, TOP, 6.0, height, **look)
    sheet.frame(LEFT, TOP, 6.0, height)
    for row, label in enumerate(shown.labels):
        y = TOP + (row + 0.5) * 0.14
        sheet.words(label, LEFT - 0.08, y, ha="right", va="center", fontsize=7, color=GREY)
    return png(sheet.figure)


def _tiled(changes: Floats, shape: tuple[int, int], columns: int) -> Floats:
    """Side by side; small pictures are made larger, for the lines between are one pixel wide."""
    times = max(28 // max(shape), 1)
    large = changes.reshape(-1, *shape).repeat(times, 1).repeat(times, 2)
    return tiled(large, (shape[0] * times, shape[1] * times), columns)


def _sheet(
    changes: Floats, width: float, height: float, ends: tuple[str, str]
) -> tuple[Sheet, dict[str, Any]]:
    """A sheet for what is this large, with the colours of the changes beside it, and those."""
    most = float(np.abs(changes).max(initial=0)) or 1.0
    look: dict[str, Any] = {"cmap": CHANGES, "vmin": -most, "vmax": most}
    # a title is wider than a few tiles, and the words of the colours higher
    width, key = max(width, 3.4), min(max(height, 0.9), 2.4)
    sheet = Sheet(LEFT + width + KEY, TOP + max(height, key) + 0.2)
    left = LEFT + width + 0.2
    sheet.image(np.linspace(most, -most, 65)[:, None], left, TOP, 0.12, key, **look)
    up, down = ends
    sheet.words(f"+{most:.2g}\n{up}", left + 0.18, TOP, va="top", **SMALL)
    sheet.words("0", left + 0.18, TOP + key / 2, va="center", **SMALL)
    sheet.words(f"{down}\n\N{MINUS SIGN}{most:.2g}", left + 0.18, TOP + key, va="bottom", **SMALL)
    return sheet, look
