"""The picture of polynomial programming: a band and a line for each estimator, inside the card."""

import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def drawn():
    script = Path(__file__).with_name("descent.py")
    falling = torch.linspace(0.3, 0.21, 11).unsqueeze(-1) + torch.tensor([0.0, 0.01, 0.02])
    histories = {"quick": falling, "slow": falling / 2 + 0.13}
    return ElementTree.fromstring(runpy.run_path(str(script))["svg"](histories, 10, 0.2, 0.25))


def test_every_estimator_has_its_line_and_every_level_its_name(drawn):
    texts = [text.text for text in drawn.findall(f"{SVG}text")]
    assert {"quick", "slow", "optimum", "pi = c", "0.2000", "0.2500", "100"} <= set(texts)
    assert len(drawn.findall(f"{SVG}polyline")) == len(drawn.findall(f"{SVG}polygon")) == 2


def test_lines_fall_and_stay_on_the_card(drawn):
    _, _, width, height = map(float, drawn.get("viewBox").split())
    for line in drawn.findall(f"{SVG}polyline"):
        points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        assert len(points) == 11
        assert all(0 < x < width and 0 < y < height for x, y in points)
        assert points[-1][1] > points[0][1]
