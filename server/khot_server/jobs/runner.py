"""The job runner: claims jobs one at a time, runs their attempts, and keeps their leases.

One thread waits for whatever comes first: a report of the attempt, the bell, a signal,
the time of the next heartbeat. The attempt is another process (`launcher`), so nothing
it does keeps the lease from being renewed; and everything it reports is written to the
store from here, guarded by the lease. The runner itself never loads torch.

| what happens | what the runner does |
|---|---|
| SIGTERM | claims no more; the attempt stops at a checkpoint; requeue, uncharged; exit 0 |
| the attempt does not stop in time | kills it, requeues: the last checkpoint stands |
| the attempt dies | gives the job back, charged as lost |
| the lease is lost | kills the attempt, drops the job, goes on |
| the supervisor dies (lifeline) | kills the attempt and exits at once |
| the runner dies | the attempt sees it and exits; the lease runs out; another claims |
"""

import argparse
import os
import signal
import socket
import time
from math import inf
from multiprocessing.connection import Connection, wait
from pathlib import Path

import structlog

from khot_server import logs
from khot_server.jobs import lifeline
from khot_server.jobs.bell import Bell
from khot_server.jobs.files import remove_older
from khot_server.jobs.launcher import Attempt, Launcher, LocalLauncher
from khot_server.jobs.messages import (
    Failed,
    Finished,
    Order,
    Report,
    Saved,
    Stepped,
    Stop,
    Stopped,
)
from khot_server.jobs.states import JobState
from khot_server.jobs.store import DATABASE_NAME, Claim, JobStore, LeaseLost

POLL_S = 0.5  # without a bell
STOP_S = 20.0  # for an attempt to stop at a checkpoint

log = structlog.get_logger()


class Runner:
    """Runs the jobs of `store` until `stop` was called.

    Args:
        store: where jobs come from.
        launcher: what runs attempts.
        state_dir: holds the files of job J in `jobs/J/`.
        bell: rung by the API when there is work, and by us when there are events.
        stop_s: how long an attempt that was asked to stop may take.
    """

    def __init__(
        self,
        store: JobStore,
        launcher: Launcher,
        state_dir: Path,
        *,
        device: str = "cpu",
        lease_s: float = 30.0,
        heartbeat_s: float = 5.0,
        bell: Bell | None = None,
        stop_s: float = STOP_S,
    ) -> None:
        self._store = store
        self._launcher = launcher
        self._state_dir = state_dir
        self._device = device
        self._lease_s = lease_s
        self._heartbeat_s = heartbeat_s
        self._bell = bell or Bell(None)
        self._stop_s = stop_s
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._stopping = False
        self._attempt: Attempt | None = None
        self._awake, self._waker = socket.socketpair()
        self._waker.setblocking(False)

    @property
    def wake_fd(self) -> int:
        """What to write to so that a wait ends; for `signal.set_wakeup_fd`.

        A signal handler of Python's runs between two steps of Python: it would not end a
        wait that began just after the signal.
        """
        return self._waker.fileno()

    def stop(self) -> None:
        """Make `run` return soon. May be called from a signal handler or another thread."""
        self._stopping = True
        self._waker.send(b"!")

    def kill(self) -> None:
        """Kill the attempt that is running. May be called from another thread."""
        if self._attempt is not None:
            self._attempt.kill()

    def close(self) -> None:
        """Close the sockets, once `run` has returned."""
        self._bell.close()
        self._awake.close()
        self._waker.close()

    def run(self) -> None:
        """Run jobs, one after the other."""
        while not self._stopping:
            self._expire()
            claim = self._store.claim(self._name, self._lease_s)
            if claim is None:
                quiet_s = POLL_S if self._bell.socket is None else self._heartbeat_s
                self._wait(time.monotonic() + quiet_s)
            else:
                self._bell.ring()
                self._run(claim)

    def _run(self, claim: Claim) -> None:
        """Run one attempt, from its launch until the store knows how it ended."""
        order = Order(
            attempt=claim.attempt,
            spec=claim.spec,
            device=self._device,
            directory=self._state_dir / "jobs" / claim.job_id,
            resume=None if claim.checkpoint is None else self._state_dir / claim.checkpoint,
        )
        self._attempt = attempt = self._launcher.launch(order)
        noted = log.bind(job=claim.job_id, attempt=claim.attempt, child=attempt.name)
        noted.info("attempt_started", resume=claim.checkpoint)
        try:
            self._follow(claim.token, attempt)
        except LeaseLost:
            noted.warning("lease_lost")
            attempt.kill()
        finally:
            noted.info("attempt_ended", how=attempt.wait())
            self._attempt = None

    def _follow(self, token: str, attempt: Attempt) -> None:
        """Pass on what the attempt reports, and keep its lease, until it is over."""
        next_beat = time.monotonic() + self._heartbeat_s
        give_up = inf  # on an attempt that was asked to stop
        wanted, asked = True, False
        while True:
            self._wait(min(next_beat, give_up), attempt.connection)
            now = time.monotonic()
            if now >= next_beat:
                next_beat = now + self._heartbeat_s
                wanted = self._store.heartbeat(token, self._lease_s) is JobState.RUNNING
                self._expire()
            if not asked and (self._stopping or not wanted):
                asked, give_up = True, now + self._stop_s
                attempt.stop()
            if now >= give_up:
                give_up = inf
                attempt.kill()
            if attempt.connection.poll():
                report = _receive(attempt.connection)
                if report is None:
                    self._give_back(token, f"attempt {attempt.wait()}", charged=not asked)
                    return
                if self._record(token, report):
                    return

    def _record(self, token: str, report: Report) -> bool:
        """Write a report to the store; return whether it was the last word."""
        match report:
            case Saved(path, step):
                self._store.checkpointed(token, str(path.relative_to(self._state_dir)), step)
                remove_older(path)
                return False  # and no event, so nobody to wake
            case Stepped(step, total_steps, metrics, iterations):
                self._store.progress(token, step, total_steps, metrics, iterations)
            case Finished(result):
                self._store.succeed(token, result)
            case Failed(kind, message):
                self._store.fail(token, kind, message)
            case Stopped():
                self._store.requeue(token, "its runner shut down" if self._stopping else "as asked")
        self._bell.ring()
        return not isinstance(report, Stepped)

    def _give_back(self, token: str, message: str, *, charged: bool) -> None:
        if charged:
            self._store.lost(token, message)
        else:
            self._store.requeue(token, message)
        self._bell.ring()

    def _expire(self) -> None:
        if self._store.expire_leases():
            self._bell.ring()

    def _wait(self, until: float, *others: "Connection[Order | Stop, Report]") -> None:
        """Return at a signal, a ring, something to read on the others, or the time `until`."""
        bells = [] if self._bell.socket is None else [self._bell.socket]
        timeout = max(0.0, until - time.monotonic())
        if self._awake in wait([self._awake, *bells, *others], timeout):
            self._awake.recv(4096)
        self._bell.drain()


def _receive(connection: "Connection[Order | Stop, Report]") -> Report | None:
    """Return the next report; None: there will be no more."""
    try:
        return connection.recv()
    except (EOFError, OSError):
        return None


def main() -> None:
    """Run jobs until SIGTERM, or until the supervisor is gone."""
    parser = argparse.ArgumentParser(prog="khot_server.jobs.runner", description=main.__doc__)
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--lease-s", type=float, default=30.0)
    parser.add_argument("--heartbeat-s", type=float, default=5.0)
    parser.add_argument("--warm", type=int, choices=(0, 1), default=0)
    parser.add_argument("--lifeline-fd", type=int, required=True)
    parser.add_argument("--bell-fd", type=int)
    given = parser.parse_args()
    logs.configure("runner")
    # Ctrl-C goes to the whole group; the supervisor decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    launcher = LocalLauncher(warm=bool(given.warm))
    runner = Runner(
        JobStore(given.state_dir / DATABASE_NAME),
        launcher,
        given.state_dir,
        device=given.device,
        lease_s=given.lease_s,
        heartbeat_s=given.heartbeat_s,
        bell=Bell(None if given.bell_fd is None else socket.socket(fileno=given.bell_fd)),
    )
    lifeline.watch(given.lifeline_fd, runner.kill)
    signal.set_wakeup_fd(runner.wake_fd)
    signal.signal(signal.SIGTERM, lambda *_: runner.stop())
    log.info("runner_started", device=given.device)
    runner.run()
    launcher.close()
    log.info("runner_stopped")


if __name__ == "__main__":
    main()
