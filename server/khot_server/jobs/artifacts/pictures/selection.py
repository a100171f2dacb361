"""inclusion.png, columns.png: which features were chosen."""

import numpy as np
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

from khot_server.jobs.artifacts.made import Floats
from khot_server.jobs.artifacts.pictures.drawing import (
    BLUE,
    GREY,
    INK,
    PALE,
    SHADES,
    Sheet,
    fitted,
    png,
    short,
    width,
)
from khot_server.jobs.results import FeatureSelectionResult, SparseRegressionResult

MOST_COLUMNS = 40
MOST_CLASSES = 10
NAME_LENGTH = 36
TITLE_WIDTH = 2.3  # inches


def inclusion(
    result: FeatureSelectionResult, shape: tuple[int, int], class_means: Floats | None
) -> bytes:
    """Draw probabilities and choice as images, and what each class has at the chosen pixels."""
    p = np.asarray(result.inclusion_probabilities).reshape(shape)
    chosen = np.zeros(p.size, np.bool_)
    chosen[list(result.features)] = True
    means = (
        np.empty((0, p.size)) if class_means is None else np.nan_to_num(class_means[:MOST_CLASSES])
    )
    wide, high = fitted(shape, 3.6, 2.4)
    second = 0.25 + max(wide + 1.0, TITLE_WIDTH)
    third = second + max(wide + 0.45, TITLE_WIDTH)
    across = -(-len(means) // 2) if len(means) > 3 else len(means)
    tile = wide * 0.42, high * 0.42
    classes_width = max(across * (tile[0] + 0.12), TITLE_WIDTH) if len(means) else -0.2
    sheet = Sheet(third + classes_width + 0.1, high + 0.6)

    sheet.title("probability to be chosen", 0.25, 0.3)
    sheet.image(p, 0.25, 0.4, wide, high, cmap=SHADES, vmin=0, vmax=1)
    sheet.rules(shape, 0.25, 0.4, wide, high)
    _key(sheet, 0.35 + wide, 0.4, high)

    sheet.title(f"the {len(result.features)} chosen of {p.size}", second, 0.3)
    mean = means.mean(0) if len(means) else np.zeros(p.size)
    colours = np.where(chosen[:, None], to_rgb(BLUE), _greys(mean, 0.5))
    sheet.image(colours.reshape(*shape, 3), second, 0.4, wide, high)
    sheet.rules(shape, second, 0.4, wide, high)
    sheet.frame(second, 0.4, wide, high)

    if len(means):
        sheet.title("the mean of each class there", third, 0.3)
        tops = 0.58, 0.4 + high - tile[1]
        for number, shades in enumerate(_shades(means, chosen)):
            left, top = third + number % across * (tile[0] + 0.12), tops[number // across]
            sheet.image(shades.reshape(*shape, 3), left, top, *tile)
            sheet.frame(left, top, *tile)
            name = short(result.classes[number], max(int(tile[0] / 0.07), 3))
            sheet.words(name, left + tile[0] / 2, top - 0.05, ha="center", fontsize=8)
    return png(sheet.figure)


def _key(sheet: Sheet, left: float, top: float, height: float) -> None:
    """The colours of probabilities."""
    sheet.image(np.linspace(1, 0, 64)[:, None], left, top, 0.12, height, cmap=SHADES)
    for value in (0, 0.5, 1):
        y = top + height * (1 - value)
        sheet.words(f"{value:g}", left + 0.18, y, va="center", fontsize=8, color=GREY)


def _greys(values: Floats, darkest: float) -> NDArray[np.float64]:
    """From white, the least, to this much of black: (..., 3)."""
    low, high = values.min(), values.max()
    share = (values - low) / (high - low if high > low else 1)
    return np.repeat(1 - darkest * share[..., None], 3, -1)


def _shades(means: Floats, chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The mean of each class, blue where it was chosen and faint elsewhere: (classes, n, 3)."""
    grey = _greys(means, 1.0)
    blue = 1 - (1 - grey) * (1 - np.array(to_rgb(BLUE)))
    return np.where(chosen[:, None], blue, 1 - 0.25 * (1 - grey))


def columns(
    result: FeatureSelectionResult | SparseRegressionResult, names: tuple[str, ...]
) -> bytes:
    """Draw the features that are most likely to be chosen as bars, with their names."""
    p, chosen = np.asarray(result.inclusion_probabilities), set(result.features)
    order = np.argsort(-p, kind="stable")[:MOST_COLUMNS]
    labels = [short(names[i], NAME_LENGTH) or f"column {i}" for i in order]
    left, high = max(0.3 + 0.0675 * max(map(width, labels)), 1.0), 0.19 * len(order)
    sheet = Sheet(left + 4.8, high + 1.1)
    more = f", {len(order)} most likely shown" if len(order) < len(p) else ""
    sheet.title(f"the {len(chosen)} chosen of {len(p)} columns{more}", 0.2, 0.3)
    axes = sheet.axes(left, 0.45, 4.1, high)
    colours = [BLUE if i in chosen else PALE for i in order]
    places = np.arange(len(order))
    axes.barh(places, p[order], height=0.72, color=colours)
    axes.set(ylim=(len(order) - 0.5, -0.5), xlim=(0, 1), xlabel="probability to be chosen")
    axes.set_yticks([])
    axes.grid(False, axis="y")
    for place, (label, i) in enumerate(zip(labels, order, strict=True)):
        y = 0.45 + high * (place + 0.5) / len(order)
        colour = INK if i in chosen else GREY
        look = {"va": "center_baseline", "fontsize": 8, "family": "monospace", "color": colour}
        sheet.words(label, left - 0.08, y, ha="right", **look)
        sheet.words(f"{p[i]:.2f}", left + 4.18, y, **look)
    return png(sheet.figure)
