"""The examples run against a server, say what they should, and the page shows them all."""

import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "client/examples"
SHORT = {
    "submit_and_watch": ("--epochs", "2"),
    "select_columns_of_a_csv": (),
    "sample_in_batches": ("--rows", "500"),
    "remote_layer": ("--epochs", "2"),
    "learn_k": (),
}


@pytest.fixture
def run(server, monkeypatch, capsys):
    """Runs an example by its name, as a script, and returns what it prints."""

    def run(name: str, *arguments: str) -> str:
        path = str(EXAMPLES / f"{name}.py")
        monkeypatch.setattr(sys, "argv", [path, *(arguments or SHORT[name]), "--address", server])
        runpy.run_path(path, run_name="__main__")
        return capsys.readouterr().out

    return run


def test_submit_and_watch(run):
    out = run("submit_and_watch")
    assert re.search(r"QUEUED\nRUNNING\n(  step +\d+ of \d+  loss \d\.\d+\n)+SUCCEEDED\n", out)
    assert len(re.findall("#", out)) == 10 and "report.html" in out


def test_select_columns_of_a_csv(run):
    out = run("select_columns_of_a_csv")
    found, true = (re.search(rf"{word} +(.*)", out)[1] for word in ("found", "true"))
    assert found == true == "dose marker weight"


def test_sample_in_batches(run):
    out = run("sample_in_batches")
    assert re.search(r"500 rows of 784, 64 tasks: \d+ rows/s\nunits chosen of each: 50\n", out)


def test_remote_layer(run):
    out = run("remote_layer")
    assert "\nequal\n" in out and len(re.findall(r"^ +\d  ", out, re.MULTILINE)) == 2


def test_learn_k(run):
    rows = re.findall(r"^ *[\d.]+ +(\d) +(\d) +\d\.\d+", run("learn_k"), re.MULTILINE)
    assert rows == [("5", "5"), ("3", "3"), ("1", "1")]


def test_every_example_is_tested_and_has_its_output_on_the_page():
    there = {path.stem for path in EXAMPLES.glob("*.py")}
    page = (EXAMPLES / "README.md").read_text()
    shown = re.findall(r"^\$ python client/examples/(\w+)\.py", page, re.MULTILINE)
    assert there == set(SHORT) == set(shown)
