"""What the pictures share: colours, a figure, its PNG, and words that fit.

Figures are made by hand, without pyplot, so nothing of one picture is left for the next; and
whatever settings of matplotlib the machine has, pictures of equal data have equal bytes.
"""

import io
import re
import unicodedata
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from khot_server.jobs.artifacts.made import Floats

# Those of tests/pictures that are told apart without seeing red or green.
INK, GREY, PALE = "#24292f", "#6e7781", "#d0d7de"
BLUE, ORANGE, PURPLE = "#0969da", "#bf8700", "#8250df"
SHADES = "cividis"
DPI = 144
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": PALE,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "text.color": INK,
    "text.parse_math": False,  # a name may have dollars in it
    "xtick.color": GREY,
    "ytick.color": GREY,
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw in our style, whatever the user's is."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def png(figure: Figure) -> bytes:
    """Return the picture, the same bytes for the same figure."""
    FigureCanvasAgg(figure)
    data = io.BytesIO()
    with warnings.catch_warnings():
        # a box is drawn for it; report.html has the name
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(data, format="png", metadata={"Software": None})
    return data.getvalue()


class Sheet:
    """A figure to put things on, all places and sizes in inches from its upper left corner.

    Attributes:
        figure: itself.
    """

    def __init__(self, width: float, height: float) -> None:
        self.figure = Figure(figsize=(width, height), dpi=DPI)
        self._size = width, height
        # one for all images and words: axes cost more time than what is drawn in them
        self._base = self.figure.add_axes((0, 0, 1, 1))
        self._base.set(xlim=(0, width), ylim=(height, 0))
        self._base.autoscale(False)
        self._base.axis("off")

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Return axes at this place."""
        across, down = self._size
        box = (left / across, 1 - (top + height) / down, width / across, height / down)
        return self.figure.add_axes(box)

    def image(
        self,
        values: NDArray[Any],
        left: float,
        top: float,
        width: float,
        height: float,
        **look: Any,
    ) -> None:
        """Show an array, each entry a rectangle of one colour."""
        extent = (left, left + width, top + height, top)
        self._base.imshow(values, extent=extent, interpolation="nearest", aspect="auto", **look)

    def rules(
        self, shape: tuple[int, int], left: float, top: float, width: float, height: float
    ) -> None:
        """Part the entries of an image of this shape, if they are large enough for it."""
        rows, columns = shape
        thin = min(width / columns, height / rows) * 3
        if thin > 0.1:
            down, across = np.arange(rows + 1) / rows, np.arange(columns + 1) / columns
            line: Any = {"color": "white", "linewidth": min(thin, 1.0)}
            self._base.hlines(top + height * down, left, left + width, **line)
            self._base.vlines(left + width * across, top, top + height, **line)

    def frame(self, left: float, top: float, width: float, height: float) -> None:
        """Draw a thin frame."""
        across = (left, left + width, left + width, left, left)
        down = (top, top, top + height, top + height, top)
        self._base.plot(across, down, color=PALE, linewidth=0.8)

    def legend(self, lines: Mapping[str, Line2D], left: float, top: float) -> None:
        """Name lines, in one row."""
        across, down = self._size
        self.figure.legend(
            list(lines.values()),
            list(lines),
            loc="upper left",
            bbox_to_anchor=(left / across, 1 - top / down),
            ncols=len(lines),
            handlelength=2.2,
            columnspacing=1.6,
        )

    def title(self, text: str, left: float, baseline: float) -> None:
        """Write in bold, as the titles of axes are."""
        self.words(text, left, baseline, fontsize=10, weight="bold")

    def words(self, text: str, x: float, y: float, **look: Any) -> None:
        """Write at this place."""
        self._base.text(x, y, text, **look)


def short(name: str, length: int) -> str:
    """Return a name on one line and of at most this length, its middle left out if need be."""
    line = re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in name)).strip()
    if len(line) <= length:
        return line
    head = length // 2
    return f"{line[:head]}…{line[len(line) - (length - head - 1) :]}"


def width(name: str) -> int:
    """Return how many places of a monospaced font it takes."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in name)


def tiled(pictures: Floats, shape: tuple[int, int], columns: int) -> NDArray[np.float64]:
    """Return pictures (m, h * w) side by side in one, NaN between them and where there is none."""
    height, width = shape
    rows = -(-len(pictures) // columns)
    tiles = np.full((rows * columns, height + 1, width + 1), np.nan)
    tiles[: len(pictures), :height, :width] = pictures.reshape(-1, height, width)
    grid = tiles.reshape(rows, columns, height + 1, width + 1).swapaxes(1, 2)
    return grid.reshape(rows * (height + 1), columns * (width + 1))[:-1, :-1]


def fitted(shape: tuple[int, int], width: float, height: float) -> tuple[float, float]:
    """Return the width and height of a picture of this shape that is to fit in a box.

    Its pixels are squares, unless it would be too thin to be seen.
    """
    scale = min(height / shape[0], width / shape[1])
    return max(scale * shape[1], width / 5), max(scale * shape[0], height / 5)
