"""Several processes at one store, and one that is killed while it writes."""

import subprocess
import sys

import pytest
from stored import counts

from khot_server.jobs.states import JobState
from khot_server.jobs.store import JobStore

PRELUDE = """
import sys
from pathlib import Path
from khot_server.jobs.spec import FeatureSelectionSpec
from khot_server.jobs.store import JobStore
spec = FeatureSelectionSpec(dataset="digits", k=10)
print("ready", flush=True)
sys.stdin.readline()
store = JobStore(Path(sys.argv[1]))
"""


@pytest.fixture
def start(tmp_path):
    """Start processes that run a script with `store` and `spec`; each waits for `go`."""
    started = []

    def make(script):
        command = [sys.executable, "-c", PRELUDE + script, str(tmp_path / "jobs.sqlite3")]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield make
    for process in started:
        process.kill()
        process.communicate()


def go(processes):
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()


def test_processes_that_open_and_submit_at_once_make_one_job_for_each_request(start, tmp_path):
    script = "print(*[store.submit('a', f'r{i}', spec).id for i in range(20)])"
    processes = [start(script) for _ in range(4)]
    go(processes)
    made = [process.communicate(timeout=60)[0].split() for process in processes]
    assert len(made[0]) == 20 and made == [made[0]] * 4
    store = JobStore(tmp_path / "jobs.sqlite3")
    assert counts(store)[JobState.QUEUED] == 20
    store.close()


def test_processes_never_claim_the_same_job(start, spec, tmp_path):
    store = JobStore(tmp_path / "jobs.sqlite3")
    submitted = {store.submit("a", f"r{i}", spec).id for i in range(60)}
    store.close()
    script = "print(*[c.job_id for c in iter(lambda: store.leases.claim('runner', 30.0), None)])"
    processes = [start(script) for _ in range(3)]
    go(processes)
    claimed = [id_ for process in processes for id_ in process.communicate(timeout=60)[0].split()]
    assert len(claimed) == 60 and set(claimed) == submitted


def test_what_was_acknowledged_survives_kill_9_of_the_writer(start, spec, tmp_path):
    script = """
for i in range(10**6):
    print(f"r{i}", store.submit("a", f"r{i}", spec).id, flush=True)
"""
    writer = start(script)
    go([writer])
    heard = [writer.stdout.readline() for _ in range(200)]
    writer.kill()
    heard += writer.stdout.read().splitlines()
    acknowledged = [line.split() for line in heard if len(line.split()) == 2]
    assert len(acknowledged) >= 200
    store = JobStore(tmp_path / "jobs.sqlite3")
    for request_id, job_id in acknowledged[:-1]:
        assert store.submit("a", request_id, spec).id == job_id
    # The last line may be cut off; and one more job may be stored that was never told of.
    assert 0 <= counts(store)[JobState.QUEUED] - len(acknowledged) <= 1
    for job_id in (job_id for _, job_id in acknowledged[:-1]):
        assert [event.sequence for event in store.events("a", job_id, 0)] == [1]
    store.close()
