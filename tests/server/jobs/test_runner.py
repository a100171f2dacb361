"""The runner with attempts that do as the test says: what it writes, and when it gives up."""

import contextlib
import select
import socket
import threading
from multiprocessing import Pipe

import pytest
import structlog
from stored import counts, told

from khot_server.jobs import running
from khot_server.jobs.bell import Bell
from khot_server.jobs.messages import Began, Failed, Finished, Saved, Stepped, Stop, Stopped
from khot_server.jobs.records import Options
from khot_server.jobs.runner import Runner
from khot_server.jobs.states import ENDED, FailureKind, JobState
from khot_server.jobs.store import JobStore

TIMEOUT_S = 30.0


class ScriptedAttempt:
    """An attempt whose other end, `theirs`, is in the hands of the test."""

    name = "scripted"

    def __init__(self, order):
        self.order = order
        self.connection, self.theirs = Pipe()
        self.killed = threading.Event()

    def stop(self):
        with contextlib.suppress(OSError):
            self.connection.send(Stop())

    def kill(self):
        self.killed.set()
        self.theirs.close()

    def wait(self):
        self.connection.close()
        return "was lost"


class ScriptedLauncher:
    loading = None

    def __init__(self):
        self.launched = []
        self.closed = False
        self.changed = threading.Condition()

    def launch(self, order):
        with self.changed:
            self.launched.append(attempt := ScriptedAttempt(order))
            if self.closed:
                attempt.theirs.close()
            self.changed.notify_all()
            return attempt

    def close(self):
        with self.changed:
            self.closed = True
            for attempt in self.launched:
                attempt.theirs.close()

    def wait_for(self, number):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.launched) >= number, TIMEOUT_S)
            return self.launched[number - 1]


class Rig:
    """A runner in a thread, with a bell whose other end is ours."""

    def __init__(self, state_dir, **settings):
        self.store = JobStore(state_dir / "jobs.sqlite3", max_lost_attempts=2, backoff_s=0.0)
        self.launcher = ScriptedLauncher()
        self.bell, self.theirs = socket.socketpair()
        self.bell.settimeout(TIMEOUT_S)
        settings = {"heartbeat_s": 0.02, "lease_s": 30.0, "bell": Bell(self.theirs)} | settings
        self.runner = Runner(self.store, self.launcher, state_dir, **settings)
        self.closed = False
        self.thread = threading.Thread(target=self.runner.run)
        self.thread.start()

    def submit(self, spec, request_id="r1", **options):
        job = self.store.submit("a", request_id, spec, Options(**options))
        self.bell.send(b"!")
        return job.id

    def wait_until(self, job_id, reached):
        """Look at the job whenever the runner rings."""
        while not reached(job := self.store.get("a", job_id)):
            assert self.bell.recv(4096)
        return job

    def close(self):
        if self.closed:
            return
        self.closed = True
        self.runner.stop()
        self.launcher.close()
        self.thread.join(TIMEOUT_S)
        assert not self.thread.is_alive()
        self.bell.close()
        self.theirs.close()
        self.runner.close()
        self.store.close()


@pytest.fixture
def start(tmp_path):
    rigs = []

    def make(**settings):
        rigs.append(Rig(tmp_path, **settings))
        return rigs[-1]

    with structlog.testing.capture_logs():
        yield make
        for rig in rigs:
            rig.close()


def ended(job):
    return job.state in ENDED


def test_reports_become_events_in_order(start, spec, result, tmp_path):
    rig = start()
    job_id = rig.submit(spec)
    attempt = rig.launcher.wait_for(1)
    assert attempt.order.directory == tmp_path / "jobs" / job_id
    assert (attempt.order.attempt, attempt.order.spec, attempt.order.resume) == (1, spec, None)
    for step in (1, 2):
        attempt.theirs.send(Stepped(*told(step, 2, {"loss": 0.5}, {3: 1})))
    attempt.theirs.send(Finished(result))
    job = rig.wait_until(job_id, ended)
    assert (job.state, job.result) == (JobState.SUCCEEDED, result)
    seen = [event.state or event.progress.step for event in rig.store.events("a", job_id, 0)]
    assert seen == [JobState.QUEUED, JobState.RUNNING, 1, 2, JobState.SUCCEEDED]


@pytest.mark.parametrize("last", ["finished", "failed", "stopped", "lost"])
def test_the_time_of_each_checkpoint_is_told_by_the_next_event(start, spec, result, last):
    rig = start()
    job_id = rig.submit(spec)
    attempt = rig.launcher.wait_for(1)
    for step in (1, 2):
        attempt.theirs.send(Stepped(*told(step, 9, {"loss": 0.5}, {})))
        attempt.theirs.send(Saved(attempt.order.directory / str(step), step, step / 4))
    words = {"finished": Finished(result), "failed": Failed(FailureKind.INTERNAL, "x")}
    words["stopped"] = Stopped()
    if last in words:
        attempt.theirs.send(words[last])
    else:
        attempt.theirs.close()

    def of_first(_):
        events = rig.store.events("a", job_id, 0)
        return [event.attempt_outcome for event in events if event.attempt_outcome]

    rig.wait_until(job_id, of_first)
    events = rig.store.events("a", job_id, 2)[:3]
    assert [event.counted.checkpoints_s for event in events] == [(), (0.25,), (0.5,)]


def test_a_failure_keeps_its_kind(start, spec):
    rig = start()
    job_id = rig.submit(spec)
    rig.launcher.wait_for(1).theirs.send(Failed(FailureKind.DIVERGED, "loss is inf"))
    job = rig.wait_until(job_id, ended)
    assert (job.failure_kind, job.failure_message) == (FailureKind.DIVERGED, "loss is inf")


def test_a_dead_attempt_is_charged_and_the_next_goes_on_from_the_checkpoint(start, spec):
    rig = start()
    job_id = rig.submit(spec)
    first = rig.launcher.wait_for(1)
    path = first.order.directory / "attempt-000001-step-000000000005.safetensors"
    path.parent.mkdir(parents=True)
    before, older = (path.with_name(path.name.replace("5.", f"{step}.")) for step in (4, 3))
    for file in (path, before, older):
        file.touch()
    first.theirs.send(Stepped(*told(5, 9, {"loss": 0.5}, {})))
    first.theirs.send(Saved(path, 5, 0.25))
    first.theirs.close()
    second = rig.launcher.wait_for(2)
    assert (second.order.attempt, second.order.resume) == (2, path)
    assert [point.step for point in second.order.history] == [5]
    assert path.exists() and before.exists() and not older.exists()
    second.theirs.close()
    job = rig.wait_until(job_id, ended)
    assert (job.state, job.failure_kind) == (JobState.FAILED, FailureKind.WORKER_LOST)
    assert job.failure_message == "2 attempts were lost; the last: attempt was lost"


def test_stopping_asks_the_attempt_and_gives_the_job_back_uncharged(start, spec):
    for attempt in (1, 2, 3):
        rig = start()
        job_id = rig.submit(spec)
        theirs = rig.launcher.wait_for(1).theirs
        rig.runner.stop()
        assert isinstance(theirs.recv(), Stop)
        theirs.send(Stopped())
        rig.thread.join(TIMEOUT_S)
        job = rig.store.get("a", job_id)
        assert (job.state, job.attempts) == (JobState.QUEUED, attempt)


def test_an_attempt_that_does_not_stop_is_killed_and_its_job_given_back_uncharged(start, spec):
    rig = start(stop_s=0.05)
    job_id = rig.submit(spec)
    attempt = rig.launcher.wait_for(1)
    rig.runner.stop()
    assert attempt.killed.wait(TIMEOUT_S)
    rig.thread.join(TIMEOUT_S)
    assert rig.store.get("a", job_id).state is JobState.QUEUED
    assert rig.store.leases.claim("another", 30.0).attempt == 2


def test_a_lost_lease_kills_the_attempt_and_the_runner_goes_on(start, spec, result, tmp_path):
    rig = start()
    first_id = rig.submit(spec)
    attempt = rig.launcher.wait_for(1)
    elsewhere = JobStore(tmp_path / "jobs.sqlite3", clock=lambda: 1e12)
    assert elsewhere.leases.expire(30.0) == 1
    elsewhere.close()
    assert attempt.killed.wait(TIMEOUT_S)
    rig.launcher.wait_for(2).theirs.send(Finished(result))
    assert rig.wait_until(first_id, ended).state is JobState.SUCCEEDED


@pytest.mark.parametrize(
    ("wish", "asked", "then"),
    [
        ("pause", JobState.PAUSING, JobState.PAUSED),
        ("cancel", JobState.CANCELLING, JobState.CANCELLED),
    ],
)
@pytest.mark.parametrize("rung", [True, False])
def test_an_attempt_stops_when_its_job_is_asked_to(start, spec, wish, asked, then, rung):
    rig = start(heartbeat_s=1000.0) if rung else start()
    job_id = rig.submit(spec)
    theirs = rig.launcher.wait_for(1).theirs
    assert getattr(rig.store, wish)("a", job_id).state is asked
    if rung:  # and the next heartbeat is far away
        rig.bell.send(b"!")
    assert isinstance(theirs.recv(), Stop)
    theirs.send(Stopped())
    assert rig.wait_until(job_id, lambda job: job.state is not asked).state is then


def test_a_cancelled_attempt_that_does_not_stop_is_killed_soon(start, spec, monkeypatch):
    monkeypatch.setattr(running, "CANCEL_S", 0.05)
    rig = start(stop_s=1000.0)
    job_id = rig.submit(spec)
    attempt = rig.launcher.wait_for(1)
    rig.store.pause("a", job_id)
    rig.bell.send(b"!")
    assert isinstance(attempt.theirs.recv(), Stop)
    rig.store.cancel("a", job_id)
    rig.bell.send(b"!")
    assert attempt.killed.wait(TIMEOUT_S)
    assert rig.wait_until(job_id, ended).state is JobState.CANCELLED


def test_an_attempt_that_runs_longer_than_it_may_stops_at_a_checkpoint_and_has_failed(start, spec):
    rig = start()
    job_id = rig.submit(spec, max_run_s=0.05)
    theirs = rig.launcher.wait_for(1).theirs
    assert isinstance(theirs.recv(), Stop)
    theirs.send(Stopped())
    job = rig.wait_until(job_id, ended)
    assert (job.state, job.failure_kind) == (JobState.FAILED, FailureKind.DEADLINE)
    assert job.failure_message == "job: it ran longer than it may"


def test_as_many_attempts_run_side_by_side_as_there_are_slots(start, spec, result):
    rig = start(slots=2)
    ids = [rig.submit(spec, f"r{i}") for i in range(3)]
    first, second = rig.launcher.wait_for(1), rig.launcher.wait_for(2)
    second.theirs.send(Began(0))
    first.theirs.send(Finished(result))
    third = rig.launcher.wait_for(3)
    assert counts(rig.store)[JobState.RUNNING] == 2
    for attempt in (second, third):
        attempt.theirs.send(Finished(result))
    assert {rig.wait_until(job_id, ended).state for job_id in ids} == {JobState.SUCCEEDED}
    assert [a.order.job_id for a in rig.launcher.launched] == ids


def test_stopping_stops_all_attempts(start, spec):
    rig = start(slots=3)
    ids = [rig.submit(spec, f"r{i}") for i in range(3)]
    attempts = [rig.launcher.wait_for(i) for i in (1, 2, 3)]
    rig.runner.stop()
    for attempt in attempts:
        assert isinstance(attempt.theirs.recv(), Stop)
        attempt.theirs.send(Stopped())
    rig.thread.join(TIMEOUT_S)
    assert {rig.store.get("a", job_id).state for job_id in ids} == {JobState.QUEUED}


def test_a_runner_gives_back_what_one_of_its_name_held_and_goes_on_with_it(start, spec):
    rig = start(name="me")
    job_id = rig.submit(spec)
    rig.launcher.wait_for(1)
    again = start(name="me")  # as if the first had died; which lives, and may claim it first
    while rig.store.get("a", job_id).attempts < 2:
        select.select([rig.bell, again.bell], [], [], TIMEOUT_S)
    assert [a.outcome for a in rig.store.attempts("a", job_id)] == ["LOST", None]
    assert rig.launcher.launched[0].killed.wait(TIMEOUT_S)


def test_of_a_job_that_succeeded_no_checkpoint_is_kept(start, spec, result):
    rig = start()
    job_id = rig.submit(spec)
    attempt = rig.launcher.wait_for(1)
    path = attempt.order.directory / "attempt-000001-step-000000000005.safetensors"
    path.parent.mkdir(parents=True)
    path.touch()
    attempt.theirs.send(Finished(result))
    rig.wait_until(job_id, ended)
    rig.close()
    assert list(path.parent.iterdir()) == []


def test_heartbeats_keep_the_lease_while_the_attempt_is_silent(start, spec, tmp_path):
    rig = start(lease_s=1000.0)
    rig.submit(spec)
    rig.launcher.wait_for(1)
    ahead = JobStore(tmp_path / "jobs.sqlite3")

    def expires():
        with ahead.database.reading() as connection:
            return connection.exec_driver_sql("SELECT lease_expires FROM jobs").scalar()

    first = expires()
    beaten = threading.Event()
    heartbeat = rig.store.leases.heartbeat

    def beat(*arguments):
        beaten.set()
        return heartbeat(*arguments)

    rig.store.leases.heartbeat = beat
    assert beaten.wait(TIMEOUT_S)
    beaten.clear()
    assert beaten.wait(TIMEOUT_S)  # the one before is committed by now
    assert expires() > first
    ahead.close()


@pytest.mark.parametrize("how", ["none", "closed"])
def test_without_a_bell_the_runner_polls(start, spec, how):
    rig = start(bell=None) if how == "none" else start(heartbeat_s=1000.0)
    rig.bell.close()
    rig.store.submit("a", "r1", spec)
    rig.launcher.wait_for(1)


def test_a_full_bell_does_not_block():
    ours, theirs = socket.socketpair()
    bell = Bell(theirs)
    for _ in range(100_000):
        bell.ring()
    ours.close()
    bell.ring()
    bell.drain()
    assert bell.socket is None
    bell.ring()
