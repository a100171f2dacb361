"""Draw how far each estimator is from the exact gradient, as an SVG: a panel for each k."""

from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

Row = Mapping[str, object]

INK, GREY, PALE, BLUE, RED, GREEN = "#24292f", "#6e7781", "#eaeef2", "#0969da", "#cf222e", "#1a7f37"
FIGURES = {5: "SIMPLE's Figure 1", 1: "SIMPLE's Figure 3"}
NAMES, COLUMN, GAP, NUMBER, STEP, HEAD, LEFT = 196, 96, 22, 44, 20, 96, 24
PANEL = NAMES + 3 * (COLUMN + NUMBER) + 2 * GAP
COLUMNS = (("bias", BLUE), ("variance", RED), ("error", GREEN))


def svg(rows: Sequence[Row], instances: int, draws: int) -> str:
    """The picture: bias, variance, and mean error with its spread, for each estimator."""
    panels = {k: [row for row in rows if row["k"] == k] for k in FIGURES}
    width = 2 * PANEL + 3 * LEFT + GAP
    height = HEAD + STEP * max(map(len, panels.values())) + 48
    title = "distance of gradient estimates to the exact gradient: 1 - cosine"
    caption = (
        f"n = 10, loss |z - b|^2, mean over {instances} random instances of {draws:,} draws; "
        "error: mean and standard deviation of a single draw's"
    )
    body = [line for at, k in enumerate(FIGURES) for line in panel(at, k, panels[k])]
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="ui-monospace, monospace" font-size="12">',
            f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff" stroke="#d0d7de"/>',
            f'<text x="{LEFT}" y="30" fill="{INK}" font-weight="bold">{title}</text>',
            *body,
            f'<text x="{LEFT}" y="{height - 18}" fill="{GREY}" font-size="10">{caption}</text>',
            "</svg>\n",
        )
    )


def panel(at: int, k: int, rows: Sequence[Row]) -> Iterator[str]:
    most = {name: max(_reach(row, name) for row in rows) or 1.0 for name, _ in COLUMNS}
    left = LEFT + at * (PANEL + LEFT + GAP)
    yield f'<text x="{left}" y="60" fill="{INK}">k = {k}, {FIGURES[k]}</text>'
    for place, (name, colour) in enumerate(COLUMNS):
        start = left + NAMES + place * (COLUMN + NUMBER + GAP)
        yield f'<text x="{start}" y="{HEAD - 16}" fill="{colour}" font-size="10">{name}</text>'
        bottom = HEAD + STEP * len(rows) - 4
        yield (f'<line x1="{start}" x2="{start}" y1="{HEAD - 8}" y2="{bottom}" stroke="{GREY}"/>')
    for line, row in enumerate(rows):
        middle = HEAD + STEP * line + 3
        bold = ' font-weight="bold"' if str(row["estimator"]).startswith("SIMPLE") else ""
        yield (
            f'<text x="{left}" y="{middle + 4}" fill="{INK}" font-size="11"{bold}>'
            f"{escape(str(row['estimator']))}</text>"
        )
        for place, (name, colour) in enumerate(COLUMNS):
            start = left + NAMES + place * (COLUMN + NUMBER + GAP)
            yield from entry(start, middle, row, name, colour, COLUMN / most[name])


def entry(start: int, middle: int, row: Row, name: str, colour: str, scale: float) -> Iterator[str]:
    value = float(str(row[name]))
    end = start + value * scale
    if name == "error":
        spread = float(str(row["spread"])) * scale
        low, far = max(start, end - spread), end + spread
        yield (
            f'<line x1="{low:.1f}" x2="{far:.1f}" y1="{middle}" y2="{middle}" '
            f'stroke="{colour}" stroke-opacity="0.4" stroke-width="3"/>'
        )
        yield f'<circle cx="{end:.1f}" cy="{middle}" r="3.2" fill="{colour}"/>'
    else:
        yield (
            f'<rect x="{start}" y="{middle - 5}" width="{max(end - start, 0.0):.1f}" height="10" '
            f'fill="{colour}"/>'
        )
    yield (
        f'<text x="{start + COLUMN + NUMBER}" y="{middle + 4}" fill="{GREY}" font-size="10" '
        f'text-anchor="end">{value:.3f}</text>'
    )


def _reach(row: Row, name: str) -> float:
    spread = float(str(row["spread"])) if name == "error" else 0.0
    return float(str(row[name])) + spread
