"""Draw how the error of each root finder falls, as an SVG: a panel for each kind of step."""

import math
from collections.abc import Iterator, Mapping, Sequence

from svg import BLUE, GREEN, GREY, INK, PALE, RED, card, element, note

Errors = Mapping[tuple[str, str | None], Sequence[float]]  # by step and guess

TITLES = {"newton": "Newton", "halley": "Halley", "ours": "ours: Halley on logit(f/n)"}
COLOURS = {  # by guess
    None: "#8c959f",
    "zero": "#bf8700",
    "quantile": GREEN,
    "logit": BLUE,
    "both": RED,
    "probit": "#8250df",
}
PANEL, HEIGHT, LEFT, GAP, TOP = 276, 250, 60, 30, 118
COLUMNS = (0, 108, 186)  # of the names of the lines
ITERATIONS, FLOOR, TOLERANCE = 12, -12, -8  # the axes; errors as powers of ten


def svg(errors: Errors, batch: int, n: int) -> str:
    """The picture: the largest error of the batch at the guess and after each iteration."""
    ceiling = 3 * math.ceil(max(math.log10(max(line)) for line in errors.values()) / 3)
    width, height = LEFT + 3 * PANEL + 2 * GAP + 24, TOP + HEIGHT + 50
    title = f"largest error |sum - k| of {batch} rows of n = {n:,} after each iteration"
    hint = note("beside each guess: its iterations", width - 24, 30, text_anchor="end")
    panels = (line for place in range(3) for line in panel(place, errors, ceiling))
    return card(width, height, LEFT, title, (hint, *panels))


def panel(place: int, errors: Errors, ceiling: int) -> Iterator[str]:
    step, title = list(TITLES.items())[place]
    left = LEFT + place * (PANEL + GAP)
    yield element("text", title, x=left, y=62, fill=INK)
    yield from grid(left, ceiling, labelled=place == 0)
    shown = [method for method in errors if method[0] in (step, "bisection")]
    for entry, method in enumerate(shown):
        at = left + COLUMNS[entry % 3], 80 + entry // 3 * 18
        yield from key(*at, method, errors[method])
    for method in shown:
        yield from curve(left, ceiling, COLOURS[method[1]], errors[method])


def grid(left: int, ceiling: int, *, labelled: bool) -> Iterator[str]:
    right, bottom = left + PANEL, TOP + HEIGHT
    for power in range(FLOOR, ceiling + 1, 3):
        at = y(power, ceiling)
        yield element("line", x1=left, x2=right, y1=at, y2=at, stroke=PALE)
        if labelled:
            yield note(f"1e{power}", left - 8, at + 4, text_anchor="end")
    for iteration in range(0, ITERATIONS + 1, 2):
        yield note(str(iteration), x(iteration, left), bottom + 18, text_anchor="middle")
    yield element("line", x1=left, x2=right, y1=bottom, y2=bottom, stroke=GREY)
    yield note("iteration", left + PANEL / 2, bottom + 36, text_anchor="middle")
    at = y(TOLERANCE, ceiling)
    yield element("line", x1=left, x2=right, y1=at, y2=at, stroke=GREY, stroke_dasharray="4 3")
    yield note("tolerance", left, at + 14)


def key(left: int, at: int, method: tuple[str, str | None], line: Sequence[float]) -> Iterator[str]:
    """The name of a line, and the iterations it took."""
    step, guess = method
    ends = {"x1": left, "x2": left + 12, "y1": at, "y2": at}
    yield element("line", **ends, stroke=COLOURS[guess], stroke_width=2)
    name = f"{guess or step} {element('tspan', str(len(line) - 1), fill=GREY)}"
    yield element("text", name, x=left + 17, y=at + 4, fill=INK, font_size=10)


def curve(left: int, ceiling: int, colour: str, line: Sequence[float]) -> Iterator[str]:
    powers = [max(FLOOR, math.log10(error)) if error > 0 else FLOOR for error in line]
    points = [(x(i, left), y(p, ceiling)) for i, p in enumerate(powers[: ITERATIONS + 1])]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    yield element("polyline", points=path, fill="none", stroke=colour, stroke_width=1.6)
    for a, b in points:
        yield element("circle", cx=a, cy=b, r=2.4, fill=colour)


def x(iteration: float, left: int) -> float:
    return left + PANEL * iteration / ITERATIONS


def y(power: float, ceiling: int) -> float:
    return TOP + HEIGHT * (ceiling - power) / (ceiling - FLOOR)
