"""The job runner: claims jobs, runs their attempts side by side, and keeps their leases.

One thread waits for whatever comes first: a report of an attempt, the bell, a signal,
the time of the next heartbeat. Attempts are other processes (`launcher`), so nothing
they do keeps the leases from being renewed; and everything they report is written to the
store from here (`running`), guarded by the lease. The runner itself never loads torch.

| what happens | what the runner does |
|---|---|
| SIGTERM | claims no more; attempts stop at a checkpoint; requeue, uncharged; exit 0 |
| a job is cancelled or paused | its attempt stops at a checkpoint |
| an attempt runs longer than it may | it stops at a checkpoint, and has failed |
| an attempt does not stop in time | kills it: the last checkpoint stands |
| an attempt dies | gives the job back, charged as lost; it has failed if memory was short |
| a lease is lost | kills the attempt, drops the job, goes on |
| the supervisor dies (lifeline) | kills the attempts and exits at once |
| the runner dies | attempts see it and exit; the next of its name gives their jobs back |
"""

import argparse
import os
import signal
import socket
import time
from multiprocessing.connection import wait
from pathlib import Path

import structlog

from khot_server import logs
from khot_server.jobs import lifeline
from khot_server.jobs.bell import Bell
from khot_server.jobs.files import job_directory
from khot_server.jobs.launcher import Launcher, LocalLauncher
from khot_server.jobs.messages import Order
from khot_server.jobs.oom import OomKills
from khot_server.jobs.records import Claim, LeaseLost
from khot_server.jobs.running import Running, Why
from khot_server.jobs.store import DATABASE_NAME, JobStore
from khot_server.jobs.sweeper import Sweeper

POLL_S = 0.5  # without a bell
STOP_S = 20.0  # for an attempt to stop at a checkpoint
SWEEP_S = 60.0

log = structlog.get_logger()


class Runner:
    """Runs the jobs of `store` until `stop` was called.

    Args:
        store: where jobs come from.
        launcher: what runs attempts.
        state_dir: holds the files of job J in `jobs/J/`.
        data_dir: where built-in data sets are found.
        name: by which the store knows it; no two that live have the same.
        checkpoint_s: how long an attempt goes on before its next checkpoint, at least.
        slots: how many attempts run side by side.
        threads: of torch, in each of them.
        bell: rung by the API when there is work or a wish, and by us when there are events.
        stop_s: how long an attempt that was asked to stop may take.
        sweeper: of what is to be removed.
    """

    def __init__(
        self,
        store: JobStore,
        launcher: Launcher,
        state_dir: Path,
        *,
        data_dir: Path | None = None,
        device: str = "cpu",
        name: str | None = None,
        checkpoint_s: float = 0.0,
        slots: int = 1,
        threads: int = 1,
        lease_s: float = 30.0,
        heartbeat_s: float = 5.0,
        bell: Bell | None = None,
        stop_s: float = STOP_S,
        sweeper: Sweeper | None = None,
    ) -> None:
        self._leases, self._launcher = store.leases, launcher
        self._state_dir, self._data_dir, self._device = state_dir, data_dir, device
        self._name = name or f"{socket.gethostname()}:{os.getpid()}"
        self._slots, self._threads, self._checkpoint_s = slots, threads, checkpoint_s
        self._lease_s, self._heartbeat_s, self._stop_s = lease_s, heartbeat_s, stop_s
        self._bell = bell or Bell(None)
        self._sweeper, self._oom_kills = sweeper, OomKills()
        self._stopping = False
        self._running: list[Running] = []
        self._next_beat = self._next_sweep = 0.0
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
        """Kill the attempts that are running. May be called from another thread."""
        for running in tuple(self._running):
            running.attempt.kill()

    def close(self) -> None:
        """Close the sockets, once `run` has returned."""
        self._bell.close()
        self._awake.close()
        self._waker.close()

    def run(self) -> None:
        """Run jobs, as many at once as there are slots."""
        if self._leases.abandon(self._name):
            self._bell.ring()
        while not self._stopping or self._running:
            now = time.monotonic()
            if now >= self._next_beat:
                self._next_beat = now + self._heartbeat_s
                self._beat()
            if self._sweeper is not None and now >= self._next_sweep:
                self._next_sweep = now + SWEEP_S
                self._sweeper.sweep()
            self._claim()
            if self._wait():
                self._look()
            for running in tuple(self._running):
                self._attend(running)

    def _beat(self) -> None:
        """Renew the leases, ours first: should the clock have jumped, they are not late."""
        for running in tuple(self._running):
            try:
                running.see(self._leases.heartbeat(running.claim.token, self._lease_s))
            except LeaseLost:
                self._drop(running)
        if self._leases.expire(self._lease_s):
            self._bell.ring()

    def _look(self) -> None:
        """See what is asked of the attempts, because somebody rang."""
        states = self._leases.states([running.claim.token for running in self._running])
        for running in self._running:
            state = states.get(running.claim.token)
            if state is not None:  # if it is none, the next thing that is written tells
                running.see(state)

    def _claim(self) -> None:
        """Begin attempts while there is room and work, and they can begin."""
        while self._has_room() and self._launcher.loading is None:
            claim = self._leases.claim(self._name, self._lease_s)
            if claim is None:
                return
            attempt = self._launcher.launch(self._order(claim))
            running = Running(
                claim,
                attempt,
                self._leases,
                self._state_dir,
                stop_s=self._stop_s,
                oom_kills=self._oom_kills,
            )
            self._running.append(running)
            self._bell.ring()

    def _has_room(self) -> bool:
        return len(self._running) < self._slots and not self._stopping

    def _order(self, claim: Claim) -> Order:
        resumes = claim.checkpoint is not None
        return Order(
            job_id=claim.job_id,
            attempt=claim.attempt,
            spec=claim.spec,
            device=self._device,
            directory=job_directory(self._state_dir, claim.job_id),
            state_dir=self._state_dir,
            data_dir=self._data_dir,
            threads=self._threads,
            checkpoint_s=self._checkpoint_s,
            resume=self._state_dir / claim.checkpoint if claim.checkpoint is not None else None,
            history=self._leases.history(claim.job_id) if resumes else (),
        )

    def _attend(self, running: Running) -> None:
        """Pass on what an attempt reports, and do what is due about it."""
        try:
            if self._stopping:
                running.stop(Why.SHUTDOWN)
            running.tick()
            if running.attempt.connection.poll():
                over = running.hear()
                self._bell.ring()
                if over:
                    self._end(running)
        except LeaseLost:
            self._drop(running)

    def _drop(self, running: Running) -> None:
        running.drop()
        self._end(running)

    def _end(self, running: Running) -> None:
        running.end()
        self._running.remove(running)

    def _wait(self) -> bool:
        """Return at a signal, a ring, a report or when something is due; whether it was a ring."""
        until = min([self._next_beat, *(running.until for running in self._running)])
        loading = self._launcher.loading if self._has_room() else None
        if loading is not None:
            until = min(until, loading.until)
        elif self._has_room():
            ready_s = self._leases.ready_in()
            if ready_s is not None:
                until = min(until, time.monotonic() + ready_s)
            if self._bell.socket is None:
                until = min(until, time.monotonic() + POLL_S)
        bells = [] if self._bell.socket is None else [self._bell.socket]
        reports = [running.attempt.connection for running in self._running]
        timeout_s = max(0.0, until - time.monotonic())
        loads = [] if loading is None else [loading.socket]
        ready = wait([self._awake, *bells, *reports, *loads], timeout_s)
        if self._awake in ready:
            self._awake.recv(4096)
        self._bell.drain()
        return any(bell in ready for bell in bells)


def main() -> None:
    """Run jobs until SIGTERM, or until the supervisor is gone."""
    parser = argparse.ArgumentParser(prog="khot_server.jobs.runner", description=main.__doc__)
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--name")
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--lease-s", type=float, default=30.0)
    parser.add_argument("--heartbeat-s", type=float, default=5.0)
    parser.add_argument("--checkpoint-s", type=float, default=0.0)
    parser.add_argument("--ttl-s", type=float, required=True)
    parser.add_argument("--quota-bytes", type=int, required=True)
    parser.add_argument("--backoff-s", type=float, default=1.0)
    parser.add_argument("--warm", type=int, choices=(0, 1), default=0)
    parser.add_argument("--lifeline-fd", type=int, required=True)
    parser.add_argument("--bell-fd", type=int)
    given = parser.parse_args()
    logs.configure("runner")
    # Ctrl-C goes to the whole group; the supervisor decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    launcher = LocalLauncher(warm=bool(given.warm))
    store = JobStore(given.state_dir / DATABASE_NAME, backoff_s=given.backoff_s)
    sweeper = Sweeper(
        store.database,
        given.state_dir,
        ttl_s=given.ttl_s,
        quota_bytes=given.quota_bytes,
        clock=time.time,
    )
    runner = Runner(
        store,
        launcher,
        given.state_dir,
        data_dir=given.data_dir,
        device=given.device,
        name=given.name,
        slots=given.slots,
        threads=given.threads,
        checkpoint_s=given.checkpoint_s,
        lease_s=given.lease_s,
        heartbeat_s=given.heartbeat_s,
        bell=Bell(None if given.bell_fd is None else socket.socket(fileno=given.bell_fd)),
        sweeper=sweeper,
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
