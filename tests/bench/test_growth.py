"""The picture of growing times: every curve is there with its slope, and inside the card."""

import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest

SVG = "{http://www.w3.org/2000/svg}"
PANELS = {
    "left": {"a": ([(10, 0.02), (1000, 0.5), (1_000_000, 900.0)], 1.0)},
    "right": {"b": ([(10, 1.0), (100, 1.0)], 0.0), "c": ([(10, 30.0)], float("nan"))},
}


@pytest.fixture(scope="module")
def drawn():
    script = Path(__file__).with_name("growth.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(script.parent))  # as for a script
        return ElementTree.fromstring(runpy.run_path(str(script))["svg"](PANELS, 100))


def test_every_curve_has_its_points_and_slope(drawn):
    lines = [line.get("points").split() for line in drawn.findall(f"{SVG}polyline")]
    assert [len(points) for points in lines] == [3, 2, 1]
    texts = ["".join(text.itertext()) for text in drawn.findall(f"{SVG}text")]
    assert {"left", "right", "a 1.00", "b 0.00", "c nan", "1e6", "1e-2"} <= set(texts)
    assert "100 rows" in texts[0]


def test_nothing_leaves_the_card(drawn):
    _, _, width, height = map(float, drawn.get("viewBox").split())
    for line in drawn.findall(f"{SVG}polyline"):
        for point in line.get("points").split():
            x, y = map(float, point.split(","))
            assert 0 < x < width and 0 < y < height
