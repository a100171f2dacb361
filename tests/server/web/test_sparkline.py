"""A loss as a line of SVG."""

import re

import pytest

from khot_server.web.sparkline import HEIGHT, MARGIN, MOST_POINTS, WIDTH, sparkline


def points(line: str) -> list[tuple[float, float]]:
    return [tuple(map(float, pair.split())) for pair in re.findall(r"[\d.]+ [\d.]+", line)]


def test_the_line_goes_from_side_to_side_and_from_bottom_to_top():
    made = sparkline([3.0, 1.0, 2.0])
    assert made.line.startswith("M")
    top, bottom = MARGIN, HEIGHT - MARGIN
    assert points(made.line) == [(0, top), (WIDTH / 2, bottom), (WIDTH, (top + bottom) / 2)]
    assert made.area == f"{made.line}V{HEIGHT}H0Z"
    assert (made.first, made.last) == (3.0, 2.0)


def test_equal_values_are_a_line_in_the_middle():
    assert {height for _, height in points(sparkline([7.0] * 5).line)} == {HEIGHT / 2}


@pytest.mark.parametrize("values", [[], [1.0]])
def test_there_is_no_line_of_less_than_two_values(values):
    assert sparkline(values) is None


def test_many_values_become_means_that_keep_the_course():
    values = [1 - step / 100_000 for step in range(100_003)]
    found = points(sparkline(values).line)
    assert len(found) == MOST_POINTS
    heights = [height for _, height in found]
    assert heights == sorted(heights)  # downwards, as the values go
