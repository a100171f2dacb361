"""The picture of the estimators: every row is there, and inside the card."""

import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest

SVG = "{http://www.w3.org/2000/svg}"
ROWS = [
    {"k": k, "estimator": name, "bias": bias, "variance": 0.1, "error": error, "spread": 0.4}
    for k in (5, 1)
    for name, bias, error in (("exact", 0.0, 0.0), ("SIMPLE-F", 0.5, 1.0), ("a < b", 0.01, 0.3))
]


@pytest.fixture(scope="module")
def drawn():
    script = Path(__file__).with_name("estimator_bars.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(script.parent))  # as for a script
        return ElementTree.fromstring(runpy.run_path(str(script))["svg"](ROWS, 20, 10_000))


def test_every_estimator_has_its_bars_and_its_dot(drawn):
    texts = ["".join(text.itertext()) for text in drawn.findall(f"{SVG}text")]
    assert all(texts.count(name) == 2 for name in ("exact", "SIMPLE-F", "a < b"))
    assert texts.count("0.500") == 2 and any("20 random instances of 10,000" in t for t in texts)
    assert len(drawn.findall(f"{SVG}circle")) == 6
    assert len(drawn.findall(f"{SVG}rect")) == 1 + 2 * 6


def test_nothing_leaves_the_card(drawn):
    _, _, width, height = map(float, drawn.get("viewBox").split())
    for name, across, down in (("line", "x2", "y2"), ("circle", "cx", "cy"), ("text", "x", "y")):
        for shape in drawn.findall(SVG + name):
            assert 0 < float(shape.get(across)) < width and 0 < float(shape.get(down)) < height
    for bar in drawn.findall(f"{SVG}rect")[1:]:
        assert 0 < float(bar.get("x")) + float(bar.get("width")) < width


def test_the_longest_bar_of_a_panel_fills_its_column(drawn):
    widths = [float(bar.get("width")) for bar in drawn.findall(f"{SVG}rect")[1:]]
    assert max(widths) == 96 and min(widths) == 0
