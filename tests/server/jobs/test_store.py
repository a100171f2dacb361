"""The store: what was acknowledged is there, and only who holds a lease can change a job."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, event
from stored import LEASE_S, counts, query, told

from khot_server.jobs import groups
from khot_server.jobs.database import DatabaseUnavailable
from khot_server.jobs.records import (
    Artifact,
    DatasetGone,
    JobNotFound,
    Options,
    RequestIdReused,
    TooManyJobs,
)
from khot_server.jobs.schema import metadata
from khot_server.jobs.spec import FeatureSelectionSpec, VaeSpec
from khot_server.jobs.states import FailureKind, IllegalTransition, JobState
from khot_server.jobs.store import JobStore
from khot_server.jobs.submission import Submission

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
    assert counts(store)[JobState.QUEUED] == 3
    assert len(store.events("a", first.id, 0)) == 1


def test_a_repeated_submit_returns_the_job_as_it_is_by_then(store, spec):
    job = store.submit("a", "r1", spec)
    store.leases.claim("runner", LEASE_S)
    assert store.submit("a", "r1", spec) == store.get("a", job.id)


def test_a_request_id_with_another_spec_is_refused(store, spec):
    store.submit("a", "r1", spec)
    with pytest.raises(RequestIdReused, match="request_id: must be new.*got 'r1' with another"):
        store.submit("a", "r1", FeatureSelectionSpec(dataset="digits", k=11))
    assert counts(store)[JobState.QUEUED] == 1


def test_the_same_request_from_many_threads_makes_one_job(store, spec):
    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(lambda i: store.submit("a", f"r{i % 5}", spec).id, range(100)))
    assert len(set(made)) == 5
    assert counts(store)[JobState.QUEUED] == 5


def test_of_many_at_once_each_is_answered_by_itself(tmp_path, spec):
    store = JobStore(tmp_path / "few.sqlite3", max_tenant_jobs=2)
    other, options = FeatureSelectionSpec(dataset="digits", k=5), Options(labels={"of": "a"})
    before = store.submit("a", "r0", spec, options)
    made = store.submit_many(
        [
            Submission("a", "r0", spec, options),  # is there
            Submission("a", "r0", other, options),
            Submission("a", "r1", spec, options),
            Submission("a", "r1", spec, options),  # is there by now
            Submission("a", "r1", spec, Options()),
            Submission("a", "r2", spec, Options()),
            Submission("b", "r2", spec, Options(), "gone"),
            Submission("b", "r3", other, Options(priority=3)),
        ]
    )
    assert made[0] == before and made[2] == made[3] != before
    reused = RequestIdReused
    kinds = [reused, reused, TooManyJobs, DatasetGone]
    assert [type(made[place]) for place in (1, 4, 5, 6)] == kinds
    assert "at most 2 without an end; got 3" in str(made[5])
    for tenant, job in (("a", made[2]), ("b", made[7])):
        assert store.get(tenant, job.id) == job
        assert [event.sequence for event in store.events(tenant, job.id, 0)] == [1]
    assert made[2].options == options and made[7].options.priority == 3
    assert counts(store)[JobState.QUEUED] == 3
    store.close()


def test_a_job_of_another_tenant_is_not_found(store, spec):
    job = store.submit("a", "r1", spec)
    for tenant, job_id in (("b", job.id), ("a", "nope")):
        with pytest.raises(JobNotFound, match=f"job_id: must be a job of '{tenant}'; got"):
            store.get(tenant, job_id)
        with pytest.raises(JobNotFound, match="job_id"):
            store.events(tenant, job_id, 0)


# Wishes.


def test_a_queued_job_is_cancelled_or_paused_at_once(store, spec):
    cancelled, paused = (store.submit("a", f"r{i}", spec).id for i in range(2))
    assert store.cancel("a", cancelled).state is JobState.CANCELLED
    assert store.pause("a", paused).state is JobState.PAUSED
    assert store.leases.claim("runner", LEASE_S) is None
    assert store.resume("a", paused).state is JobState.QUEUED
    assert store.leases.claim("runner", LEASE_S).job_id == paused


@pytest.mark.parametrize(("wish", "asked"), [("cancel", "CANCELLING"), ("pause", "PAUSING")])
def test_of_a_running_job_it_is_asked_and_asked_once(store, spec, wish, asked):
    job_id = store.submit("a", "r1", spec).id
    token = store.leases.claim("runner", LEASE_S).token
    assert getattr(store, wish)("a", job_id).state == asked
    events = store.events("a", job_id, 0)
    assert getattr(store, wish)("a", job_id).state == asked
    assert store.events("a", job_id, 0) == events
    assert store.leases.states([token, "other"]) == {token: asked}
    assert store.leases.heartbeat(token, LEASE_S) == asked


def test_a_job_that_is_pausing_can_be_cancelled(store, spec):
    job_id = store.submit("a", "r1", spec).id
    token = store.leases.claim("runner", LEASE_S).token
    store.pause("a", job_id)
    assert store.cancel("a", job_id).state is JobState.CANCELLING
    store.leases.requeue(token, "as asked")
    assert store.get("a", job_id).state is JobState.CANCELLED


def test_a_failed_or_cancelled_job_is_tried_again_from_its_checkpoint(store, spec, result):
    job_id = store.submit("a", "r1", spec, Options(max_run_s=5.0)).id
    token = store.leases.claim("runner", LEASE_S).token
    store.leases.checkpointed(token, "jobs/x/3", 3)
    store.leases.fail(token, FailureKind.DEADLINE, "late")
    again = store.retry("a", job_id)
    assert (again.state, again.failure_kind, again.failure_message) == (JobState.QUEUED, None, "")
    claim = store.leases.claim("runner", LEASE_S)
    assert (claim.attempt, claim.checkpoint, claim.remaining_s) == (2, "jobs/x/3", 5.0)
    store.cancel("a", job_id)
    store.leases.requeue(claim.token, "as asked")
    assert store.retry("a", job_id).state is JobState.QUEUED


def in_state(store, spec, result, state):
    """A job that came to `state` by the store's own ways."""
    job_id = store.submit("a", f"in {state}", spec).id
    if state in (JobState.QUEUED, JobState.PAUSED, JobState.CANCELLED):
        wish = {JobState.PAUSED: store.pause, JobState.CANCELLED: store.cancel}.get(state)
        return wish("a", job_id).id if wish else job_id
    token = store.leases.claim("runner", LEASE_S).token
    if state is JobState.SUCCEEDED:
        store.leases.succeed(token, result)
    elif state is JobState.FAILED:
        store.leases.fail(token, FailureKind.INTERNAL, "no")
    elif state is not JobState.RUNNING:
        {JobState.PAUSING: store.pause, JobState.CANCELLING: store.cancel}[state]("a", job_id)
    return job_id


REFUSED = {
    "cancel": ("SUCCEEDED", "FAILED"),
    "pause": ("SUCCEEDED", "FAILED", "CANCELLED", "CANCELLING"),
    "resume": ("SUCCEEDED", "FAILED", "CANCELLED", "CANCELLING", "PAUSING"),
    "retry": ("QUEUED", "RUNNING", "PAUSING", "PAUSED", "CANCELLING", "SUCCEEDED"),
    "delete": ("QUEUED", "RUNNING", "PAUSING", "PAUSED", "CANCELLING"),
}


@pytest.mark.parametrize(("wish", "state"), [(w, s) for w in REFUSED for s in JobState])
def test_a_wish_is_refused_where_the_table_has_no_way(store, spec, result, wish, state):
    job_id = in_state(store, spec, result, state)
    assert store.get("a", job_id).state is state
    if state in REFUSED[wish]:
        with pytest.raises(IllegalTransition, match=f"job {job_id}: .*; got "):
            getattr(store, wish)("a", job_id)
        assert store.get("a", job_id).state is state
    else:
        getattr(store, wish)("a", job_id)


def test_of_a_deleted_job_nothing_is_left(store, spec, result, tmp_path):
    job_id = store.submit("a", "r1", spec, Options(labels={"team": "x"})).id
    token = store.leases.claim("runner", LEASE_S).token
    store.leases.progress(token, *told(1, 2, {"loss": 1.0}, {}))
    store.leases.succeed(token, result, [Artifact("a.csv", 1, "ab", "text/csv")])
    store.delete("a", job_id)
    with pytest.raises(JobNotFound, match="job_id"):
        store.get("a", job_id)
    for table in ("jobs", "labels", "attempts", "events", "metrics", "artifacts"):
        assert query(tmp_path, f"SELECT * FROM {table}") == []
    assert store.submit("a", "r1", spec).id != job_id


# Lists.


def test_pages_have_every_job_once_the_latest_first(store, spec):
    ids = [store.submit("a", f"r{i}", spec).id for i in range(7)]
    store.submit("b", "r", spec)
    seen, before = [], None
    while True:
        page, before = store.page("a", before=before, limit=3)
        seen += [job.id for job in page]
        if before is None:
            break
    assert seen == ids[::-1]


def test_a_list_is_filtered_by_state_kind_label_and_group(store, spec, result):
    options = Options(labels={"team": "vision", "run": "1"})
    first = store.submit("a", "r1", spec, options)
    second = store.submit("a", "r2", VaeSpec(dataset="digits"), Options(labels={"team": "nlp"}))
    third = store.submit("a", "r3", spec)
    store.cancel("a", third.id)
    group = store.submit_group("a", "g", [spec], Options(), dataset_ids=[None])

    def found(**filters):
        return {job.id for job in store.page("a", **filters)[0]}

    grouped = {job.id for job in group.jobs}
    assert found(states=[JobState.CANCELLED]) == {third.id}
    assert found(states=[JobState.CANCELLED, JobState.QUEUED], kind="vae") == {second.id}
    assert found(with_labels={"team": ""}) == {first.id, second.id}
    assert found(with_labels={"team": "vision", "run": "1"}) == {first.id}
    assert found(with_labels={"team": "vision", "run": "2"}) == set()
    assert found(group_id=group.id) == grouped
    assert found() == {first.id, second.id, third.id} | grouped
    assert {job.id: job.options for job in store.page("a")[0]}[first.id] == options


def test_listed_jobs_come_without_results(store, spec, result):
    job_id = store.submit("a", "r1", spec).id
    store.leases.succeed(store.leases.claim("runner", LEASE_S).token, result)
    assert store.page("a")[0][0].result is None
    assert store.get("a", job_id).result == result


# Groups.


def test_a_group_is_stored_whole_and_once(store, spec):
    specs = groups.expand(spec, [1, 2], {"k": ["3", "4"]})
    ids = [None] * 4
    group = store.submit_group("a", "g", specs, Options(), axes=["k"], dataset_ids=ids)
    assert [(j.spec.k, j.spec.seed) for j in group.jobs] == [(3, 1), (3, 2), (4, 1), (4, 2)]
    assert {job.group_id for job in group.jobs} == {group.id}
    again = store.submit_group("a", "g", specs, Options(), axes=["k"], dataset_ids=ids)
    assert again == group and counts(store)[JobState.QUEUED] == 4
    with pytest.raises(RequestIdReused, match="request_id: must be new"):
        store.submit_group("a", "g", specs[:1], Options(), axes=["k"], dataset_ids=[None])
    with pytest.raises(JobNotFound, match="group_id: must be a group of 'b'"):
        store.group("b", group.id)


def test_a_group_that_is_too_large_leaves_no_job(tmp_path, spec):
    store = JobStore(tmp_path / "small.sqlite3", max_tenant_jobs=3)
    specs = groups.expand(spec, range(4), {})
    with pytest.raises(TooManyJobs, match="'a' may have at most 3 without an end; got 4"):
        store.submit_group("a", "g", specs, Options(), dataset_ids=[None] * 4)
    assert counts(store)[JobState.QUEUED] == 0
    store.close()


def test_a_data_set_that_was_deleted_meanwhile_is_told(store, spec):
    with pytest.raises(DatasetGone, match="dataset: must be there; got 'digits'"):
        store.submit("a", "r1", spec, dataset_id="0" * 32)
    assert counts(store)[JobState.QUEUED] == 0


# Events and metrics.


def test_events_are_numbered_from_1_without_gaps_and_read_in_pages(store, spec, result):
    job = store.submit("a", "r1", spec)
    other = store.submit("a", "r2", spec)
    token = store.leases.claim("runner", LEASE_S).token
    for step in (1, 2, 3):
        store.leases.progress(token, *told(step, 3, {"loss": 1 / step}, {3: step, 4: 1}))
    store.leases.succeed(token, result)
    events = store.events("a", job.id, 0)
    assert [e.sequence for e in events] == [1, 2, 3, 4, 5, 6]
    assert [e.kind for e in events] == ["state", "state", *["progress"] * 3, "state"]
    seen = events[3]
    assert (seen.progress.step, seen.progress.total_steps, seen.state) == (2, 3, None)
    assert (seen.progress.metrics, seen.counted.iterations) == ({"loss": 0.5}, {3: 2, 4: 1})
    pages = [store.events("a", job.id, after, limit=2) for after in (0, 2, 4, 6)]
    assert list(itertools.chain(*pages)) == events
    assert [e.sequence for e in store.events("a", other.id, 0)] == [1]


def test_events_of_all_jobs_come_in_order(store, spec):
    assert store.last_event_id() == 0 and store.new_events(0) == []
    ids = [store.submit("a", f"r{i}", spec).id for i in range(3)]
    store.leases.claim("runner", LEASE_S)
    found = store.new_events(0)
    assert [stored.job_id for stored in found] == [*ids, ids[0]]
    assert [stored.id for stored in found] == sorted(stored.id for stored in found)
    assert store.last_event_id() == found[-1].id
    assert store.new_events(found[1].id, limit=1) == [found[2]]
    assert found[3].event == store.events("a", ids[0], 1)[0]


def test_a_replayed_step_makes_no_second_point(store, spec, tmp_path):
    store.submit("a", "r1", spec)
    token = store.leases.claim("runner", LEASE_S).token
    for value in (0.5, 0.25):
        store.leases.progress(token, *told(7, 10, {"loss": value, "accuracy": 1 - value}, {}))
    points = query(tmp_path, "SELECT name, step, value FROM metrics ORDER BY name")
    assert points == [("accuracy", 7, 0.75), ("loss", 7, 0.25)]


def test_series_are_by_name_and_step(store, spec):
    job = store.submit("a", "r1", spec)
    token = store.leases.claim("runner", LEASE_S).token
    for step in (1, 2, 10):
        store.leases.progress(token, *told(step, 10, {"loss": 1 / step, "b": 0.0}, {}))
    loss = [(1, 1.0), (2, 0.5), (10, 0.1)]
    assert store.series("a", job.id)["loss"] == loss
    assert store.series("a", job.id, ["loss"], after_step=1) == {"loss": loss[1:]}
    assert store.series("a", job.id, ["none"]) == {}


def test_a_metric_that_is_no_number_does_no_harm(store, spec):
    job = store.submit("a", "r1", spec)
    token = store.leases.claim("runner", LEASE_S).token
    store.leases.progress(token, *told(1, 10, {"loss": float("nan")}, {}))
    assert str(store.events("a", job.id, 2)[0].progress.metrics["loss"]) == "nan"
    assert store.series("a", job.id) == {"loss": [(1, None)]}


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
    assert query(tmp_path, "SELECT version_num FROM alembic_version") == [("0002",)]


def test_a_database_of_a_later_version_is_refused(store, tmp_path):
    query(tmp_path, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(RuntimeError, match="job store: database must be of this version.*9999"):
        JobStore(tmp_path / "jobs.sqlite3")


def test_commits_are_synced_and_keys_are_checked(store):
    with store.database.reading() as connection:
        pragmas = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        found = [connection.exec_driver_sql(f"PRAGMA {p}").scalar() for p in pragmas]
    assert found == ["wal", 2, 1, 10_000]


def test_a_full_or_locked_database_is_told_in_words(store, spec, tmp_path, monkeypatch):
    store.submit("a", "r1", spec)
    query(tmp_path, "PRAGMA journal_mode")  # it is ours alone
    with store.database.reading() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
    event.listen(store.database._engine, "begin", _no_more_pages(pages))
    with pytest.raises(DatabaseUnavailable, match="database: must be on a disk with room.* full"):
        store.submit("a", "x" * 100_000, spec)
    assert counts(store)[JobState.QUEUED] == 1


def _no_more_pages(pages):
    def limit(connection):
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    return limit


def test_a_database_of_the_first_version_is_brought_up(tmp_path, clock):
    path = tmp_path / "jobs.sqlite3"
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", "khot_server.jobs:migrations")
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
    engine.dispose()
    spec = '{"feature_selection":{"dataset":"digits","epochs":30,"k":10,"seed":0}}'
    result = (
        '{"feature_selection":{"feature_shape":[8,8],"features":[1,2],"scores":[0.5],'
        '"test_accuracy":0.9,"test_loss":0.25}}'
    )
    query(
        tmp_path,
        "INSERT INTO jobs (id, tenant, request_id, spec, state, failure_message, result, attempts,"
        " lost_attempts, last_sequence, create_time, update_time)"
        " VALUES ('j', 'a', 'r', ?, 'SUCCEEDED', '', ?, 1, 0, 0, 1.0, 2.0)",
        spec,
        result,
    )
    store = JobStore(path, clock=clock)
    job = store.get("a", "j")
    assert job.spec == FeatureSelectionSpec(dataset="digits", k=10, epochs=30)
    assert job.result.test == {"loss": 0.25, "accuracy": 0.9}
    store.close()


def test_every_transaction_is_told_of_with_its_time(tmp_path, spec):
    seen = []
    store = JobStore(tmp_path / "jobs.sqlite3", observe=lambda *told: seen.append(told))
    seen.clear()
    job = store.submit("a", "r1", spec)
    store.get("a", job.id)
    with pytest.raises(JobNotFound, match="must be a job of 'b'"):
        store.cancel("b", job.id)
    store.close()
    assert [operation for operation, _ in seen] == ["write", "read", "write"], "a failed one too"
    assert all(0 < seconds < 10 for _, seconds in seen)
