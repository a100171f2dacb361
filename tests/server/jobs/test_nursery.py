"""Attempts that begin at once, and what becomes of them when the nursery is not there."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from khot_server.jobs.launcher import LocalAttempt, LocalLauncher, Spawned
from khot_server.jobs.messages import Finished, Order, Stepped, Stopped
from khot_server.jobs.nursery import Forked, Nursery, NurseryLost
from khot_server.jobs.spec import FeatureSelectionSpec

TIMEOUT_S = 60.0
QUICK = FeatureSelectionSpec(dataset="digits", k=10, epochs=2, seed=3, references=False)
LONG = FeatureSelectionSpec(dataset="digits", k=10, epochs=10_000, seed=3, patience=0)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs pidfd, so Linux")


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not true():
        assert time.monotonic() < end, "in time"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def launch(launcher: LocalLauncher, spec: FeatureSelectionSpec, directory: Path) -> LocalAttempt:
    order = Order(
        job_id="j", attempt=1, spec=spec, device="cpu", directory=directory, state_dir=directory
    )
    attempt = launcher.launch(order)
    assert isinstance(attempt, LocalAttempt)
    return attempt


def next_of(attempt: LocalAttempt, kind: type) -> Any:
    """The next report of this kind."""
    while True:
        assert attempt.connection.poll(TIMEOUT_S), "in time"
        if isinstance(report := attempt.connection.recv(), kind):
            return report


@pytest.fixture
def launcher() -> Iterator[LocalLauncher]:
    warm = LocalLauncher(warm=True)
    yield warm
    warm.close()


def loaded(launcher: LocalLauncher) -> Nursery:
    nursery = launcher._nursery
    assert nursery is not None
    until(lambda: nursery.ready)
    return nursery


def test_forked_attempts_begin_at_once_and_find_what_spawned_ones_find(launcher, tmp_path):
    # the first comes before anything is loaded, and does not wait for it
    spawned = launch(launcher, QUICK, tmp_path / "spawned")
    assert isinstance(spawned._process, Spawned)
    assert launcher._nursery.fork(spawned.connection.fileno()) is None
    nursery = loaded(launcher)
    tasks = Path(f"/proc/{nursery._process.pid}/task")
    assert len(list(tasks.iterdir())) == 1, "a fork keeps one thread only"
    forked = [launch(launcher, QUICK, tmp_path / str(i)) for i in range(2)]
    assert all(isinstance(attempt._process, Forked) for attempt in forked)
    results = [next_of(attempt, Finished).result for attempt in (spawned, *forked)]
    assert results[0] == results[1] == results[2]
    assert [attempt.wait() for attempt in (spawned, *forked)] == ["exited with status 0"] * 3
    # it can still be stopped, and killed
    stopped, killed = (launch(launcher, LONG, tmp_path / name) for name in ("stop", "kill"))
    next_of(stopped, Stepped)
    stopped.stop()
    assert next_of(stopped, Stopped) == Stopped()
    assert stopped.wait() == "exited with status 0"
    next_of(killed, Stepped)
    killed.kill()
    assert killed.wait() == killed.wait() == "killed by signal 9"


def test_to_kill_one_that_has_ended_hits_nobody_else(launcher):
    launcher._nursery.close()  # nobody reaps for it, so the test does
    waits = [sys.executable, "-c", "input()"]
    with (
        subprocess.Popen(waits, stdin=subprocess.PIPE) as child,
        subprocess.Popen(waits, stdin=subprocess.PIPE) as bystander,
    ):
        forked, descriptor = Forked(launcher._nursery, child.pid), os.pidfd_open(bystander.pid)
        forked.kill()
        assert forked.wait(TIMEOUT_S) == "ended, and so has who could tell how"
        # its descriptor is closed, and becomes that of another process
        os.dup2(descriptor, forked._descriptor)
        forked.kill()
        bystander.communicate(b"\n")
        os.close(descriptor)
        os.close(forked._descriptor)
    assert (child.returncode, bystander.returncode) == (-signal.SIGKILL, 0)


def test_without_its_nursery_an_attempt_goes_on_and_the_next_is_spawned(launcher, tmp_path):
    nursery = loaded(launcher)
    orphan = launch(launcher, LONG, tmp_path / "orphan")
    next_of(orphan, Stepped)
    os.kill(nursery._process.pid, signal.SIGKILL)
    until(lambda: not alive(nursery._process.pid))
    with pytest.raises(NurseryLost):
        nursery.reap(1)
    attempt = launch(launcher, QUICK, tmp_path / "next")
    assert isinstance(attempt._process, Spawned)
    assert next_of(attempt, Finished)
    assert attempt.wait() == "exited with status 0"
    assert launcher._nursery not in (None, nursery), "another is loading"
    next_of(orphan, Stepped)
    orphan.kill()
    assert orphan.wait() == "ended, and so has who could tell how"


def test_nothing_outlives_the_runner(launcher, tmp_path):
    nursery = loaded(launcher)
    attempt = launch(launcher, LONG, tmp_path)
    next_of(attempt, Stepped)
    pids = [nursery._process.pid, attempt._process.pid]
    # as the kernel does when the runner dies
    nursery._socket.close()
    attempt.connection.close()
    until(lambda: not any(alive(pid) for pid in pids))


def test_a_nursery_that_could_not_load_is_not_tried_again(launcher, tmp_path):
    nursery = launcher._nursery
    nursery._process.kill()
    nursery._process.wait()
    with pytest.raises(NurseryLost):
        nursery.fork(0)
    attempt = launch(launcher, QUICK, tmp_path)
    assert isinstance(attempt._process, Spawned) and launcher._nursery is None
    attempt.kill()
    assert attempt.wait() == "killed by signal 9"


def test_without_warmth_there_is_no_nursery(tmp_path):
    launcher = LocalLauncher()
    assert launcher._nursery is None
    launcher.close()


def test_while_it_loads_there_is_something_to_wait_for(launcher):
    loading = launcher.loading
    assert loading is not None and loading.until > time.monotonic()
    assert select.select([loading.socket], [], [], 60)[0]
    assert launcher.loading is None, "attempts can begin"


def test_one_that_dies_or_dawdles_while_it_loads_is_not_waited_for(launcher, monkeypatch):
    os.kill(launcher._nursery._process.pid, signal.SIGSTOP)
    late = launcher._nursery.loading.until
    monkeypatch.setattr(time, "monotonic", lambda: late)
    assert launcher.loading is None
    assert launcher._nursery is None, "and not begun again"
