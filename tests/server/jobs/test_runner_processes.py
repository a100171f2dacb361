"""Runner and attempts as real processes, and what happens when one of them dies."""

import os
import re
import select
import signal
import socket
import subprocess
import sys

import pytest

from khot_server.jobs.spec import FeatureSelectionSpec
from khot_server.jobs.states import ENDED, JobState
from khot_server.jobs.store import DATABASE_NAME, JobStore

TIMEOUT_S = 60.0
# Long enough to be killed in the middle: a second or two of training.
SPEC = FeatureSelectionSpec(dataset="digits", k=10, epochs=60, seed=3, patience=0, references=False)


class RunnerProcess:
    """A runner with a lifeline and a bell whose other ends are ours."""

    def __init__(self, state_dir, lease_s):
        lifeline, self.lifeline = os.pipe()
        self.bell, theirs = socket.socketpair()
        self.bell.settimeout(TIMEOUT_S)
        command = [sys.executable, "-m", "khot_server.jobs.runner", "--state-dir", str(state_dir)]
        command += ["--lease-s", str(lease_s), "--heartbeat-s", str(lease_s / 5)]
        command += ["--ttl-s", "1e9", "--quota-bytes", str(1 << 40), "--backoff-s", "0"]
        command += ["--lifeline-fd", str(lifeline), "--bell-fd", str(theirs.fileno())]
        self.process = subprocess.Popen(
            command,
            pass_fds=(lifeline, theirs.fileno()),
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "KHOT_LOG_FORMAT": "console"},
        )
        os.close(lifeline)
        theirs.close()

    def said(self, pattern):
        """Wait for a line of the log."""
        for line in self.process.stderr:
            if found := re.search(pattern, line):
                return found
        raise AssertionError("the runner ended")

    def attempt(self):
        """Wait for the next attempt to start; return a descriptor of its process."""
        self.attempt_pid = int(self.said(r"attempt_started .*pid (\d+)")[1])
        return os.pidfd_open(self.attempt_pid)

    def wait_until(self, store, job_id, reached):
        """Look at the job whenever the runner rings."""
        while not reached(job := store.get("a", job_id)):
            assert self.bell.recv(4096), "the runner ended"
        return job

    def close(self):
        self.process.kill()
        self.process.communicate()
        self.bell.close()
        os.close(self.lifeline)


def ended(job):
    return job.state in ENDED


def gone(descriptor):
    """Wait for the process to be gone; it need not be a child of ours."""
    ready, _, _ = select.select([descriptor], [], [], TIMEOUT_S)
    os.close(descriptor)
    return bool(ready)


@pytest.fixture
def store(tmp_path):
    made = JobStore(tmp_path / DATABASE_NAME)
    yield made
    made.close()


@pytest.fixture
def start(tmp_path):
    started = []

    def make(lease_s=30.0):
        started.append(RunnerProcess(tmp_path, lease_s))
        return started[-1]

    yield make
    for runner in started:
        runner.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The result of `SPEC` in a run that nobody disturbs."""
    state_dir = tmp_path_factory.mktemp("undisturbed")
    store = JobStore(state_dir / DATABASE_NAME)
    job = store.submit("a", "r1", SPEC)
    runner = RunnerProcess(state_dir, 30.0)
    job = runner.wait_until(store, job.id, ended)
    events = store.events("a", job.id, 0, limit=10_000)
    runner.close()
    store.close()
    return job, events, sorted(path.name for path in (state_dir / "jobs" / job.id).iterdir())


def checkpointed(store):
    def reached(job):
        with store.database.reading() as connection:
            query = "SELECT checkpoint FROM jobs WHERE id = ?"
            return connection.exec_driver_sql(query, (job.id,)).scalar() is not None

    return reached


def outcomes(store):
    with store.database.reading() as connection:
        query = "SELECT outcome FROM attempts ORDER BY number"
        return [row[0] for row in connection.exec_driver_sql(query)]


def test_a_job_runs_to_its_end_with_its_events_in_order(undisturbed):
    job, events, files = undisturbed
    assert (job.state, job.attempts, job.failure_message) == (JobState.SUCCEEDED, 1, "")
    assert len(job.result.features) == 10 and job.result.test["accuracy"] > 0.5
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    states = [event.state for event in events if event.kind == "state"]
    assert states == [JobState.QUEUED, JobState.RUNNING, JobState.SUCCEEDED]
    told = [event.progress for event in events if event.kind == "progress"]
    steps = [progress.step for progress in told]
    assert steps == sorted(set(steps)) and steps[-1] == told[-1].total_steps
    # of the three quarters in which the choice is learned, the tenth and the last of 20 steps of an
    # epoch: a root for each example of a whole batch of 64, and of a last one of 42
    roots = sum(sum(event.counted.iterations.values()) for event in events)
    assert roots == 0.75 * steps[-1] / 20 * (64 + 42)
    assert files == ["artifacts", "lock", "log-000001.txt"], "no checkpoint is needed any more"


@pytest.mark.slow  # e2e/test_durability.py kills them in every run
def test_a_killed_attempt_is_resumed_to_the_same_bits(start, store, undisturbed):
    job_id = store.submit("a", "r1", SPEC).id
    runner = start()
    first = runner.attempt()
    assert not ended(runner.wait_until(store, job_id, checkpointed(store)))
    os.kill(runner.attempt_pid, signal.SIGKILL)
    assert gone(first)
    os.close(runner.attempt())
    job = runner.wait_until(store, job_id, ended)
    assert (job.state, job.attempts) == (JobState.SUCCEEDED, 2)
    assert job.result == undisturbed[0].result
    assert outcomes(store) == ["LOST", "SUCCEEDED"]
    messages = [event.message for event in store.events("a", job_id, 0, limit=10_000)]
    assert "attempt killed by signal 9" in messages


def test_sigterm_gives_the_job_back_uncharged_and_the_next_runner_finishes_it(
    start, store, undisturbed
):
    job_id = store.submit("a", "r1", SPEC).id
    runner = start()
    attempt = runner.attempt()
    runner.wait_until(store, job_id, checkpointed(store))
    runner.process.send_signal(signal.SIGINT)  # ignored: the supervisor decides
    runner.process.terminate()
    assert runner.process.wait(TIMEOUT_S) == 0
    assert gone(attempt)
    assert store.get("a", job_id).state is JobState.QUEUED
    assert outcomes(store) == ["STOPPED"]
    job = start().wait_until(store, job_id, ended)
    assert (job.state, job.result) == (JobState.SUCCEEDED, undisturbed[0].result)
    assert outcomes(store) == ["STOPPED", "SUCCEEDED"]


def test_sigterm_ends_an_idle_runner(start, store):
    runner = start()
    runner.said("runner_started")
    runner.process.terminate()
    assert runner.process.wait(TIMEOUT_S) == 0


@pytest.mark.slow  # e2e/test_durability.py kills them in every run
def test_a_killed_runner_leaves_no_attempt_and_another_finishes(start, store, undisturbed):
    job_id = store.submit("a", "r1", SPEC).id
    runner = start(lease_s=1.0)
    attempt = runner.attempt()
    runner.wait_until(store, job_id, checkpointed(store))
    runner.process.kill()
    assert gone(attempt)
    assert store.get("a", job_id).state is JobState.RUNNING
    job = start(lease_s=1.0).wait_until(store, job_id, ended)
    assert (job.state, job.result) == (JobState.SUCCEEDED, undisturbed[0].result)
    assert outcomes(store) == ["LOST", "SUCCEEDED"]


@pytest.mark.parametrize("loading", [True, False], ids=["loading", "training"])
def test_the_end_of_the_lifeline_ends_runner_and_attempt(start, store, loading):
    job_id = store.submit("a", "r1", SPEC).id
    runner = start()
    attempt = runner.attempt()
    if not loading:
        runner.wait_until(store, job_id, checkpointed(store))
    os.close(runner.lifeline)
    assert runner.process.wait(TIMEOUT_S) == 1
    assert gone(attempt)
    runner.lifeline = os.open(os.devnull, os.O_RDONLY)  # for close
    assert store.get("a", job_id).state is JobState.RUNNING
