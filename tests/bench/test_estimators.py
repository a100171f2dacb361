"""What SIMPLE's Figures 1 and 3 say of the estimators, at a smaller size."""

import runpy
from pathlib import Path

import pytest
import torch

import khot


@pytest.fixture(scope="module")
def figures():
    """The rows of both figures, by k and estimator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))  # as for a script
        script = runpy.run_path(str(Path(__file__).with_name("bench_estimators.py")))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rows = [row for k in (5, 1) for row in script["measure"](k, 20, 300)]
    finally:
        torch.set_num_threads(threads)
    return {(row["k"], row["estimator"]): row for row in rows}


@pytest.mark.parametrize("other", ["SoftSub", "I-MLE"])
def test_simple_has_less_bias_and_less_error_than(figures, other):
    ours, theirs = figures[5, "SIMPLE"], figures[5, other]
    assert ours["bias"] + 2 * ours["bias_se"] < theirs["bias"] - 2 * theirs["bias_se"]
    assert ours["error"] < theirs["error"] and ours["variance"] < theirs["variance"]
    ours, theirs = figures[1, "SIMPLE"], figures[1, other]
    assert ours["bias"] < theirs["bias"] and ours["error"] < theirs["error"]


def test_its_flavours_say_where_that_comes_from(figures):
    """Exact samples take away bias, exact marginals variance; and both have some of I-MLE's."""
    simple, f, b, imle = (figures[5, name] for name in ("SIMPLE", "SIMPLE-F", "SIMPLE-B", "I-MLE"))
    assert simple["bias"] < b["bias"] < f["bias"] < imle["bias"]
    assert b["variance"] < imle["variance"] < f["variance"]


def test_simple_is_better_than_straight_through_gumbel_softmax_at_k_1(figures):
    ours, theirs = figures[1, "SIMPLE"], figures[1, "st_gumbel_softmax"]
    assert all(ours[name] < theirs[name] for name in ("bias", "variance", "error"))


def test_what_is_unbiased_of_the_gradient_has_no_bias_and_much_variance(figures):
    for k in (5, 1):
        row = figures[k, "SFE with baseline"]
        assert row["bias"] < 0.02 and row["variance"] > figures[k, "SIMPLE"]["variance"]


def test_every_estimator_that_takes_this_k_is_in_the_figure(figures):
    wanted = {row.name for row in khot.operators("estimator") if row.only_k in (None, 1)}
    shown = {"simple": "SIMPLE", "imle": "I-MLE", "softsub": "SoftSub", "score_function": "SFE"}
    assert {(1, shown.get(name, name)) for name in wanted} <= set(figures)
    assert (5, "reinmax") not in figures
