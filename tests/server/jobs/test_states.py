"""The table of states."""

import itertools

import pytest

from khot_proto.v1 import job_service_pb2 as pb
from khot_server.jobs.states import (
    AFTER_STOP,
    ENDED,
    TRANSITIONS,
    FailureKind,
    IllegalTransition,
    JobState,
    check_transition,
    markdown,
)


@pytest.mark.parametrize(
    ("ours", "wire", "prefix"),
    [(JobState, pb.JobState, "JOB_STATE_"), (FailureKind, pb.FailureKind, "FAILURE_KIND_")],
)
def test_names_are_those_of_the_wire(ours, wire, prefix):
    named = [name.removeprefix(prefix) for name in list(wire.keys())]
    assert named == ["UNSPECIFIED", *ours]


def test_the_table_has_every_state_and_ends_in_three():
    assert set(TRANSITIONS) == set(JobState)
    assert {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED} == ENDED


def test_from_every_state_the_end_can_be_reached():
    for state in JobState:
        reached, edge = {state}, {state}
        while edge:
            edge = {new for old in edge for new in TRANSITIONS[old]} - reached
            reached |= edge
        assert reached & ENDED


def test_an_attempt_that_stops_takes_a_legal_step():
    for old, new in AFTER_STOP.items():
        check_transition("job", old, new)


@pytest.mark.parametrize(("old", "new"), list(itertools.product(JobState, JobState)))
def test_only_what_the_table_has_is_allowed(old, new):
    if new in TRANSITIONS[old]:
        check_transition("job 7", old, new)
    else:
        with pytest.raises(IllegalTransition, match=f"job 7: after {old} .*; got {new}"):
            check_transition("job 7", old, new)


def test_the_page_shows_every_step():
    lines = markdown().splitlines()[2:]
    assert len(lines) == sum(len(ways) or 1 for ways in TRANSITIONS.values())
    assert "| QUEUED | RUNNING | a runner claims it |" in lines
