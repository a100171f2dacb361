"""Draw the error, the entropy and the time of each design, as an SVG: a panel for each measure."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from svg import BLUE, GREY, INK, PALE, RED, card, element, note

Row = Mapping[str, object]

LEFT, NAMES, BAR, NUMBER, STEP, TOP, THICK = 24, 256, 190, 56, 22, 84, 12


class Panel(NamedTuple):
    """A measure: where on the scale its values are, from 0 to 1, and the line to compare with."""

    title: str
    measure: str
    place: Callable[[float], float]
    line: float
    caption: str
    shown: Callable[[float], str]
    colour: Callable[[float], str]


def svg(rows: Sequence[Row], draws: int, size: tuple[int, int, int]) -> str:
    """The picture: a bar for each design and measure, red where the design fails."""
    most = float(str(rows[0]["greatest entropy"]))
    noise = 8 / math.sqrt(draws)  # five standard errors: log p has a deviation of 1.6
    panels = (
        Panel(
            title="largest error / its s.e.",
            measure="max z",
            place=lambda z: logarithm(z) / 3.2,
            line=5,
            caption="5",
            shown=three_digits,
            colour=lambda z: RED if z > 5 else BLUE,
        ),
        Panel(
            title="entropy",
            measure="entropy",
            place=lambda entropy: entropy / 4,
            line=most,
            caption=f"{most:.3f} at most, given pi",
            shown="{:.2f}".format,
            colour=lambda entropy: RED if entropy > most + noise else BLUE,
        ),
        Panel(
            title="time, Pareto in torch = 1",
            measure="time",
            place=lambda time: (logarithm(time) + 1) / 4,
            line=1,
            caption="1",
            shown=three_digits,
            colour=lambda _: GREY,
        ),
    )
    batch, n, k = size
    title = f"sampling designs: {draws:,} draws of 5 of 10 units, times at {batch} x {n}, k = {k}"
    names = (
        element("text", escape(str(row["design"])), x=LEFT, y=TOP + STEP * i + 10, fill=INK)
        for i, row in enumerate(rows)
    )
    bars = (line for at, panel in enumerate(panels) for line in draw(at, panel, rows))
    width = LEFT + NAMES + 3 * (BAR + NUMBER) + 4
    return card(width, TOP + STEP * len(rows) + 40, LEFT, title, (*names, *bars))


def draw(at: int, panel: Panel, rows: Sequence[Row]) -> Iterator[str]:
    left, bottom = LEFT + NAMES + at * (BAR + NUMBER), TOP + STEP * len(rows)
    yield element("text", panel.title, x=left, y=62, fill=INK)
    for i, row in enumerate(rows):
        value, top = float(str(row[panel.measure])), TOP + STEP * i
        long = max(0.8, BAR * min(1.0, panel.place(value)))  # nothing is a thin bar
        whole = element("rect", x=left, y=top, width=BAR, height=THICK, fill=PALE)
        colour = panel.colour(value)
        yield whole + element("rect", x=left, y=top, width=long, height=THICK, fill=colour)
        yield note(panel.shown(value), left + BAR + 6, top + 10)
    x = left + BAR * panel.place(panel.line)
    dashes = {"stroke": INK, "stroke_dasharray": "4 3"}
    line = element("line", x1=x, x2=x, y1=TOP - 8, y2=bottom, **dashes)
    yield line + note(panel.caption, x, bottom + 14, text_anchor="middle")


def logarithm(value: float) -> float:
    return math.log10(max(value, 1e-9))


def three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 else f"{value:#.3g}"
