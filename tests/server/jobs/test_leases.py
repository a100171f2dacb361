"""Leases: who holds one alone can change a job, and what becomes of it is in one table."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
from stored import LEASE_S, counts, query, told

from khot_server.jobs.change import Change
from khot_server.jobs.records import Artifact, LeaseLost, Options, Point
from khot_server.jobs.states import (
    AFTER_STOP,
    ENDED,
    TRANSITIONS,
    FailureKind,
    IllegalTransition,
    JobState,
)
from khot_server.jobs.store import JobStore, _find

# Claiming and ending.


def test_jobs_are_claimed_in_the_order_of_their_submission(store, spec):
    submitted = [store.submit("a", f"r{i}", spec).id for i in range(4)]
    first = store.leases.claim("runner", LEASE_S)
    store.leases.requeue(first.token, "again")
    claimed = [store.leases.claim("runner", LEASE_S).job_id for _ in submitted]
    assert claimed == submitted
    assert store.leases.claim("runner", LEASE_S) is None


def test_a_claim_says_what_to_do_and_begins_an_attempt(store, spec, tmp_path):
    job = store.submit("a", "r1", spec)
    claim = store.leases.claim("runner 1", LEASE_S)
    assert (claim.job_id, claim.tenant, claim.attempt) == (job.id, "a", 1)
    assert (claim.spec, claim.checkpoint) == (spec, None)
    assert store.get("a", job.id).state is JobState.RUNNING
    assert store.get("a", job.id).attempts == 1
    assert query(tmp_path, "SELECT runner, outcome FROM attempts") == [("runner 1", None)]


def test_two_claimers_never_get_the_same_job(store, spec):
    for i in range(40):
        store.submit("a", f"r{i}", spec)

    def claim_all(runner):
        return [c.job_id for c in iter(lambda: store.leases.claim(runner, LEASE_S), None)]

    with ThreadPoolExecutor(8) as pool:
        claimed = list(itertools.chain(*pool.map(claim_all, "abcdefgh")))
    assert len(claimed) == len(set(claimed)) == 40


def test_success_stores_the_result(store, spec, result, tmp_path):
    job = store.submit("a", "r1", spec)
    store.leases.succeed(store.leases.claim("runner", LEASE_S).token, result)
    ended = store.get("a", job.id)
    assert (ended.state, ended.result) == (JobState.SUCCEEDED, result)
    assert query(tmp_path, "SELECT outcome FROM attempts") == [("SUCCEEDED",)]


def test_failure_stores_its_kind_and_message(store, spec):
    job = store.submit("a", "r1", spec)
    store.leases.fail(
        store.leases.claim("runner", LEASE_S).token, FailureKind.DIVERGED, "loss is inf"
    )
    ended = store.get("a", job.id)
    assert (ended.state, ended.failure_kind) == (JobState.FAILED, FailureKind.DIVERGED)
    assert ended.failure_message == store.events("a", job.id, 2)[0].message == "loss is inf"


def test_the_next_attempt_goes_on_from_the_recorded_checkpoint(store, spec):
    store.submit("a", "r1", spec)
    first = store.leases.claim("runner", LEASE_S)
    store.leases.checkpointed(first.token, "jobs/x/1", 10)
    store.leases.checkpointed(first.token, "jobs/x/2", 20)
    store.leases.requeue(first.token, "shut down")
    second = store.leases.claim("runner", LEASE_S)
    assert (second.attempt, second.checkpoint) == (2, "jobs/x/2")


# Leases.


def calls(store, result):
    return {
        "heartbeat": lambda token: store.leases.heartbeat(token, LEASE_S),
        "progress": lambda token: store.leases.progress(token, *told(1, 2, {"loss": 1.0}, {3: 4})),
        "checkpointed": lambda token: store.leases.checkpointed(token, "path", 1),
        "succeed": lambda token: store.leases.succeed(token, result),
        "fail": lambda token: store.leases.fail(token, FailureKind.INTERNAL, "no"),
        "requeue": lambda token: store.leases.requeue(token, "again"),
        "lost": lambda token: store.leases.lost(token, "gone"),
    }


@pytest.mark.parametrize(
    "call", ["heartbeat", "progress", "checkpointed", "succeed", "fail", "requeue", "lost"]
)
def test_a_stale_token_changes_nothing(store, spec, result, clock, call):
    job = store.submit("a", "r1", spec)
    stale = store.leases.claim("runner 1", LEASE_S).token
    clock.now += LEASE_S + 1
    store.leases.expire(LEASE_S)
    store.leases.claim("runner 2", LEASE_S)
    before = store.get("a", job.id), store.events("a", job.id, 0)
    with pytest.raises(LeaseLost, match="lease: token must hold a job"):
        calls(store, result)[call](stale)
    assert (store.get("a", job.id), store.events("a", job.id, 0)) == before


def test_a_lease_that_is_over_gives_the_job_back(store, spec, clock, tmp_path):
    job = store.submit("a", "r1", spec)
    token = store.leases.claim("runner", LEASE_S).token
    clock.now += LEASE_S
    assert store.leases.expire(LEASE_S) == 0
    store.leases.heartbeat(token, LEASE_S)
    clock.now += LEASE_S
    assert store.leases.expire(LEASE_S) == 0
    clock.now += 0.5
    assert store.leases.expire(LEASE_S) == 1
    assert store.get("a", job.id).state is JobState.QUEUED
    assert query(tmp_path, "SELECT outcome FROM attempts") == [("LOST",)]
    assert store.leases.expire(LEASE_S) == 0


LOSSES = {
    "attempt": lambda leases, token: leases.lost(token, "killed by signal 9"),
    "runner": lambda leases, token: leases.abandon("runner"),
}


@pytest.mark.parametrize(("who", "allowed"), [("attempt", 3), ("runner", 12)])
def test_too_many_lost_attempts_fail_the_job(store, spec, who, allowed):
    job = store.submit("a", "r1", spec)
    for attempt in range(1, allowed + 1):
        assert store.get("a", job.id).state is JobState.QUEUED
        claim = store.leases.claim("runner", LEASE_S)
        assert claim.attempt == attempt
        LOSSES[who](store.leases, claim.token)
    ended = store.get("a", job.id)
    assert (ended.state, ended.failure_kind) == (JobState.FAILED, FailureKind.WORKER_LOST)
    assert ended.failure_message.startswith(f"{allowed} attempts were lost; the last: ")


def test_the_deaths_of_runners_count_a_quarter_beside_those_of_attempts(store, spec):
    job = store.submit("a", "r1", spec)
    for who in ["runner"] * 7 + ["attempt"]:
        LOSSES[who](store.leases, store.leases.claim("runner", LEASE_S).token)
    assert store.get("a", job.id).state is JobState.QUEUED
    LOSSES["runner"](store.leases, store.leases.claim("runner", LEASE_S).token)
    assert store.get("a", job.id).state is JobState.FAILED
    assert store.retry("a", job.id).state is JobState.QUEUED
    LOSSES["runner"](store.leases, store.leases.claim("runner", LEASE_S).token)
    assert store.get("a", job.id).state is JobState.QUEUED, "a retry begins to count anew"


def test_requeueing_charges_nothing(store, spec):
    job = store.submit("a", "r1", spec)
    for _ in range(10):
        store.leases.requeue(store.leases.claim("runner", LEASE_S).token, "shut down")
    assert store.get("a", job.id).state is JobState.QUEUED


# States.

LEASED = tuple(AFTER_STOP)


def put(store, spec, tmp_path, state):
    """A job in `state`, whether or not the store has a way there, and a token of it."""
    job = store.submit("a", "r1", spec)
    token = store.leases.claim("runner", LEASE_S).token
    query(tmp_path, "UPDATE jobs SET state = ?", state)
    return job.id, token


ENDINGS = {
    "succeed": dict.fromkeys(LEASED, JobState.SUCCEEDED),
    "fail": dict.fromkeys(LEASED, JobState.FAILED),
    "requeue": AFTER_STOP,
    "lost": AFTER_STOP,
}


@pytest.mark.parametrize("call", ENDINGS)
@pytest.mark.parametrize("state", LEASED)
def test_every_ending_is_offered_where_an_attempt_runs(store, spec, result, tmp_path, state, call):
    job_id, token = put(store, spec, tmp_path, state)
    assert store.leases.heartbeat(token, LEASE_S) is state
    calls(store, result)[call](token)
    assert store.get("a", job_id).state is ENDINGS[call][state]
    assert store.events("a", job_id, 0)[-1].state is ENDINGS[call][state]
    with pytest.raises(LeaseLost, match="lease"):
        store.leases.heartbeat(token, LEASE_S)


@pytest.mark.parametrize(("old", "new"), list(itertools.product(JobState, JobState)))
def test_the_one_place_of_transitions_keeps_the_table(store, spec, tmp_path, old, new):
    job_id, _ = put(store, spec, tmp_path, old)
    with store.database.writing() as connection:
        change = Change(connection, _find(connection, "a", job_id), now=0.0)
        if new in TRANSITIONS[old]:
            change.transition(new, "walked")
        else:
            with pytest.raises(IllegalTransition, match=f"after {old}"):
                change.transition(new, "walked")
    assert store.get("a", job_id).state is (new if new in TRANSITIONS[old] else old)


@pytest.mark.parametrize("state", [s for s in JobState if s is not JobState.QUEUED])
def test_only_queued_jobs_are_claimed(store, spec, tmp_path, state):
    put(store, spec, tmp_path, state)
    assert store.leases.claim("runner", LEASE_S) is None


def test_counts_have_every_state(store, spec, tmp_path):
    assert counts(store) == dict.fromkeys(JobState, 0)
    put(store, spec, tmp_path, JobState.PAUSED)
    assert counts(store) == dict.fromkeys(JobState, 0) | {JobState.PAUSED: 1}


def test_ended_jobs_hold_no_lease(store, spec, result, tmp_path):
    job = store.submit("a", "r1", spec)
    store.leases.succeed(store.leases.claim("runner", LEASE_S).token, result)
    assert store.get("a", job.id).state in ENDED
    assert query(tmp_path, "SELECT lease_token, lease_expires FROM jobs") == [(None, None)]


# Whose turn it is.


def test_the_tenant_with_fewest_running_jobs_goes_first_then_the_one_served_longest_ago(
    store, spec, result, clock
):
    for tenant in "aaabbc":
        store.submit(tenant, f"r{store.last_event_id()}", spec)
    served = []
    for _ in range(6):
        clock.now += 1
        claim = store.leases.claim("runner", LEASE_S)
        served.append(claim.tenant)
        if claim.tenant == "b":  # of b none stays running, so it comes again, but not before c
            store.leases.succeed(claim.token, result)
    assert served == ["a", "b", "c", "b", "a", "a"]


def test_of_one_tenant_priority_goes_first_then_age(store, spec):
    ids = [
        store.submit("a", f"r{i}", spec, Options(priority=priority)).id
        for i, priority in enumerate((0, 5, -1, 5))
    ]
    claimed = [store.leases.claim("runner", LEASE_S).job_id for _ in ids]
    assert claimed == [ids[1], ids[3], ids[0], ids[2]]


# Trying again.


def test_after_a_loss_a_job_waits_twice_as_long_each_time(tmp_path, clock, spec):
    store = JobStore(tmp_path / "other.sqlite3", clock=clock, backoff_s=1.0)
    store.submit("a", "r1", spec)
    assert store.leases.ready_in() == 0.0
    for wait_s in (1.0, 2.0, 4.0):
        store.leases.lost(store.leases.claim("runner", LEASE_S).token, "gone")
        assert store.leases.ready_in() == wait_s
        clock.now += wait_s - 0.1
        assert store.leases.claim("runner", LEASE_S) is None
        clock.now += 0.1
    store.leases.lost(store.leases.claim("runner", LEASE_S).token, "gone")
    clock.now -= 3600  # it was ahead
    assert store.leases.ready_in() == 0.0
    assert store.leases.claim("runner", LEASE_S) is not None
    assert store.leases.ready_in() is None
    store.close()


def test_a_checkpoint_between_losses_makes_them_count_anew(store, spec):
    job = store.submit("a", "r1", spec)
    for step in range(10):
        claim = store.leases.claim("runner", LEASE_S)
        store.leases.checkpointed(claim.token, f"jobs/x/{step}", step)
        store.leases.lost(claim.token, "gone")
    assert store.get("a", job.id).state is JobState.QUEUED


def test_a_failure_of_storage_is_tried_again_and_then_told_as_such(store, spec):
    job = store.submit("a", "r1", spec)
    for _ in range(3):
        assert store.get("a", job.id).state is JobState.QUEUED
        token = store.leases.claim("runner", LEASE_S).token
        store.leases.fail(token, FailureKind.STORAGE, "no space left")
    ended = store.get("a", job.id)
    assert (ended.state, ended.failure_kind) == (JobState.FAILED, FailureKind.STORAGE)
    assert ended.failure_message == "3 attempts were lost; the last: no space left"


def test_a_runner_that_comes_back_gives_back_what_the_one_before_held(store, spec):
    mine, theirs = (store.submit("a", f"r{i}", spec).id for i in range(2))
    store.leases.claim("me", LEASE_S)
    store.leases.claim("you", LEASE_S)
    assert store.leases.abandon("me") == 1
    assert store.get("a", mine).state is JobState.QUEUED
    assert store.get("a", theirs).state is JobState.RUNNING
    assert store.leases.abandon("me") == 0


def test_a_lease_from_a_time_when_the_clock_was_ahead_is_over(store, spec, clock):
    job = store.submit("a", "r1", spec)
    store.leases.claim("runner", LEASE_S)
    clock.now -= LEASE_S / 2
    assert store.leases.expire(LEASE_S) == 0
    clock.now -= 3600
    assert store.leases.expire(LEASE_S) == 1
    assert store.get("a", job.id).state is JobState.QUEUED


# How long it may run.


def test_what_its_attempts_have_run_is_taken_from_the_time_of_a_job(store, spec, clock):
    store.submit("a", "r1", spec, Options(max_run_s=10.0))
    claim = store.leases.claim("runner", LEASE_S)
    assert claim.remaining_s == 10.0
    clock.now += 4
    store.leases.requeue(claim.token, "shut down")
    clock.now += 100
    claim = store.leases.claim("runner", LEASE_S)
    assert claim.remaining_s == 6.0
    clock.now += 7
    store.leases.requeue(claim.token, "shut down")
    assert store.leases.claim("runner", LEASE_S).remaining_s == 0.0


# What the next attempt knows.


def test_the_history_ends_at_the_checkpoint(store, spec):
    job = store.submit("a", "r1", spec)
    token = store.leases.claim("runner", LEASE_S).token
    assert store.leases.history(job.id) == ()
    for step in (1, 2, 3):
        store.leases.progress(token, *told(step, 3, {"loss": 1 / step, "other": 0.0}, {}))
    store.leases.checkpointed(token, "jobs/x/2", 2)
    known = store.leases.history(job.id)
    assert [point.step for point in known] == [1, 2]
    assert known[1] == Point(2, 1, "selection", {"loss": 0.5, "other": 0.0})


def test_attempts_tell_from_where_to_where_they_went(store, spec, clock):
    job = store.submit("a", "r1", spec)
    token = store.leases.claim("one", LEASE_S).token
    store.leases.began(token, 0)
    store.leases.progress(token, *told(4, 9, {}, {}))
    store.leases.checkpointed(token, "jobs/x/5", 5)
    store.leases.progress(token, *told(7, 9, {}, {}))
    clock.now += 3
    store.leases.lost(token, "killed by signal 9")
    store.leases.began(store.leases.claim("two", LEASE_S).token, 4)
    first, second = store.attempts("a", job.id)
    assert (first.runner, first.outcome, first.message) == ("one", "LOST", "killed by signal 9")
    assert (first.first_step, first.last_step) == (0, 7)
    assert (first.end_time - first.start_time).total_seconds() == 3
    assert (second.number, second.outcome, second.end_time) == (2, None, None)
    assert (second.first_step, second.last_step) == (4, 4)


def test_success_names_the_files(store, spec, result):
    job = store.submit("a", "r1", spec)
    files = [Artifact("b.png", 2, "cd", "image/png"), Artifact("a.csv", 1, "ab", "text/csv")]
    store.leases.succeed(store.leases.claim("runner", LEASE_S).token, result, files)
    assert store.artifacts("a", job.id) == (files[1], files[0])
