"""Groups: every combination once, and a table of what came of them."""

from dataclasses import replace
from datetime import UTC, datetime
from math import sqrt

import pytest

from khot_server.jobs import groups
from khot_server.jobs.records import Group, Job, Options
from khot_server.jobs.spec import SpecError
from khot_server.jobs.states import JobState

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def job(job_id, spec, result):
    state = JobState.QUEUED if result is None else JobState.SUCCEEDED
    return Job(job_id, "a", spec, Options(), "g", state, None, "", 1, NOW, NOW, None, result)


def test_a_grid_makes_every_combination_with_every_seed(spec):
    made = groups.expand(spec, [1, 2], {"k": ["3", "5"], "estimator": ['"simple"', '"imle"']})
    assert [(s.k, s.estimator, s.seed) for s in made] == [
        (k, estimator, seed) for k in (3, 5) for estimator in ("simple", "imle") for seed in (1, 2)
    ]
    assert groups.expand(spec, [], {}) == [spec]
    assert groups.expand(spec, [], {"hidden": ["[64, 32]"]})[0].hidden == (64, 32)


@pytest.mark.parametrize(
    ("seeds", "grid", "message"),
    [
        ([], {"kk": ["1"]}, "grid: must be a field of feature_selection.*; got 'kk'"),
        ([], {"seed": ["1"]}, "grid: must be a field .* not its seed.*; got 'seed'"),
        ([], {"k": []}, "grid.k: must have a value; got none"),
        ([], {"k": ["x"]}, "grid.k: values must be JSON, .*; got 'x'"),
        ([], {"k": ["0"]}, "feature_selection.k: must be in .*; got 0"),
        ([], {"k": ["1", "1"]}, "grid: must make no job twice"),
        ([1, 1], {}, "grid: must make no job twice"),
        (range(101), {}, "grid: must make at most 100 jobs; got 101"),
    ],
)
def test_a_grid_that_cannot_be_is_refused(spec, seeds, grid, message):
    with pytest.raises(SpecError, match=message):
        groups.expand(spec, seeds, grid)


def test_the_table_has_mean_deviation_and_best_of_each_combination(spec, result):
    def of(features, loss, accuracy):
        return replace(result, features=features, test={"loss": loss, "accuracy": accuracy})

    small, large = replace(spec, k=2), replace(spec, k=3)
    jobs = (
        job("j1", replace(small, seed=1), of((1, 2), 1.0, 0.5)),
        job("j2", replace(small, seed=2), of((2, 3), 3.0, 0.75)),
        job("j3", replace(large, seed=1), None),
        job("j4", replace(large, seed=2), of((1, 2, 3), 2.0, 0.25)),
    )
    first, second = groups.summarize(Group("g", NOW, ("k",), jobs))
    assert (first.values, first.jobs, first.succeeded) == ({"k": 2}, 2, 2)
    assert first.test["loss"] == groups.Spread(2.0, sqrt(2.0), 1.0, "j1")
    assert first.test["accuracy"] == groups.Spread(0.625, sqrt(0.03125), 0.75, "j2")
    assert first.agreement == 1 / 3
    assert (second.values, second.jobs, second.succeeded) == ({"k": 3}, 2, 1)
    assert second.test["loss"] == groups.Spread(2.0, 0.0, 2.0, "j4")
    assert second.agreement is None
