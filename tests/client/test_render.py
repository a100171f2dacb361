"""What a job looks like in a terminal."""

import io
from datetime import UTC, datetime

import numpy as np
from rich.console import Console

from khot_client import FeatureSelectionResult, JobState, Progress, StateChanged
from khot_client.cli.render import describe, picture, show_progress

NOW = datetime.now(UTC)
EVENTS = [
    StateChanged(1, NOW, JobState.QUEUED, ""),
    StateChanged(2, NOW, JobState.RUNNING, "attempt 1"),
    Progress(3, NOW, 5, 10, {"loss": 0.7}),
    Progress(4, NOW, 10, 10, {"loss": 0.5, "test_accuracy": 0.875}),
    StateChanged(5, NOW, JobState.SUCCEEDED, ""),
]


def result(shape: tuple[int, ...], scores: list[float], features: list[int]):
    return FeatureSelectionResult(np.array(features), np.array(scores), 0.25, 0.75, shape)


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


def test_features_without_a_picture_are_listed_with_their_scores():
    lines = picture(result((), [0.5, 2.0, 1.0], [1, 2])).plain.splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2"]
    assert lines[0].count("█") > lines[1].count("█") and lines[0].endswith("2.000")


def test_the_description_says_how_well_they_do():
    out = shown(lambda c: c.print(describe(result((1, 2), [1.0, 2.0], [1]))), terminal=False)
    assert "1 of 2 features" in out and "test accuracy 75.0%, test loss 0.250" in out


def test_a_terminal_shows_a_bar():
    out = shown(lambda console: show_progress(console, EVENTS), terminal=True)
    assert "10/10" in out and "test accuracy 87.5%" in out and "succeeded" in out


def test_a_file_gets_lines():
    out = shown(lambda console: show_progress(console, EVENTS), terminal=False)
    step = "step 10/10  loss 0.500  test accuracy 87.5%"
    assert out.splitlines() == ["queued", "running: attempt 1", step, "succeeded"]
