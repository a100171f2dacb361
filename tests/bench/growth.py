"""Draw how times grow with n, as an SVG: a panel for each comparison, both axes logarithmic."""

import math
from collections.abc import Iterator, Mapping, Sequence

from svg import BLUE, GREEN, GREY, INK, PALE, RED, card, element, note

Points = Sequence[tuple[int, float]]  # n and milliseconds
Curves = Mapping[str, tuple[Points, float]]  # by name: the points and the slope

COLOURS = (BLUE, RED, GREEN)
PANEL, HEIGHT, LEFT, GAP, TOP = 400, 260, 64, 44, 112
COLUMN = 134  # of the names of the curves


def svg(panels: Mapping[str, Curves], rows: int) -> str:
    """The picture: by title, the milliseconds of each curve for a batch of so many rows."""
    points = [p for curves in panels.values() for line, _ in curves.values() for p in line]
    most = math.ceil(max(math.log10(n) for n, _ in points))
    powers = [math.log10(ms) for _, ms in points]
    axes = Axes(most, math.floor(min(powers)), math.ceil(max(powers)))
    width = LEFT + len(panels) * (PANEL + GAP) - GAP + 24
    title = f"milliseconds forward and backward of {rows} rows of n units"
    hint = note("beside each curve: its slope, upper half", width - 24, 30, text_anchor="end")
    body = (
        line
        for place, (name, curves) in enumerate(panels.items())
        for line in panel(LEFT + place * (PANEL + GAP), name, curves, axes)
    )
    return card(width, TOP + HEIGHT + 50, LEFT, title, (hint, *body))


class Axes:
    """n from 10 to 10^most, times from 10^floor to 10^ceiling."""

    def __init__(self, most: int, floor: int, ceiling: int) -> None:
        self.most, self.floor, self.ceiling = most, floor, ceiling

    def x(self, n: float, left: int) -> float:
        return left + PANEL * (math.log10(n) - 1) / max(self.most - 1, 1)

    def y(self, ms: float) -> float:
        return TOP + HEIGHT * (self.ceiling - math.log10(ms)) / max(self.ceiling - self.floor, 1)


def panel(left: int, title: str, curves: Curves, axes: Axes) -> Iterator[str]:
    yield element("text", title, x=left, y=62, fill=INK)
    yield from grid(left, axes)
    for place, (name, (points, slope)) in enumerate(curves.items()):
        colour = COLOURS[place]
        yield from key(left + place * COLUMN, 86, name, slope, colour)
        yield from curve(left, points, colour, axes)


def grid(left: int, axes: Axes) -> Iterator[str]:
    right, bottom = left + PANEL, TOP + HEIGHT
    for power in range(axes.floor, axes.ceiling + 1):
        at = axes.y(10.0**power)
        yield element("line", x1=left, x2=right, y1=at, y2=at, stroke=PALE)
        yield note(f"1e{power}", left - 6, at + 4, text_anchor="end")
    for power in range(1, axes.most + 1):
        yield note(f"1e{power}", axes.x(10.0**power, left), bottom + 18, text_anchor="middle")
    yield element("line", x1=left, x2=right, y1=bottom, y2=bottom, stroke=GREY)
    yield note("n", left + PANEL / 2, bottom + 36, text_anchor="middle")


def key(left: int, at: int, name: str, slope: float, colour: str) -> Iterator[str]:
    ends = {"x1": left, "x2": left + 12, "y1": at, "y2": at}
    yield element("line", **ends, stroke=colour, stroke_width=2)
    text = f"{name} {element('tspan', f'{slope:.2f}', fill=GREY)}"
    yield element("text", text, x=left + 17, y=at + 4, fill=INK, font_size=10)


def curve(left: int, points: Points, colour: str, axes: Axes) -> Iterator[str]:
    at = [(axes.x(n, left), axes.y(ms)) for n, ms in points]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in at)
    yield element("polyline", points=path, fill="none", stroke=colour, stroke_width=1.6)
    for a, b in at:
        yield element("circle", cx=a, cy=b, r=2.4, fill=colour)
