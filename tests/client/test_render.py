"""What a job looks like in a terminal."""

import io
from datetime import UTC, datetime

import numpy as np
from rich.console import Console

from khot_client import (
    FeatureSelectionResult,
    JobState,
    Progress,
    Series,
    SparseRegressionResult,
    StateChanged,
    VaeResult,
)
from khot_client.cli.plots import chart
from khot_client.cli.progress import LINES, show_progress
from khot_client.cli.render import LONGEST_BAR, describe, picture

NOW = datetime.now(UTC)
EVENTS = [
    StateChanged(1, NOW, JobState.QUEUED, ""),
    StateChanged(2, NOW, JobState.RUNNING, "attempt 1"),
    Progress(3, NOW, 5, 10, {"loss": 0.7}),
    Progress(4, NOW, 10, 10, {"loss": 0.5, "validation_loss": 0.25, "validation_accuracy": 0.875}),
    StateChanged(5, NOW, JobState.SUCCEEDED, ""),
]


def result(shape: tuple[int, ...], scores: list[float], features: list[int]):
    return FeatureSelectionResult(
        features=np.array(features),
        scores=np.array(scores),
        inclusion_probabilities=np.array(scores),
        names=tuple(f"c{i}" for i in features),
        test={"loss": 0.25, "accuracy": 0.75},
        references={"all": {"loss": 0.125}},
        feature_shape=shape,
        warnings=("columns: c9 is constant",),
    )


def shown(write, *, terminal: bool) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    write(console)
    return console.file.getvalue()


def test_a_picture_has_a_block_for_each_chosen_cell():
    text = picture(result((2, 3), [0.0, 3.0, 0.0, 0.0, 0.0, 5.0], [1, 5]))
    assert text.plain == "· ██· \n· · ██"
    assert len({span.style for span in text.spans if span.style != "dim"}) == 2, "by score"


def test_equal_scores_are_drawn_too():
    assert picture(result((1, 2), [1.0, 1.0], [0, 1])).plain == "████"


def test_features_without_a_picture_are_listed_with_how_likely_they_were_chosen():
    """In bars that begin at 0: those of nearly equal ones are nearly equal."""
    lines = picture(result((), [0.1, 1.0, 0.9], [1, 2])).plain.splitlines()
    assert [line.split()[0] for line in lines] == ["c1", "c2"]
    assert [line.count("█") for line in lines] == [LONGEST_BAR, round(0.9 * LONGEST_BAR)]
    assert lines[0].endswith(" 1.000")


def test_the_description_says_how_well_they_do():
    out = shown(lambda c: c.print(describe(result((1, 2), [1.0, 2.0], [1]))), terminal=False)
    assert "1 of 2 features" in out and "test: loss 0.25, accuracy 75.0%" in out
    assert "all features: loss 0.125" in out and "columns: c9 is constant" in out


def test_a_picture_has_a_frame_in_a_terminal_alone():
    drawn = describe(result((1, 2), [1.0, 2.0], [1]))
    framed = shown(lambda c: c.print(drawn), terminal=True)
    bare = shown(lambda c: c.print(drawn), terminal=False)
    assert "╭─ 1 of 2 features ─╮" in framed and "\x1b[" in framed
    assert bare.splitlines()[:2] == ["1 of 2 features", "· ██"]


def test_a_vae_is_described_by_what_it_reached_and_the_use_of_its_units():
    usage = np.array([[0.0, 0.5, 1.0], [0.25, 0.75, np.nan]])
    reached = VaeResult(test={"elbo": -81.5}, validation={}, usage=usage, epochs_run=3)
    lines = shown(lambda c: c.print(describe(reached)), terminal=False).splitlines()
    assert lines == ["use of 2 x 3 units", "  ▒▒██", "░░▓▓  ", "test: elbo -81.5"]


def test_a_terminal_shows_a_bar():
    out = shown(lambda console: show_progress(console, EVENTS[:-1]), terminal=True)
    assert "10/10" in out and "loss 0.5  validation accuracy 87.5%" in out


def test_a_job_that_stopped_early_is_shown_as_done():
    out = shown(lambda console: show_progress(console, [EVENTS[2], EVENTS[-1]]), terminal=True)
    assert "succeeded" in out and "5/5" in out


def test_a_narrow_terminal_shows_what_matters_most():
    event = Progress(3, NOW, 5, 10, EVENTS[3].metrics, 1, "selection", 12.0, 75.0)
    console = Console(file=io.StringIO(), force_terminal=True, width=60)
    show_progress(console, [event])
    out = console.file.getvalue()
    assert "loss 0.5  1:15 left" in out and "accuracy" not in out


def test_a_file_gets_lines():
    out = shown(lambda console: show_progress(console, EVENTS), terminal=False)
    first = "step 5/10  loss 0.7"
    last = "step 10/10  loss 0.5  validation accuracy 87.5%"
    assert out.splitlines() == ["queued", "running: attempt 1", first, last, "succeeded"]


def test_a_file_gets_few_lines_of_a_long_job_and_its_last_step():
    steps = [Progress(i, NOW, i, 599, {"loss": 1 / i}, i, "selection") for i in range(1, 600)]
    out = shown(lambda c: show_progress(c, [*steps, EVENTS[-1]]), terminal=False)
    lines = out.splitlines()
    assert len(lines) <= LINES + 2 and lines[-2].startswith("step 599/599  selection epoch 599")


FALLING = Series(np.array([0, 5, 10]), np.array([2.0, 1.0, 0.0]))


def test_curves_are_drawn_over_the_same_axes():
    rising = Series(FALLING.steps, FALLING.values[::-1])
    drawn = chart({"loss": FALLING, "other": rising}, 24, 7)
    assert {str(span.style) for span in drawn.spans} >= {"cyan", "yellow"}
    lines = drawn.plain.splitlines()
    assert max(map(len, lines)) <= 24
    assert [line[:3] for line in lines[1:8]] == ["2 │", *["  │"] * 5, "0 │"]
    alone = chart({"loss": FALLING}, 24, 7).plain.splitlines()[1:8]
    begins = [len(line) - len(line[3:].lstrip()) for line in alone]
    assert begins == sorted(begins) and begins[0] == 3 and begins[-1] > 18


def test_a_curve_has_no_gaps_and_what_is_no_number_is_left_out():
    jump = Series(np.array([1, 2, 3, 100]), np.array([0.0, np.nan, 0.0, np.inf]))
    plain = chart({"loss": jump}, 40, 4).plain
    assert "loss 0" in plain and "step 3" in plain
    steep = chart({"a": Series(np.array([0, 1]), np.array([0.0, 1.0]))}, 20, 6).plain
    assert all(line[3:].strip() for line in steep.splitlines()[1:7])
    assert chart({"loss": Series(np.array([1]), np.array([np.nan]))}, 40, 4).plain.startswith("no")


def test_a_sparse_regression_is_its_equation_and_a_line_for_each_column():
    found = SparseRegressionResult(
        features=np.array([0, 2]),
        names=("u_xx", "u*u_x"),
        coefficients=np.array([0.1, -1.0]),
        intercept=0.0,
        target="u_t",
        scores=np.array([1.0, -np.inf, 2.0]),
        inclusion_probabilities=np.array([0.5, 0.0, 1.0]),
        test={"rmse": 0.25},
        references={"greedy": {"rmse": 0.5}},
    )
    lines = shown(lambda console: console.print(describe(found)), terminal=False).splitlines()
    assert lines[:3] == ["2 of 3 features", "u_t = 0.1000 u_xx - 1.000 u*u_x", ""]
    assert lines[3] == f" u_xx          0.1 {'█' * (LONGEST_BAR // 2)} 0.500"
    assert lines[4] == f"u*u_x           -1 {'█' * LONGEST_BAR} 1.000"
    assert lines[5:] == ["test: rmse 0.25", "greedy features: rmse 0.5"]
