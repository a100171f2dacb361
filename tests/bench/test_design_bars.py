"""The picture of the designs: a bar for each and every measure, inside the card."""

import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest

SVG = "{http://www.w3.org/2000/svg}"
ROWS = [
    {"design": "exact", "max z": 2.1, "entropy": 3.1, "greatest entropy": 3.15, "time": 0.03},
    {"design": "not", "max z": 7e5, "entropy": 9.0, "greatest entropy": 3.15, "time": 1e6},
    {"design": "still", "max z": 0.0, "entropy": 0.0, "greatest entropy": 3.15, "time": 1.0},
]


def picture(rows, draws):
    script = Path(__file__).with_name("design_bars.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(script.parent))  # as for a script
        svg = runpy.run_path(str(script))["svg"]
    return ElementTree.fromstring(svg(rows, draws, (128, 784, 50)))


@pytest.fixture(scope="module")
def drawn():
    return picture(ROWS, 1_000_000)


def test_every_design_has_its_bars(drawn):
    texts = [text.text for text in drawn.findall(f"{SVG}text")]
    assert {"exact", "not", "still"} <= set(texts) and "1,000,000 draws" in texts[0]
    assert len(drawn.findall(f"{SVG}rect")) == 1 + 2 * 3 * 3


def test_nothing_leaves_the_card(drawn):
    _, _, width, height = map(float, drawn.get("viewBox").split())
    for bar in drawn.findall(f"{SVG}rect")[1:]:
        x, y, wide, tall = (float(bar.get(name)) for name in ("x", "y", "width", "height"))
        assert x > 0 and x + wide < width and y > 0 and y + tall < height


def test_what_fails_is_red_and_the_lines_are_where_their_values_are(drawn):
    bars = drawn.findall(f"{SVG}rect")[2::2]
    assert [bar.get("fill") for bar in bars[:6]] == 2 * ["#0969da", "#cf222e", "#0969da"]
    five, greatest, one = (float(line.get("x1")) for line in drawn.findall(f"{SVG}line"))
    exact, still = bars[3], bars[8]
    assert one == float(still.get("x")) + float(still.get("width"))
    assert float(exact.get("x")) + float(exact.get("width")) < greatest
    assert float(bars[0].get("x")) + float(bars[0].get("width")) < five


def test_an_entropy_within_the_noise_of_the_greatest_is_not_red():
    row = {"design": "exact", "max z": 2.0, "entropy": 3.155, "greatest entropy": 3.15, "time": 1.0}
    by_draws = {draws: picture([row], draws) for draws in (1_000_000, 100_000_000)}
    colours = {
        draws: drawn.findall(f"{SVG}rect")[4].get("fill") for draws, drawn in by_draws.items()
    }
    assert colours == {1_000_000: "#0969da", 100_000_000: "#cf222e"}
