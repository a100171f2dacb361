"""The registry checks its rows, and the page shows them."""

import dataclasses
from pathlib import Path

import pytest
import torch

import khot
from khot import registry

ROOT = Path(__file__).parents[2]


def changed(row="sigmoid_topk", **fields):
    return dataclasses.replace(khot.operator(row), **fields)


def no_docstring(x, k, *, dim=-1):
    return x


def wrong_signature(scores, count):
    return scores


def odd_option(x, k, *, tau=1.0, form=None, dim=-1):
    return x


def another_default(x, k, *, tau=2.0, dim=-1):
    return x, None


def missing_default(x, k, *, tau=1.0, form, dim=-1):
    return x


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "another"}, "name must be the function's name; got sigmoid_topk"),
        ({"reference": ""}, "reference must say where the operator is defined"),
        ({"differentiable_in": ("x", "lambda")}, "differentiable_in must name arguments"),
        ({"name": "no_docstring", "function": no_docstring, "differentiable_in": ()}, "docstring"),
        ({"name": "wrong_signature", "function": wrong_signature}, "signature must be"),
        (
            {"row": "tournament_pivotal", "name": "sigmoid_topk", "function": khot.sigmoid_topk},
            r"signature must be \(pi, k, \*, ..., num_samples, dim, generator, seeds\); got \['x'",
        ),
        (
            {"row": "pi_st", "name": "sigmoid_topk", "function": khot.sigmoid_topk},
            r"signature must be \(logits, k, \*, ..., num_samples, dim, generator, seeds\)",
        ),
        ({"row": "pi_st", "differentiable_in": ("x",)}, "differentiable_in must name arguments"),
        (
            {"name": "odd_option", "function": odd_option},
            "option form must have a bool, int, float or str as its default; got None",
        ),
        (
            {"name": "missing_default", "function": missing_default},
            "option form must have a bool, .* as its default; got none",
        ),
        (
            {"with_diagnostics": khot.pi_st_with_diagnostics},
            r"with_diagnostics must take \(x: .*\), as the function does; got \(logits: ",
        ),
        (
            {"with_diagnostics": another_default},
            r"with_diagnostics must take .* = 1.0, .*, as .*; got \(x, k, \*, tau=2.0, dim=-1\)",
        ),
    ],
)
def test_bad_rows_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        changed(**fields)


def test_two_rows_of_one_name_are_refused():
    row = khot.operator("sigmoid_topk")
    with pytest.raises(ValueError, match="names must differ; got 'sigmoid_topk' twice"):
        registry._table((row, row))


def test_an_estimator_of_an_unknown_law_is_refused():
    rows = (khot.operator("tournament_pivotal"), changed("pi_st", law="gumbel"))
    with pytest.raises(ValueError, match="law must be one of tournament_pivotal; got 'gumbel'"):
        registry._table(rows)


def test_rows_are_listed_by_kind():
    kinds = {"relaxation": khot.Relaxation, "design": khot.Design, "estimator": khot.Estimator}
    listed = {kind: khot.operators(kind) for kind in kinds}
    for kind, rows in listed.items():
        assert rows and all(isinstance(row, kinds[kind]) and row.kind == kind for row in rows)
    assert set(khot.operators()) == {row for rows in listed.values() for row in rows}
    with pytest.raises(ValueError, match="kind must be one of relaxation, .*; got 'sampler'"):
        khot.operators("sampler")


def test_properties_are_the_promises_as_text():
    wanted = {"cost": "O(n)", "kernels": "sigmoid_topk", "lacks": "", "capped": "true"}
    got = registry.properties(khot.operator("sigmoid_topk"))
    assert wanted.items() <= got.items() and got["differentiable_in"] == "x, k, tau"
    estimator = registry.properties(khot.operator("pi_st"))
    assert (estimator["order"], estimator["needs_loss"]) == ("1", "false")
    for row in khot.operators():
        promises = registry.properties(row)
        assert set(promises) == {"cost", "kernels", "lacks", *row.headings}
        assert all(isinstance(text, str) for text in promises.values())


def test_options_are_the_keywords_that_are_the_operators_own():
    options = {row.name: dict(row.options) for row in khot.operators() if row.options}
    assert options == {
        "soft_topk": {"method": "exact"},
        "sparse_topk": {"p": 2.0},
        "conditional_poisson": {"fitted": True},
        "systematic": {"permuted": True},
        "iterated_poisson": {"rounds": 10},
        "simple": {"flavour": "simple", "strength": 1.0, "noise": "sum_of_gamma"},
        "score_function": {"form": "dft", "fitted": False},
        "imle": {"strength": 1.0, "noise": "sum_of_gamma"},
        "gumbel_sigmoid": {"hard": False},
        "softsub": {"hard": False},
    }
    with pytest.raises(TypeError, match="does not support item assignment"):
        khot.operator("soft_topk").options["method"] = "sinkhorn"


def test_every_public_function_with_diagnostics_is_that_of_a_row():
    found = {row.name: row.with_diagnostics for row in khot.operators() if row.with_diagnostics}
    public = {name for name in khot.__all__ if name.endswith("_with_diagnostics")}
    assert {f"{name}_with_diagnostics" for name in found} == public
    for name, function in found.items():
        assert function is getattr(khot, f"{name}_with_diagnostics")


@pytest.mark.parametrize(
    "row", [row for row in khot.operators() if row.with_diagnostics], ids=lambda row: row.name
)
def test_with_diagnostics_the_value_is_the_same(row):
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    seeds = {} if row.kind == "relaxation" else {"seeds": khot.row_seeds(0, 4)}
    value, diagnostics = row.with_diagnostics(x, 2, **{row.tau_keyword: 0.5}, **seeds)
    assert torch.equal(value, row.function(x, 2, **{row.tau_keyword: 0.5}, **seeds))
    assert diagnostics.iterations.shape == (4,)


def test_rows_say_which_k_they_take():
    one_k = {row.name for row in khot.operators() if row.one_k}
    assert one_k == {"sorted_soft_topk", "sequential_softmax_topk", "softsub"}
    assert {row.name for row in khot.operators("relaxation") if not row.fractional_k} < one_k
    optional = {row.name for row in khot.operators() if not row.needs_k and row.kind != "design"}
    assert optional == {"pi_st_implicit", "reinmax", "st_gumbel_softmax"}
    assert not any(row.needs_k for row in khot.operators("design"))


def test_the_temperature_is_a_keyword_of_every_soft_operator_and_of_no_design():
    for row in khot.operators():
        assert (row.tau_keyword in row.parameters) == (row.kind != "design")


def test_unknown_names_list_the_known():
    with pytest.raises(ValueError, match="must be one of sigmoid_topk.*; got 'sigmoid_top_k'"):
        khot.operator("sigmoid_top_k")


def test_rows_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        khot.operator("sigmoid_topk").kernels = ()


def test_summary_is_the_first_line_of_the_docstring():
    assert khot.operator("sigmoid_topk").summary.startswith("Return the soft k-hot vector")


@pytest.mark.parametrize("row", khot.operators(), ids=lambda row: row.name)
def test_one_stem_everywhere(row):
    assert (ROOT / f"khot/{row.folder}/{row.name}.py").exists()
    assert (ROOT / f"tests/khot/test_{row.name}.py").exists()
    assert (ROOT / f"tests/bench/bench_{row.name}.py").exists()
    for kernel in row.kernels:
        assert (ROOT / f"khot/_native/{kernel}.c").exists()
    if (ROOT / f"khot/_native/{row.name}.c").exists():
        assert row.name in row.kernels


def test_the_page_shows_these_tables():
    page = (ROOT / "khot/README.md").read_text()
    assert registry.markdown() in page, "paste the output of: python -m khot.registry"
