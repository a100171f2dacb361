"""Draw how the error of each root finder falls, as an SVG: a panel for each kind of step."""

import math
from collections.abc import Iterator, Mapping, Sequence

Errors = Mapping[tuple[str, str | None], Sequence[float]]  # by step and guess

TITLES = {"newton": "Newton", "halley": "Halley", "ours": "ours: Halley on logit(f/n)"}
COLOURS = {  # by guess
    None: "#8c959f",
    "zero": "#bf8700",
    "quantile": "#1a7f37",
    "logit": "#0969da",
    "both": "#cf222e",
    "probit": "#8250df",
}
INK, GREY, PALE = "#24292f", "#6e7781", "#eaeef2"
PANEL, HEIGHT, LEFT, GAP, TOP = 276, 250, 60, 30, 118
COLUMNS = (0, 108, 186)  # of the names of the lines
ITERATIONS, FLOOR, TOLERANCE = 12, -12, -8  # the axes; errors as powers of ten


def svg(errors: Errors, batch: int, n: int) -> str:
    """The picture: the largest error of the batch at the guess and after each iteration."""
    ceiling = 3 * math.ceil(max(math.log10(max(line)) for line in errors.values()) / 3)
    width, height = LEFT + 3 * PANEL + 2 * GAP + 24, TOP + HEIGHT + 50
    title = f"largest error |sum - k| of {batch} rows of n = {n:,} after each iteration"
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="ui-monospace, monospace" font-size="12">',
            f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff" stroke="#d0d7de"/>',
            f'<text x="{LEFT}" y="30" fill="{INK}" font-weight="bold">{title}</text>',
            f'<text x="{width - 24}" y="30" fill="{GREY}" font-size="10" text-anchor="end">'
            "beside each guess: its iterations</text>",
            *(line for place in range(3) for line in panel(place, errors, ceiling)),
            "</svg>\n",
        )
    )


def panel(place: int, errors: Errors, ceiling: int) -> Iterator[str]:
    step, title = list(TITLES.items())[place]
    left = LEFT + place * (PANEL + GAP)
    yield f'<text x="{left}" y="62" fill="{INK}">{title}</text>'
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
        yield f'<line x1="{left}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}" stroke="{PALE}"/>'
        if labelled:
            yield (
                f'<text x="{left - 8}" y="{at + 4:.1f}" fill="{GREY}" font-size="10" '
                f'text-anchor="end">1e{power}</text>'
            )
    for iteration in range(0, ITERATIONS + 1, 2):
        yield (
            f'<text x="{x(iteration, left):.1f}" y="{bottom + 18}" fill="{GREY}" font-size="10" '
            f'text-anchor="middle">{iteration}</text>'
        )
    yield f'<line x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}" stroke="{GREY}"/>'
    yield (
        f'<text x="{left + PANEL / 2}" y="{bottom + 36}" fill="{GREY}" font-size="10" '
        'text-anchor="middle">iteration</text>'
    )
    at = y(TOLERANCE, ceiling)
    yield (
        f'<line x1="{left}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}" stroke="{GREY}" '
        'stroke-dasharray="4 3"/>'
    )
    yield (f'<text x="{left}" y="{at + 14:.1f}" fill="{GREY}" font-size="10">tolerance</text>')


def key(left: int, at: int, method: tuple[str, str | None], line: Sequence[float]) -> Iterator[str]:
    """The name of a line, and the iterations it took."""
    step, guess = method
    colour = COLOURS[guess]
    yield (
        f'<line x1="{left}" x2="{left + 12}" y1="{at}" y2="{at}" stroke="{colour}" '
        'stroke-width="2"/>'
    )
    yield (
        f'<text x="{left + 17}" y="{at + 4}" fill="{INK}" font-size="10">{guess or step} '
        f'<tspan fill="{GREY}">{len(line) - 1}</tspan></text>'
    )


def curve(left: int, ceiling: int, colour: str, line: Sequence[float]) -> Iterator[str]:
    powers = [max(FLOOR, math.log10(error)) if error > 0 else FLOOR for error in line]
    points = [(x(i, left), y(p, ceiling)) for i, p in enumerate(powers[: ITERATIONS + 1])]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
    for a, b in points:
        yield f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.4" fill="{colour}"/>'


def x(iteration: float, left: int) -> float:
    return left + PANEL * iteration / ITERATIONS


def y(power: float, ceiling: int) -> float:
    return TOP + HEIGHT * (ceiling - power) / (ceiling - FLOOR)
