"""The picture of the root finders: every line is there, and inside the card."""

import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest

SVG = "{http://www.w3.org/2000/svg}"
ERRORS = {
    ("bisection", None): [2e5 * 2.0**-i for i in range(50)],
    ("newton", "zero"): [5e5, 1e3, 1e-3, 1e-9],
    ("halley", "both"): [1e3, 1e-4, 0.0],  # exactly the root
    ("ours", "probit"): [1e2, 1e-30],
}


@pytest.fixture(scope="module")
def drawn():
    script = Path(__file__).with_name("curves.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(script.parent))  # as for a script
        return ElementTree.fromstring(runpy.run_path(str(script))["svg"](ERRORS, 100, 1_000_000))


def test_every_panel_has_its_lines_and_bisection(drawn):
    assert len(drawn.findall(f"{SVG}polyline")) == 3 * 2
    texts = ["".join(text.itertext()) for text in drawn.findall(f"{SVG}text")]
    assert texts.count("bisection 49") == 3
    assert {"zero 3", "both 2", "probit 1"} <= set(texts)
    assert "100 rows of n = 1,000,000" in texts[0]


def test_nothing_leaves_the_card(drawn):
    _, _, width, height = map(float, drawn.get("viewBox").split())
    for line in drawn.findall(f"{SVG}polyline"):
        for point in line.get("points").split():
            x, y = map(float, point.split(","))
            assert 0 < x < width and 0 < y < height
