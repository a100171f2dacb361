"""report.html: whole, offline, and safe whatever people call their columns."""

import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from khot_server.jobs.artifacts import words
from khot_server.jobs.artifacts.pictures import Picture
from khot_server.jobs.artifacts.report import MOST_ROWS, report
from khot_server.jobs.artifacts.result_json import result_json

VOID = {"meta", "img"}
PNG = {"curves.png": Picture(b"\x89PNG", 'a <caption> & "more"')}


class Page(HTMLParser):
    """A page as a browser would have it: elements, attributes, and text by element."""

    def __init__(self, made, pictures=PNG):
        super().__init__()
        self.open, self.attributes, self.cells, self.texts = [], [], [], {}
        self.source = report(made, pictures).decode()
        self.feed(self.source)
        self.close()
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag, attributes):
        self.attributes += [(tag, *pair) for pair in attributes]
        if tag == "td":
            self.cells.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)
        if self.open and self.open[-1] == "td":
            self.cells[-1] += data


def test_it_loads_nothing_and_runs_nothing(made):
    page = Page(made)
    assert "script" not in page.texts
    names = {name for _, name, _ in page.attributes}
    assert not any(name.startswith("on") for name in names)
    assert "href" not in names
    assert all(v.startswith("data:image/png;base64,") for _, n, v in page.attributes if n == "src")
    assert not re.search(r"https?:|url\(|@import", page.source)
    policy = ("meta", "content", "default-src 'none'; img-src data:; style-src 'unsafe-inline'")
    assert policy in page.attributes


def test_hostile_names_are_text(table):
    page = Page(table)
    for name in table.result.names:
        assert name in page.cells
    assert "<script" not in page.source
    assert table.result.warnings[0] in page.texts["li"]
    assert f"Feature selection on {table.data.name}" in page.texts["h1"]
    assert f"Feature selection on {table.data.name}" in page.texts["title"]
    assert ("img", "alt", PNG["curves.png"].caption) in page.attributes


def test_hostile_configuration_is_text(table):
    hostile = "<b onclick='x'>"
    page = Page(replace(table, config={hostile: [hostile], "other": hostile}))
    assert page.cells.count(hostile) == 2 and hostile in page.texts["th"]


@pytest.mark.parametrize(
    ("kind", "headline"),
    [
        ("pixels", "10 of 64 columns: accuracy 0.934; all columns 0.972; random columns 0.800"),
        ("table", "12 of 30 columns: R² 0.812"),
        (
            "regression",
            "10 of 30 columns: R² 0.901; all columns 0.950; greedily chosen ones 0.700",
        ),
        ("vae", "loss 98.3 on the test rows: reconstruction 70.1, prior 28.2"),
    ],
)
def test_it_begins_with_the_result(kind, headline, request):
    page = Page(request.getfixturevalue(kind))
    assert page.texts["p"][0] == headline


def test_the_bars_are_as_long_as_the_probabilities(pixels):
    page = Page(pixels)
    widths = [v for tag, name, v in page.attributes if (tag, name) == ("div", "style")]
    expected = [f"width:{100 * p:.1f}%" for p in pixels.result.inclusion_probabilities[:10]]
    assert widths == expected


def test_a_long_list_of_columns_is_cut_and_folded(pixels):
    names = tuple(f"c{i}" for i in range(500))
    result = replace(
        pixels.result,
        features=tuple(range(500)),
        names=names,
        inclusion_probabilities=(0.5,) * 1000,
    )
    page = Page(replace(pixels, result=result))
    assert "details" in page.source
    assert names[MOST_ROWS - 1] in page.cells and names[MOST_ROWS] not in page.cells
    assert "And 300 more, in result.json." in page.texts["p"]


@pytest.mark.parametrize("kind", ["pixels", "table"])
def test_the_example_for_numpy_runs_as_it_stands(kind, request, tmp_path):
    made = request.getfixturevalue(kind)
    code = "".join(Page(made).texts["code"][:1])
    (tmp_path / "result.json").write_bytes(result_json(made))
    before = f"import numpy\nrows = numpy.zeros((2, {len(made.result.scores)}))\n"
    after = "numpy.save('values.npy', values)"
    command = [sys.executable, "-W", "ignore::ResourceWarning", "-c", before + code + after]
    subprocess.run(command, cwd=tmp_path, check=True)
    values, data = np.load(tmp_path / "values.npy"), made.data
    chosen = list(made.result.features)
    expected = 0 if data.mean is None else (0 - data.mean[chosen]) / data.scale[chosen]
    np.testing.assert_allclose(values, np.broadcast_to(expected, values.shape), rtol=1e-6)


def test_the_equation_of_a_sparse_regression_is_written_out_as_text(regression):
    few = replace(
        regression.result,
        features=(0, 1, 2),
        names=("v_xx", "<b>", "v*v_x"),
        coefficients=(-1.00001, 0.5, -1e-7),
        intercept=0.0,
        target="v_t",
    )
    page = Page(replace(regression, result=few))
    assert page.texts["code"][0] == "v_t = -1.000 v_xx + 0.5000 <b> - 1.000e-07 v*v_x"
    assert words.equation(replace(few, coefficients=(2.0, 1.0, 1.0), intercept=-3.5)) == (
        "v_t = 2.000 v_xx + 1.000 <b> + 1.000 v*v_x - 3.500"
    )
    many = replace(few, names=("a",) * 25, coefficients=(1.0,) * 25)
    assert words.equation(many).endswith("+ 1.000 a + 5 more")
    assert "-1.00001" in page.cells or "-1.00001" in page.source


def test_the_numpy_of_a_sparse_regression_runs_as_it_stands(regression, tmp_path):
    code = Page(regression).texts["code"][1]
    (tmp_path / "result.json").write_bytes(result_json(regression))
    before = f"import numpy\nrows = numpy.zeros((2, {len(regression.result.scores)}))\n"
    after = "numpy.save('values.npy', predictions)"
    command = [sys.executable, "-W", "ignore::ResourceWarning", "-c", before + code + after]
    subprocess.run(command, cwd=tmp_path, check=True)
    np.testing.assert_allclose(np.load(tmp_path / "values.npy"), regression.result.intercept)


def test_it_says_where_the_result_comes_from(made):
    page = Page(made)
    for value in (made.job_id, made.provenance.spec_sha256, made.provenance.torch, "cpu"):
        assert value in page.cells
    assert "2026-01-02 03:04:05+00:00" in page.cells
