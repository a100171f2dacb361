"""What is removed by itself, and what is not."""

import pytest
from structlog.testing import capture_logs

from khot_server.jobs.files import job_directory
from khot_server.jobs.records import Artifact
from khot_server.jobs.states import JobState
from khot_server.jobs.sweeper import Sweeper

DAY_S = 86400.0


@pytest.fixture
def sweep(store, tmp_path, clock):
    def run(ttl_s=DAY_S, quota_bytes=1 << 30):
        limits = {"ttl_s": ttl_s, "quota_bytes": quota_bytes}
        Sweeper(store.database, tmp_path, **limits, clock=clock).sweep()

    return run


@pytest.fixture
def add(store, spec, result, tmp_path, clock):
    """Make a job with a file of some bytes, ended unless it is to stay queued."""

    def make(request_id, size=10, *, ended=True):
        job_id = store.submit("a", request_id, spec).id
        if ended:
            token = store.leases.claim("runner", 30.0).token
            store.leases.succeed(token, result, [Artifact("a.csv", size, "ab", "text/csv")])
        job_directory(tmp_path, job_id).mkdir(parents=True)
        (job_directory(tmp_path, job_id) / "a.csv").write_bytes(b"x" * size)
        clock.now += 1
        return job_id

    return make


def files(tmp_path):
    return {path.name for path in (tmp_path / "jobs").iterdir()}


def test_jobs_that_ended_long_ago_go_with_their_files(store, add, sweep, clock, tmp_path):
    old, queued = add("old"), add("queued", ended=False)
    clock.now += DAY_S - 10
    store.cancel("a", queued)
    new = queued
    sweep()
    assert files(tmp_path) == {old, new}
    clock.now += 20
    sweep()
    assert files(tmp_path) == {new}
    assert [job.id for job in store.page("a")[0]] == [new]


def test_a_job_that_has_not_ended_stays_however_old(store, add, sweep, clock, tmp_path):
    job_id = add("r", ended=False)
    clock.now += 100 * DAY_S
    sweep(quota_bytes=1)
    assert files(tmp_path) == {job_id}
    assert store.get("a", job_id).state is JobState.QUEUED


def test_over_the_quota_the_files_of_the_oldest_go_and_their_results_stay(
    store, add, sweep, result, tmp_path
):
    first, second, third = (add(f"r{i}", 100) for i in range(3))
    sweep(quota_bytes=300)
    assert files(tmp_path) == {first, second, third}
    sweep(quota_bytes=250)
    assert files(tmp_path) == {second, third}
    assert store.get("a", first).result == result
    assert store.artifacts("a", first) == ()
    assert len(store.artifacts("a", second)) == 1


def test_what_goes_is_logged_with_whose_it_was(add, sweep, clock):
    first, second = add("first", 100), add("second", 100)
    with capture_logs() as lines:
        sweep(quota_bytes=150)
        clock.now += 2 * DAY_S
        sweep()
    told = [(line["event"], line["job"], line["tenant"]) for line in lines]
    assert told[0] == ("job_files_removed", first, "a")
    assert sorted(told[1:]) == sorted(("job_expired", job, "a") for job in (first, second))


def test_files_without_a_job_go(add, sweep, tmp_path):
    job_id = add("r")
    (tmp_path / "jobs" / "nobody").mkdir()
    sweep()
    assert files(tmp_path) == {job_id}


def test_without_any_job_there_is_nothing_to_do(sweep, tmp_path):
    sweep()
    assert not (tmp_path / "jobs").exists()
