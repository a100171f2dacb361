"""curves.png: what was measured on the validation rows, over the epochs."""

from collections.abc import Mapping, Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from khot_server.jobs.artifacts.history import Curve, History
from khot_server.jobs.artifacts.pictures.drawing import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    Sheet,
    png,
)

VALIDATION = "validation_"
# In this order, and no more than MOST. (The ELBO is the loss upside down.)
PANELS = ("loss", "accuracy", "rmse", "r2", "reconstruction", "prior")
MOST = 3
TITLES = {"rmse": "RMSE", "r2": "R²"}
STAGES = {"reference_all": "all columns", "reference_random": "random columns"}
FEW = 12  # epochs whose values are marked
DASHES = ("-", (0, (1, 2)), (0, (6, 3)))  # of marks
STEEP = 20.0  # a loss that falls by this factor has a logarithmic axis


def curves(history: History, marks: Mapping[str, int]) -> bytes | None:
    """Draw a panel for each measurement; None if there are none.

    Args:
        history: of the training; what its stages after the first learn is to compare with.
        marks: what happened after which epoch of the first stage.
    """
    main = history.stages[0] if history.stages else ""
    shown = [name for name in PANELS if VALIDATION + name in history.names(main)][:MOST]
    if not shown:
        return None
    panel = 3.1 if len(shown) > 1 else 6.6
    top = 0.93 if marks else 0.68
    sheet = Sheet(0.35 + (panel + 0.65) * len(shown), top + 2.75)
    named: dict[str, Line2D] = {}
    marked: dict[str, Line2D] = {}
    for number, name in enumerate(shown):
        axes = sheet.axes(0.65 + (panel + 0.65) * number, top, panel, 2.2)
        axes.set_title(TITLES.get(name, name))
        lines = _lines(axes, name, history)
        if name in ("loss", "rmse"):
            _scale(axes, list(lines.values()))
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        named, marked = named | lines, marked | _mark(axes, marks)
    sheet.legend(named, 0.25, 0.0)
    if marked:
        sheet.legend(marked, 0.25, 0.25)
    return png(sheet.figure)


def _lines(axes: Axes, name: str, history: History) -> dict[str, Line2D]:
    """Draw what there is of a measurement; return the lines by their names."""
    main, *others = history.stages
    drawn = {"validation": _line(axes, history.curve(main, VALIDATION + name), BLUE, "-", 1.8)}
    if name in history.names(main):
        drawn["training"] = _line(axes, history.curve(main, name), GREY, ":", 1.2)
    for stage, colour in zip(others, cycle((PURPLE, ORANGE)), strict=False):
        if VALIDATION + name in history.names(stage):
            curve = history.curve(stage, VALIDATION + name)
            label = f"validation with {STAGES.get(stage, stage)}"
            drawn[label] = _line(axes, curve, colour, "--", 1.2)
    return drawn


def _line(axes: Axes, curve: Curve, colour: str, dashes: str, width: float) -> Line2D:
    marker = "." if len(curve.epochs) <= FEW else ""
    look = {"color": colour, "linestyle": dashes, "linewidth": width, "marker": marker}
    (line,) = axes.plot(curve.epochs, curve.values, **look)  # type: ignore[arg-type]
    line.set_zorder(2 + width)
    return line


def _mark(axes: Axes, marks: Mapping[str, int]) -> dict[str, Line2D]:
    """Draw a line at each epoch at which something happened."""
    return {
        f"{name}: epoch {epoch}": axes.axvline(epoch, color=INK, linewidth=0.9, linestyle=dashes)
        for (name, epoch), dashes in zip(marks.items(), cycle(DASHES), strict=False)
    }


def _scale(axes: Axes, lines: Sequence[Line2D]) -> None:
    """A logarithmic axis, if it is worth one."""
    values = np.concatenate([np.asarray(line.get_ydata(), np.float64) for line in lines])
    known = values[np.isfinite(values)]
    if len(known) and known.min() > 0 and known.max() > STEEP * known.min():
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
