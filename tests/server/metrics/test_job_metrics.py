"""What the events of a real store come to in the metrics."""

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from stored import LEASE_S, told

from khot_server.jobs.records import Counted
from khot_server.jobs.results import VaeResult
from khot_server.jobs.spec import KINDS, FeatureSelectionSpec, VaeSpec
from khot_server.jobs.states import FailureKind, JobState
from khot_server.jobs.store import JobStore
from khot_server.metrics import Metrics

VAE, SELECTION = VaeSpec(dataset="digits"), FeatureSelectionSpec(dataset="digits", k=10)
RESULT = VaeResult(test={}, validation={}, usage=(0.5,), usage_shape=(1, 1), epochs_run=1)
BY_JOB = ("khot_job_loss", "khot_job_progress_ratio", "khot_job_last_progress_timestamp_seconds")


class Town:
    """A store, and the metrics that follow it."""

    def __init__(self, path) -> None:
        self.clock = SimpleNamespace(now=1_700_000_000.0)
        self.store = JobStore(
            path, clock=lambda: self.clock.now, max_lost_attempts=2, backoff_s=0.0
        )
        self.leases = self.store.leases
        self.metrics = Metrics(())
        self.last = 0

    def submit(self, number=0, spec=VAE) -> str:
        return self.store.submit("a", f"r{number}", spec).id

    def claim(self) -> str:
        return self.leases.claim("runner", LEASE_S).token

    def follow(self) -> None:
        """Read what is new, as the API process does."""
        for stored in self.store.new_events(self.last):
            self.last = stored.id
            self.metrics.jobs.count(stored)
        self.metrics.jobs.take(self.store.census())

    def value(self, name, **labels) -> float:
        return self.metrics.registry.get_sample_value(name, labels)

    def values(self, name) -> dict[tuple[str, ...], float]:
        """Those that are not 0, by the values of their labels."""
        families = self.metrics.registry.collect()
        samples = [sample for family in families for sample in family.samples]
        return {tuple(s.labels.values()): s.value for s in samples if s.name == name and s.value}

    def series(self) -> int:
        return sum(len(family.samples) for family in self.metrics.registry.collect())


@pytest.fixture
def town(tmp_path):
    made = Town(tmp_path / "jobs.sqlite3")
    yield made
    made.store.close()


def test_jobs_are_counted_by_state_and_kind_as_they_are_now(town):
    town.follow()
    assert all(town.value("khot_jobs", state=s, kind=k) == 0 for s in JobState for k in KINDS)
    for number, spec in enumerate((VAE, SELECTION, SELECTION)):
        town.submit(number, spec)
    town.claim()
    town.follow()
    assert town.values("khot_jobs") == {
        ("RUNNING", "vae"): 1,
        ("QUEUED", "feature_selection"): 2,
    }
    assert town.values("khot_jobs_submitted_total") == {("feature_selection",): 2, ("vae",): 1}


def end(town, how):
    """Let a job end in one of all ways; return its outcome and that of its last attempt."""
    job_id, token = town.submit(how), town.claim()
    match how:
        case "succeeded":
            town.leases.succeed(token, RESULT)
            return "succeeded", "succeeded"
        case "cancelled":
            town.store.cancel("a", job_id)
            town.leases.requeue(token, "as asked")
            return "cancelled", "stopped"
        case "worker_lost" | "storage":
            town.leases.fail(token, FailureKind[how.upper()], "x")
            town.leases.fail(town.claim(), FailureKind[how.upper()], "x")
            return how, "lost"
    town.leases.fail(token, FailureKind[how.upper()], "x")
    return how, "failed"


@pytest.mark.parametrize("how", ["succeeded", "cancelled", *map(str.lower, FailureKind)])
def test_the_end_of_a_job_is_counted_by_its_outcome_with_its_time(town, how):
    town.follow()
    assert town.value("khot_jobs_ended_total", kind="vae", outcome=how) == 0, "from the start"
    began = town.clock.now
    outcome, attempt = end(town, how)
    assert town.clock.now == began
    town.follow()
    town.follow()
    assert town.values("khot_jobs_ended_total") == {("vae", outcome): 1}
    assert town.values("khot_attempts_total") == {(attempt,): 2 if attempt == "lost" else 1}
    assert town.value("khot_job_duration_seconds_count", kind="vae") == 1
    assert town.value("khot_nan_losses_total", kind="vae") == (how == "diverged")


def test_a_jobs_time_is_from_its_submission_to_its_end(town):
    town.submit()
    town.clock.now += 40
    token = town.claim()
    town.clock.now += 60
    town.leases.succeed(token, RESULT)
    town.follow()
    assert town.value("khot_job_duration_seconds_sum", kind="vae") == 100


def test_a_job_that_is_tried_again_ends_again_and_was_submitted_once(town):
    job_id = town.submit()
    town.leases.fail(town.claim(), FailureKind.INTERNAL, "x")
    town.store.retry("a", job_id)
    town.leases.succeed(town.claim(), RESULT)
    town.follow()
    ended = {("vae", "internal"): 1, ("vae", "succeeded"): 1}
    assert town.values("khot_jobs_ended_total") == ended
    assert town.values("khot_jobs_submitted_total") == {("vae",): 1}


def test_a_stopped_or_lost_attempt_is_no_end_of_its_job(town):
    town.submit()
    town.leases.requeue(town.claim(), "its runner shut down")
    town.leases.lost(town.claim(), "killed")
    town.follow()
    assert town.values("khot_attempts_total") == {("stopped",): 1, ("lost",): 1}
    assert town.values("khot_jobs_ended_total") == {}


def test_what_attempts_did_is_added_up(town):
    town.submit()
    token = town.claim()
    solved = {"iterations": {2: 5, 3: 1}, "residuals": {-8: 4, -7: 2}, "fallback_rows": 3}
    did = {"nonconverged_rows": 1, "epochs": 2, "rows": 640, "checkpoints_s": (0.002, 0.02)}
    counted = Counted(operator="pi_st", **solved, **did)
    progress, points, _ = told(1, 9, {"loss": 1.0}, {})
    for _ in range(2):
        town.leases.progress(token, progress, points, counted)
    town.leases.succeed(token, RESULT, checkpoints_s=[0.2])
    town.follow()
    assert town.value("khot_job_epochs_total", kind="vae") == 4
    assert town.value("khot_job_rows_total", kind="vae") == 1280
    assert town.value("khot_checkpoint_seconds_count") == 5
    assert town.value("khot_checkpoint_seconds_sum") == pytest.approx(0.244)
    pair = {"operator": "pi_st", "source": "training"}
    assert town.value("khot_root_iterations_count", **pair) == 12
    assert town.value("khot_root_iterations_sum", **pair) == 26
    assert town.value("khot_root_residual_bucket", **pair, le="1e-08") == 8
    assert town.value("khot_root_residual_bucket", **pair, le="1e-07") == 12
    assert town.value("khot_root_fallback_rows_total", **pair) == 6
    assert town.value("khot_root_nonconverged_rows_total", **pair) == 2


def test_a_running_job_tells_how_far_it_is(town):
    job_id, token = town.submit(spec=SELECTION), town.claim()
    of_job = {"job_id": job_id, "kind": "feature_selection"}
    for step, metrics in ((1, {"loss": 2.0}), (6, {"reference_all.loss": 0.5, "x": 9.0})):
        town.clock.now += 5
        town.leases.progress(token, *told(step, 8, metrics, {}))
    town.follow()
    found = [town.value(name, **of_job) for name in BY_JOB]
    assert found == [0.5, 0.75, town.clock.now]
    town.store.pause("a", job_id)
    town.follow()
    assert town.value("khot_job_loss", **of_job) == 0.5, "its attempt runs still"
    town.leases.requeue(token, "as asked")
    town.follow()
    assert [town.value(name, **of_job) for name in BY_JOB] == [None] * 3


def test_a_job_that_tells_nothing_is_timed_from_when_it_was_first_seen(town):
    """So one that hangs in its first step is found, and one that hung in another life of ours."""
    job_id, token = town.submit(), town.claim()
    before = time.time()
    for _ in range(2):
        town.follow()
    seen = town.value(BY_JOB[-1], job_id=job_id, kind="vae")
    assert before <= seen <= time.time() and not town.values("khot_job_loss")
    town.follow()
    assert town.value(BY_JOB[-1], job_id=job_id, kind="vae") == seen, "and not anew each time"
    town.leases.requeue(token, "as asked")
    town.follow()
    assert not town.values(BY_JOB[-1])


def test_a_job_whose_events_were_deleted_unread_leaves_no_series(town):
    job_id, token = town.submit(), town.claim()
    town.leases.progress(token, *told(1, 2, {"loss": 1.0}, {}))
    town.follow()
    assert town.values("khot_job_loss")
    town.leases.succeed(token, RESULT)
    town.store.delete("a", job_id)
    town.follow()
    assert not town.values("khot_job_loss") and not town.values("khot_jobs")


def test_a_thousand_jobs_leave_as_many_series_as_one(town):
    """Each runs, tells of its progress and ends; while it runs it has three of its own."""
    town.submit()
    token = town.claim()
    town.leases.progress(token, *told(1, 2, {"loss": 1.0}, {3: 1}))
    town.leases.succeed(token, RESULT)
    life = town.store.new_events(0)
    for stored in life:
        town.metrics.jobs.count(stored)
    once, while_it_runs = town.series(), set()
    for number in range(999):
        for stored in life:
            town.metrics.jobs.count(replace(stored, job_id=str(number)))
            if stored.event.progress is not None:
                while_it_runs.add(town.series())
    assert while_it_runs == {once + 3} and town.series() == once
    assert town.value("khot_jobs_ended_total", kind="vae", outcome="succeeded") == 1000


def test_events_of_an_older_version_tell_of_nothing_more(town):
    """They have neither what was counted nor an outcome, and are read all the same."""
    town.submit()
    town.leases.succeed(town.claim(), RESULT)
    with town.store.database.writing() as connection:
        connection.exec_driver_sql("UPDATE events SET details = '{}'")
    (*_, last) = town.store.new_events(0)
    assert (last.event.attempt_outcome, last.event.counted) == (None, Counted())
    town.follow()
    assert town.values("khot_jobs_ended_total") == {("vae", "succeeded"): 1}
