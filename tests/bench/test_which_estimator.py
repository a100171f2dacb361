"""The page of the library has the tables that the committed results make."""

import re
import runpy
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "khot/README.md"


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(HERE / "which_estimator.py"))


@pytest.mark.parametrize("table", ["table", "vaes", "means", "published", "limits"])
def test_the_page_shows_the_tables_of_the_results(script, table):
    hint = "paste the output of: python tests/bench/which_estimator.py"
    assert script[table]() in PAGE.read_text(), hint


def test_a_cell_with_other_than_five_seeds_says_so(script):
    (line,) = (line for line in script["table"]().splitlines() if "`score_function`" in line)
    assert line.count("(1)") == 4


def test_every_loss_and_time_of_the_advice_is_in_a_table_of_the_results(script):
    page = PAGE.read_text()
    advice = page.partition("## Which estimator should I use?")[2].partition(script["table"]())[0]
    known = script["table"]() + (HERE / "results/figure5.md").read_text()
    said = re.findall(r"\d+\.\d{2,}", advice)
    assert len(said) > 10
    assert [number for number in said if number not in known] == []
