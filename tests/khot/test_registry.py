"""The registry checks its rows, and the page shows them."""

import dataclasses
from pathlib import Path

import pytest

import khot
from khot import registry

ROOT = Path(__file__).parents[2]


def changed(**fields):
    return dataclasses.replace(khot.operator("sigmoid_topk"), **fields)


def no_docstring(x, k, *, dim=-1):
    return x


def wrong_signature(scores, count):
    return scores


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "another"}, "name must be the function's name; got sigmoid_topk"),
        ({"reference": ""}, "reference must say where the map is defined"),
        ({"differentiable_in": ("x", "lambda")}, "differentiable_in must name arguments"),
        ({"name": "no_docstring", "function": no_docstring, "differentiable_in": ()}, "docstring"),
        ({"name": "wrong_signature", "function": wrong_signature}, "signature must be"),
    ],
)
def test_bad_rows_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        changed(**fields)


def test_two_rows_of_one_name_are_refused():
    row = khot.operator("sigmoid_topk")
    with pytest.raises(ValueError, match="names must differ; got 'sigmoid_topk' twice"):
        registry._table((row, row))


def test_unknown_names_list_the_known():
    with pytest.raises(ValueError, match="must be one of sigmoid_topk.*; got 'sigmoid_top_k'"):
        khot.operator("sigmoid_top_k")


def test_rows_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        khot.operator("sigmoid_topk").native = False


def test_summary_is_the_first_line_of_the_docstring():
    assert khot.operator("sigmoid_topk").summary.startswith("Return the soft k-hot vector")


@pytest.mark.parametrize("row", khot.operators(), ids=lambda row: row.name)
def test_one_stem_everywhere(row):
    assert (ROOT / f"khot/relaxations/{row.name}.py").exists()
    assert (ROOT / f"tests/khot/test_{row.name}.py").exists()
    assert (ROOT / f"tests/bench/bench_{row.name}.py").exists()
    assert row.native == (ROOT / f"khot/_native/{row.name}.c").exists()


def test_the_page_shows_this_table():
    page = (ROOT / "khot/README.md").read_text()
    assert registry.markdown() in page, "paste the output of: python -m khot.registry"
