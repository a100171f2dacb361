"""The runner with attempts that do as the test says: what it writes, and when it gives up."""

import contextlib
import socket
import threading
from multiprocessing import Pipe

import pytest
import structlog

from khot_server.jobs.bell import Bell
from khot_server.jobs.messages import Failed, Finished, Saved, Stepped, Stop, Stopped
from khot_server.jobs.runner import Runner
from khot_server.jobs.states import TERMINAL
from khot_server.jobs.store import FailureKind, JobState, JobStore

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
        self.store = JobStore(state_dir / "jobs.sqlite3", max_lost_attempts=2)
        self.launcher = ScriptedLauncher()
        self.bell, self.theirs = socket.socketpair()
        self.bell.settimeout(TIMEOUT_S)
        settings = {"heartbeat_s": 0.02, "lease_s": 30.0, "bell": Bell(self.theirs)} | settings
        self.runner = Runner(self.store, self.launcher, state_dir, **settings)
        self.thread = threading.Thread(target=self.runner.run)
        self.thread.start()

    def submit(self, spec, request_id="r1"):
        job = self.store.submit("a", request_id, spec)
        self.bell.send(b"!")
        return job.id

    def wait_until(self, job_id, reached):
        """Look at the job whenever the runner rings."""
        while not reached(job := self.store.get("a", job_id)):
            assert self.bell.recv(4096)
        return job

    def close(self):
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
    return job.state in TERMINAL


def test_reports_become_events_in_order(start, spec, result, tmp_path):
    rig = start()
    job_id = rig.submit(spec)
    attempt = rig.launcher.wait_for(1)
    assert attempt.order.directory == tmp_path / "jobs" / job_id
    assert (attempt.order.attempt, attempt.order.spec, attempt.order.resume) == (1, spec, None)
    for step in (1, 2):
        attempt.theirs.send(Stepped(step, 2, {"loss": 0.5}, {3: 1}))
    attempt.theirs.send(Finished(result))
    job = rig.wait_until(job_id, ended)
    assert (job.state, job.result) == (JobState.SUCCEEDED, result)
    told = [event.state or event.step for event in rig.store.events("a", job_id, 0)]
    assert told == [JobState.QUEUED, JobState.RUNNING, 1, 2, JobState.SUCCEEDED]


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
    (older := path.with_name("attempt-000001-step-000000000004.safetensors")).touch()
    path.touch()
    first.theirs.send(Saved(path, 5))
    first.theirs.close()
    second = rig.launcher.wait_for(2)
    assert (second.order.attempt, second.order.resume) == (2, path)
    assert path.exists() and not older.exists()
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
    assert rig.store.claim("another", 30.0).attempt == 2


def test_a_lost_lease_kills_the_attempt_and_the_runner_goes_on(start, spec, result, tmp_path):
    rig = start()
    first_id = rig.submit(spec)
    attempt = rig.launcher.wait_for(1)
    elsewhere = JobStore(tmp_path / "jobs.sqlite3", clock=lambda: 1e12)
    assert elsewhere.expire_leases() == 1
    elsewhere.close()
    assert attempt.killed.wait(TIMEOUT_S)
    rig.launcher.wait_for(2).theirs.send(Finished(result))
    assert rig.wait_until(first_id, ended).state is JobState.SUCCEEDED


@pytest.mark.parametrize(
    ("asked", "then"),
    [(JobState.PAUSING, JobState.PAUSED), (JobState.CANCELLING, JobState.CANCELLED)],
)
def test_an_attempt_stops_when_its_job_is_asked_to(start, spec, asked, then):
    rig = start()
    job_id = rig.submit(spec)
    theirs = rig.launcher.wait_for(1).theirs
    with rig.store._database.writing() as connection:
        connection.exec_driver_sql("UPDATE jobs SET state = ?", (asked,))
    assert isinstance(theirs.recv(), Stop)
    theirs.send(Stopped())
    assert rig.wait_until(job_id, lambda job: job.state is not asked).state is then


def test_heartbeats_keep_the_lease_while_the_attempt_is_silent(start, spec, tmp_path):
    rig = start(lease_s=1000.0)
    rig.submit(spec)
    rig.launcher.wait_for(1)
    ahead = JobStore(tmp_path / "jobs.sqlite3")

    def expires():
        with ahead._database.reading() as connection:
            return connection.exec_driver_sql("SELECT lease_expires FROM jobs").scalar()

    first = expires()
    beaten = threading.Event()
    heartbeat = rig.store.heartbeat

    def beat(*arguments):
        beaten.set()
        return heartbeat(*arguments)

    rig.store.heartbeat = beat
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
