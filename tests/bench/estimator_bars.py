"""Draw how far each estimator is from the exact gradient, as an SVG: a panel for each k."""

from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

from svg import BLUE, GREEN, GREY, INK, RED, card, element, note

Row = Mapping[str, object]

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
    return card(width, height, LEFT, title, (*body, note(caption, LEFT, height - 18)))


def panel(at: int, k: int, rows: Sequence[Row]) -> Iterator[str]:
    most = {name: max(_reach(row, name) for row in rows) or 1.0 for name, _ in COLUMNS}
    left = LEFT + at * (PANEL + LEFT + GAP)
    bottom = HEAD + STEP * len(rows) - 4
    yield element("text", f"k = {k}, {FIGURES[k]}", x=left, y=60, fill=INK)
    for place, (name, colour) in enumerate(COLUMNS):
        start = left + NAMES + place * (COLUMN + NUMBER + GAP)
        yield element("text", name, x=start, y=HEAD - 16, fill=colour, font_size=10)
        yield element("line", x1=start, x2=start, y1=HEAD - 8, y2=bottom, stroke=GREY)
    for line, row in enumerate(rows):
        middle, title = HEAD + STEP * line + 3, str(row["estimator"])
        bold = {"font_weight": "bold"} if title.startswith("SIMPLE") else {}
        yield element("text", escape(title), x=left, y=middle + 4, fill=INK, font_size=11, **bold)
        for place, (name, colour) in enumerate(COLUMNS):
            start = left + NAMES + place * (COLUMN + NUMBER + GAP)
            yield from entry(start, middle, row, name, colour, COLUMN / most[name])


def entry(start: int, middle: int, row: Row, name: str, colour: str, scale: float) -> Iterator[str]:
    value = float(str(row[name]))
    long = value * scale
    if name == "error":
        end, spread = start + long, float(str(row["spread"])) * scale
        ends = {
            "x1": max(float(start), end - spread),
            "x2": end + spread,
            "y1": middle,
            "y2": middle,
        }
        yield element("line", **ends, stroke=colour, stroke_opacity=0.4, stroke_width=3)
        yield element("circle", cx=end, cy=middle, r=3.2, fill=colour)
    else:
        width = max(long, 0.0)
        yield element("rect", x=start, y=middle - 5, width=width, height=10, fill=colour)
    yield note(f"{value:.3f}", start + COLUMN + NUMBER, middle + 4, text_anchor="end")


def _reach(row: Row, name: str) -> float:
    spread = float(str(row["spread"])) if name == "error" else 0.0
    return float(str(row[name])) + spread
