"""The store: what was acknowledged is there, and only who holds a lease can change a job."""

import itertools
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine

from khot_server.jobs.schema import metadata
from khot_server.jobs.spec import FeatureSelectionSpec
from khot_server.jobs.states import AFTER_STOP, TERMINAL, TRANSITIONS, IllegalTransition
from khot_server.jobs.store import (
    FailureKind,
    JobNotFound,
    JobState,
    JobStore,
    LeaseLost,
    RequestIdReused,
    _find,
)

LEASE_S = 30.0


def query(tmp_path, text, *values):
    connection = sqlite3.connect(tmp_path / "jobs.sqlite3")
    try:
        with connection:
            return connection.execute(text, values).fetchall()
    finally:
        connection.close()


# Submitting.


def test_a_submitted_job_is_queued_and_can_be_read(store, clock, spec):
    job = store.submit("a", "r1", spec)
    assert store.get("a", job.id) == job
    assert (job.tenant, job.spec, job.state, job.attempts) == ("a", spec, JobState.QUEUED, 0)
    assert (job.failure_kind, job.failure_message, job.result) == (None, "", None)
    assert job.create_time == job.update_time and job.create_time.timestamp() == clock.now
    (event,) = store.events("a", job.id, 0)
    assert (event.sequence, event.kind, event.state) == (1, "state", JobState.QUEUED)


def test_a_request_id_makes_one_job_for_each_tenant(store, spec):
    first = store.submit("a", "r1", spec)
    assert store.submit("a", "r1", spec) == first
    assert store.submit("b", "r1", spec).id != first.id
    assert store.submit("a", "r2", spec).id != first.id
    assert store.counts()[JobState.QUEUED] == 3
    assert len(store.events("a", first.id, 0)) == 1


def test_a_repeated_submit_returns_the_job_as_it_is_by_then(store, spec):
    job = store.submit("a", "r1", spec)
    store.claim("runner", LEASE_S)
    assert store.submit("a", "r1", spec) == store.get("a", job.id)


def test_a_request_id_with_another_spec_is_refused(store, spec):
    store.submit("a", "r1", spec)
    with pytest.raises(RequestIdReused, match="request_id: must be new.*got 'r1' with another"):
        store.submit("a", "r1", FeatureSelectionSpec("digits", 11))
    assert store.counts()[JobState.QUEUED] == 1


def test_the_same_request_from_many_threads_makes_one_job(store, spec):
    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(lambda i: store.submit("a", f"r{i % 5}", spec).id, range(100)))
    assert len(set(made)) == 5
    assert store.counts()[JobState.QUEUED] == 5


def test_a_job_of_another_tenant_is_not_found(store, spec):
    job = store.submit("a", "r1", spec)
    for tenant, job_id in (("b", job.id), ("a", "nope")):
        with pytest.raises(JobNotFound, match=f"job_id: must be a job of '{tenant}'; got"):
            store.get(tenant, job_id)
        with pytest.raises(JobNotFound, match="job_id"):
            store.events(tenant, job_id, 0)


# Claiming and ending.


def test_jobs_are_claimed_in_the_order_of_their_submission(store, spec):
    submitted = [store.submit("a", f"r{i}", spec).id for i in range(4)]
    first = store.claim("runner", LEASE_S)
    store.requeue(first.token, "again")
    claimed = [store.claim("runner", LEASE_S).job_id for _ in submitted]
    assert claimed == submitted
    assert store.claim("runner", LEASE_S) is None


def test_a_claim_says_what_to_do_and_begins_an_attempt(store, spec, tmp_path):
    job = store.submit("a", "r1", spec)
    claim = store.claim("runner 1", LEASE_S)
    assert (claim.job_id, claim.tenant, claim.attempt) == (job.id, "a", 1)
    assert (claim.spec, claim.checkpoint) == (spec, None)
    assert store.get("a", job.id).state is JobState.RUNNING
    assert store.get("a", job.id).attempts == 1
    assert query(tmp_path, "SELECT runner, outcome FROM attempts") == [("runner 1", None)]


def test_two_claimers_never_get_the_same_job(store, spec):
    for i in range(40):
        store.submit("a", f"r{i}", spec)

    def claim_all(runner):
        return [c.job_id for c in iter(lambda: store.claim(runner, LEASE_S), None)]

    with ThreadPoolExecutor(8) as pool:
        claimed = list(itertools.chain(*pool.map(claim_all, "abcdefgh")))
    assert len(claimed) == len(set(claimed)) == 40


def test_success_stores_the_result(store, spec, result, tmp_path):
    job = store.submit("a", "r1", spec)
    store.succeed(store.claim("runner", LEASE_S).token, result)
    ended = store.get("a", job.id)
    assert (ended.state, ended.result) == (JobState.SUCCEEDED, result)
    assert query(tmp_path, "SELECT outcome FROM attempts") == [("SUCCEEDED",)]


def test_failure_stores_its_kind_and_message(store, spec):
    job = store.submit("a", "r1", spec)
    store.fail(store.claim("runner", LEASE_S).token, FailureKind.DIVERGED, "loss is inf")
    ended = store.get("a", job.id)
    assert (ended.state, ended.failure_kind) == (JobState.FAILED, FailureKind.DIVERGED)
    assert ended.failure_message == store.events("a", job.id, 2)[0].message == "loss is inf"


def test_the_next_attempt_goes_on_from_the_recorded_checkpoint(store, spec):
    store.submit("a", "r1", spec)
    first = store.claim("runner", LEASE_S)
    store.checkpointed(first.token, "jobs/x/1", 10)
    store.checkpointed(first.token, "jobs/x/2", 20)
    store.requeue(first.token, "shut down")
    second = store.claim("runner", LEASE_S)
    assert (second.attempt, second.checkpoint) == (2, "jobs/x/2")


# Leases.


def calls(store, result):
    return {
        "heartbeat": lambda token: store.heartbeat(token, LEASE_S),
        "progress": lambda token: store.progress(token, 1, 2, {"loss": 1.0}, {3: 4}),
        "checkpointed": lambda token: store.checkpointed(token, "path", 1),
        "succeed": lambda token: store.succeed(token, result),
        "fail": lambda token: store.fail(token, FailureKind.INTERNAL, "no"),
        "requeue": lambda token: store.requeue(token, "again"),
        "lost": lambda token: store.lost(token, "gone"),
    }


@pytest.mark.parametrize(
    "call", ["heartbeat", "progress", "checkpointed", "succeed", "fail", "requeue", "lost"]
)
def test_a_stale_token_changes_nothing(store, spec, result, clock, call):
    job = store.submit("a", "r1", spec)
    stale = store.claim("runner 1", LEASE_S).token
    clock.now += LEASE_S + 1
    store.expire_leases()
    store.claim("runner 2", LEASE_S)
    before = store.get("a", job.id), store.events("a", job.id, 0)
    with pytest.raises(LeaseLost, match="lease: token must hold a job"):
        calls(store, result)[call](stale)
    assert (store.get("a", job.id), store.events("a", job.id, 0)) == before


def test_a_lease_that_is_over_gives_the_job_back(store, spec, clock, tmp_path):
    job = store.submit("a", "r1", spec)
    token = store.claim("runner", LEASE_S).token
    clock.now += LEASE_S
    assert store.expire_leases() == 0
    store.heartbeat(token, LEASE_S)
    clock.now += LEASE_S
    assert store.expire_leases() == 0
    clock.now += 0.5
    assert store.expire_leases() == 1
    assert store.get("a", job.id).state is JobState.QUEUED
    assert query(tmp_path, "SELECT outcome FROM attempts") == [("LOST",)]
    assert store.expire_leases() == 0


@pytest.mark.parametrize("how", ["lost", "expired"])
def test_too_many_lost_attempts_fail_the_job(store, spec, clock, how):
    job = store.submit("a", "r1", spec)
    for attempt in (1, 2, 3):
        assert store.get("a", job.id).state is JobState.QUEUED
        claim = store.claim("runner", LEASE_S)
        assert claim.attempt == attempt
        if how == "lost":
            store.lost(claim.token, "killed by signal 9")
        else:
            clock.now += LEASE_S + 1
            store.expire_leases()
    ended = store.get("a", job.id)
    assert (ended.state, ended.failure_kind) == (JobState.FAILED, FailureKind.WORKER_LOST)
    assert ended.failure_message.startswith("3 attempts were lost; the last: ")


def test_requeueing_charges_nothing(store, spec):
    job = store.submit("a", "r1", spec)
    for _ in range(10):
        store.requeue(store.claim("runner", LEASE_S).token, "shut down")
    assert store.get("a", job.id).state is JobState.QUEUED


# States.

LEASED = tuple(AFTER_STOP)


def put(store, spec, tmp_path, state):
    """A job in `state`, whether or not the store has a way there, and a token of it."""
    job = store.submit("a", "r1", spec)
    token = store.claim("runner", LEASE_S).token
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
    assert store.heartbeat(token, LEASE_S) is state
    calls(store, result)[call](token)
    assert store.get("a", job_id).state is ENDINGS[call][state]
    assert store.events("a", job_id, 0)[-1].state is ENDINGS[call][state]
    with pytest.raises(LeaseLost, match="lease"):
        store.heartbeat(token, LEASE_S)


@pytest.mark.parametrize(("old", "new"), list(itertools.product(JobState, JobState)))
def test_the_one_place_of_transitions_keeps_the_table(store, spec, tmp_path, old, new):
    job_id, _ = put(store, spec, tmp_path, old)
    with store._database.writing() as connection:
        job = _find(connection, "a", job_id)
        if new in TRANSITIONS[old]:
            store._transition(connection, job, new, "walked")
        else:
            with pytest.raises(IllegalTransition, match=f"after {old}"):
                store._transition(connection, job, new, "walked")
    assert store.get("a", job_id).state is (new if new in TRANSITIONS[old] else old)


@pytest.mark.parametrize("state", [s for s in JobState if s is not JobState.QUEUED])
def test_only_queued_jobs_are_claimed(store, spec, tmp_path, state):
    put(store, spec, tmp_path, state)
    assert store.claim("runner", LEASE_S) is None


def test_counts_have_every_state(store, spec, tmp_path):
    assert store.counts() == dict.fromkeys(JobState, 0)
    put(store, spec, tmp_path, JobState.PAUSED)
    assert store.counts() == dict.fromkeys(JobState, 0) | {JobState.PAUSED: 1}


def test_ended_jobs_hold_no_lease(store, spec, result, tmp_path):
    job = store.submit("a", "r1", spec)
    store.succeed(store.claim("runner", LEASE_S).token, result)
    assert store.get("a", job.id).state in TERMINAL
    assert query(tmp_path, "SELECT lease_token, lease_expires FROM jobs") == [(None, None)]


# Events and metrics.


def test_events_are_numbered_from_1_without_gaps_and_read_in_pages(store, spec, result):
    job = store.submit("a", "r1", spec)
    other = store.submit("a", "r2", spec)
    token = store.claim("runner", LEASE_S).token
    for step in (1, 2, 3):
        store.progress(token, step, 3, {"loss": 1 / step}, {3: step, 4: 1})
    store.succeed(token, result)
    events = store.events("a", job.id, 0)
    assert [e.sequence for e in events] == [1, 2, 3, 4, 5, 6]
    assert [e.kind for e in events] == ["state", "state", *["progress"] * 3, "state"]
    told = events[3]
    assert (told.step, told.total_steps, told.state) == (2, 3, None)
    assert (told.metrics, told.iterations) == ({"loss": 0.5}, {3: 2, 4: 1})
    pages = [store.events("a", job.id, after, limit=2) for after in (0, 2, 4, 6)]
    assert list(itertools.chain(*pages)) == events
    assert [e.sequence for e in store.events("a", other.id, 0)] == [1]


def test_events_of_all_jobs_come_in_order(store, spec):
    assert store.last_event_id() == 0 and store.new_events(0) == []
    ids = [store.submit("a", f"r{i}", spec).id for i in range(3)]
    store.claim("runner", LEASE_S)
    found = store.new_events(0)
    assert [stored.job_id for stored in found] == [*ids, ids[0]]
    assert [stored.id for stored in found] == sorted(stored.id for stored in found)
    assert store.last_event_id() == found[-1].id
    assert store.new_events(found[1].id, limit=1) == [found[2]]
    assert found[3].event == store.events("a", ids[0], 1)[0]


def test_a_replayed_step_makes_no_second_point(store, spec, tmp_path):
    store.submit("a", "r1", spec)
    token = store.claim("runner", LEASE_S).token
    for value in (0.5, 0.25):
        store.progress(token, 7, 10, {"loss": value, "accuracy": 1 - value}, {})
    points = query(tmp_path, "SELECT name, step, value FROM metrics ORDER BY name")
    assert points == [("accuracy", 7, 0.75), ("loss", 7, 0.25)]


def test_a_metric_that_is_no_number_does_no_harm(store, spec):
    job = store.submit("a", "r1", spec)
    token = store.claim("runner", LEASE_S).token
    store.progress(token, 1, 10, {"loss": float("nan")}, {})
    assert str(store.events("a", job.id, 2)[0].metrics["loss"]) == "nan"


# The file.


def test_reopening_keeps_everything(store, spec, tmp_path, clock):
    job = store.submit("a", "r1", spec)
    again = JobStore(tmp_path / "jobs.sqlite3", clock=clock)
    assert again.get("a", job.id) == job
    again.close()


def test_migrations_make_the_tables_that_the_code_expects(store, tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path}/jobs.sqlite3")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()
    assert query(tmp_path, "SELECT version_num FROM alembic_version") == [("0001",)]


def test_a_database_of_a_later_version_is_refused(store, tmp_path):
    query(tmp_path, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(RuntimeError, match="job store: database must be of this version.*9999"):
        JobStore(tmp_path / "jobs.sqlite3")


def test_commits_are_synced_and_keys_are_checked(store):
    with store._database.reading() as connection:
        pragmas = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        found = [connection.exec_driver_sql(f"PRAGMA {p}").scalar() for p in pragmas]
    assert found == ["wal", 2, 1, 10_000]
