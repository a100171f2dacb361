"""reconstructions.png, samples.png, usage.png: what a VAE, or a selection, makes of examples."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.ticker import FixedLocator, MaxNLocator

from khot_server.jobs.artifacts.made import Floats
from khot_server.jobs.artifacts.pictures.drawing import (
    BLUE,
    INK,
    PALE,
    SHADES,
    Sheet,
    fitted,
    png,
    tiled,
)
from khot_server.jobs.results import VaeResult

ACROSS = 10
MOST_SHOWN = 20
MOST_SAMPLES = 60
UNSEEN = -1.0  # below all pixels, which has a colour of its own
PIXELS: Any = {"cmap": colormaps["gray"].with_extremes(under=PALE), "vmin": 0, "vmax": 1}
SIZE = 0.8  # inches


def reconstructions(parts: Mapping[str, Floats], shape: tuple[int, int] | None) -> bytes:
    """Draw examples, and beneath each what it has become; a line for each if it is no picture.

    Args:
        parts: the examples, then what was made of them in turn, by what that is; NaN where there
            is nothing to be seen.
        shape: of a picture.
    """
    parts = {n: np.nan_to_num(values[:MOST_SHOWN], nan=UNSEEN) for n, values in parts.items()}
    if shape is None:
        return _lines(parts)
    count = len(next(iter(parts.values())))
    across = min(count, ACROSS)
    wide, high = fitted(shape, SIZE, SIZE)
    rows = range(0, count, across)
    pitch = len(parts) * high + 0.2
    sheet = Sheet(1.4 + across * wide, 0.2 + len(rows) * pitch)
    for row, first in enumerate(rows):
        top = 0.2 + row * pitch
        for below, (name, values) in enumerate(parts.items()):
            tiles = tiled(values[first : first + across], shape, across)
            sheet.image(tiles, 1.2, top + below * high, across * wide, high, **PIXELS)
            sheet.words(name, 1.1, top + (below + 0.5) * high, ha="right", va="center")
    return png(sheet.figure)


def samples(pictures: Floats, shape: tuple[int, int] | None) -> bytes:
    """Draw what codes of the prior are decoded to; a line for each if it is no picture."""
    pictures = pictures[:MOST_SAMPLES]
    if shape is None:
        return _lines({"samples": pictures})
    across = min(len(pictures), ACROSS)
    wide, high = fitted(shape, SIZE, SIZE)
    size = across * wide, -(-len(pictures) // across) * high
    sheet = Sheet(0.4 + size[0], 0.4 + size[1])
    sheet.image(tiled(pictures, shape, across), 0.2, 0.2, *size, **PIXELS)
    return png(sheet.figure)


def _lines(parts: Mapping[str, Floats]) -> bytes:
    """Side by side: a row for each example, its features from left to right."""
    wide, high = 4.0, 0.12 * max(map(len, parts.values()))
    sheet = Sheet(0.2 + len(parts) * (wide + 0.2), high + 0.6)
    for number, (name, examples) in enumerate(parts.items()):
        left = 0.2 + number * (wide + 0.2)
        sheet.title(name, left, 0.3)
        sheet.image(examples, left, 0.4, wide, 0.12 * len(examples), **PIXELS)
    return png(sheet.figure)


def usage(result: VaeResult) -> bytes:
    """Draw the mean probability of every unit, and how many units have which."""
    latents, n = result.usage_shape
    values = np.asarray(result.usage).reshape(latents, n)
    wide, high = min(max(0.32 * n, 2.4), 6.0), min(max(0.24 * latents, 0.6), 4.0)
    sheet = Sheet(wide + 4.7, max(high, 1.6) + 1.15)
    axes = sheet.axes(0.65, 0.5, wide, high)
    shown = axes.imshow(values, cmap=SHADES, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.set(title="mean probability to be one", xlabel="unit", ylabel="vector")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True) if latents > 1 else FixedLocator([0]))
    axes.grid(False)
    key = sheet.figure.colorbar(shown, cax=sheet.axes(wide + 0.75, 0.5, 0.12, high))
    key.ax.grid(False)
    axes = sheet.axes(wide + 1.85, 0.5, 2.6, max(high, 1.6))
    axes.hist(values.ravel(), bins=np.linspace(0, 1, 21).tolist(), color=BLUE)
    axes.axvline(float(values.mean()), color=INK, linewidth=1, linestyle="--")
    axes.set(
        title="how many units have it", xlabel="mean probability (dashed: of all, k/n)", xlim=(0, 1)
    )
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    return png(sheet.figure)
