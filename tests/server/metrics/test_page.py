"""The table of metrics on the page is the table of the definitions."""

import subprocess
import sys

import pytest

from khot_server.metrics.definitions import DEFINITIONS
from khot_server.metrics.page import BEGIN, END, markdown, with_table


def test_the_page_has_the_table():
    command = [sys.executable, "-m", "khot_server.metrics.page", "--check"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_table_has_a_row_for_each_metric():
    head, rule, *rows = markdown().splitlines()
    assert [row.split("`")[1] for row in rows] == [definition.name for definition in DEFINITIONS]
    assert {line.count("|") for line in (head, rule, *rows)} == {5}


def test_the_table_goes_between_the_markers_and_the_rest_stays():
    page = f"# a\n\n{BEGIN}\nold\n{END}\n\nb\n"
    written = with_table(page)
    assert written == f"# a\n\n{BEGIN}\n{markdown()}\n{END}\n\nb\n"
    assert with_table(written) == written


@pytest.mark.parametrize("page", ["", BEGIN, END, f"{END}{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_page_without_its_markers_is_refused(page):
    with pytest.raises(ValueError, match="must have <!-- metrics --> and then"):
        with_table(page)
