"""One attempt under way, from its launch until the store knows how it ended."""

import time
from dataclasses import replace
from enum import Enum
from math import inf
from pathlib import Path

import structlog

from khot_server.jobs.files import checkpoints_until, remove_older
from khot_server.jobs.launcher import Attempt
from khot_server.jobs.leases import Leases
from khot_server.jobs.messages import Began, Failed, Finished, Report, Saved, Stepped, Stopped
from khot_server.jobs.oom import OomKills
from khot_server.jobs.records import Claim
from khot_server.jobs.states import FailureKind, JobState

CANCEL_S = 1.5  # for an attempt to stop at a checkpoint when its job was cancelled

log = structlog.get_logger()


class Why(Enum):
    """Why an attempt is asked to stop."""

    ASKED = "as asked"
    SHUTDOWN = "its runner shut down"
    DEADLINE = "it ran longer than it may"


class Running:
    """An attempt, its lease, and what was asked of it.

    Each method raises LeaseLost when the job is not ours any more.

    Args:
        state_dir: what paths of checkpoints in the store are relative to.
        stop_s: how long an attempt that was asked to stop may take before it is killed.
        oom_kills: asked when an attempt was killed and not by us.
    """

    def __init__(
        self,
        claim: Claim,
        attempt: Attempt,
        leases: Leases,
        state_dir: Path,
        *,
        stop_s: float,
        oom_kills: OomKills,
    ) -> None:
        self.claim, self.attempt = claim, attempt
        self._leases, self._state_dir, self._stop_s = leases, state_dir, stop_s
        self._oom_kills = oom_kills
        self._log = log.bind(
            job=claim.job_id, tenant=claim.tenant, attempt=claim.attempt, child=attempt.name
        )
        self._log.info("attempt_started", resume=claim.checkpoint)
        self._why: Why | None = None
        self._checkpoints_s: list[float] = []  # of those since the last event
        self._give_up = inf
        left = claim.remaining_s
        self._deadline = inf if left is None else time.monotonic() + left

    @property
    def until(self) -> float:
        """When to `tick` at the latest."""
        return min(self._give_up, self._deadline)

    def stop(self, why: Why, within_s: float | None = None) -> None:
        """Ask it to stop at a checkpoint."""
        give_up = time.monotonic() + (self._stop_s if within_s is None else within_s)
        self._give_up = min(self._give_up, give_up)
        if self._why is None:
            self._why = why
            self.attempt.stop()

    def see(self, state: JobState) -> None:
        """Do as the state of the job asks."""
        if state is JobState.CANCELLING:
            self.stop(Why.ASKED, CANCEL_S)
        elif state is JobState.PAUSING:
            self.stop(Why.ASKED)

    def tick(self) -> None:
        """Do what is due now."""
        now = time.monotonic()
        if now >= self._deadline:
            self._deadline = inf
            self.stop(Why.DEADLINE)
        if now >= self._give_up:
            self._give_up = inf
            self.attempt.kill()

    def hear(self) -> bool:
        """Write what it reports to the store; return whether that was its last word."""
        while self.attempt.connection.poll():
            try:
                report = self.attempt.connection.recv()
            except (EOFError, OSError):
                self._gone(f"attempt {self.attempt.wait()}")
                return True
            if self._record(report):
                return True
        return False

    def drop(self) -> None:
        """Kill it: the job is not ours any more."""
        self._log.warning("lease_lost")
        self.attempt.kill()

    def end(self) -> None:
        """Wait for its exit, whatever the store knows."""
        self._log.info("attempt_ended", how=self.attempt.wait())

    def _record(self, report: Report) -> bool:
        token = self.claim.token
        match report:
            case Began(step):
                self._leases.began(token, step)
            case Stepped(progress, points, counted):
                counted = replace(counted, checkpoints_s=tuple(self._checkpoints_s))
                self._leases.progress(token, progress, points, counted)
                self._checkpoints_s = []
            case Saved(path, step, seconds):
                self._leases.checkpointed(token, str(path.relative_to(self._state_dir)), step)
                self._checkpoints_s.append(seconds)
                remove_older(path)
            case Finished(result, artifacts):
                self._leases.succeed(token, result, artifacts, checkpoints_s=self._checkpoints_s)
                self._remove_checkpoints()
            case Failed(kind, message):
                self._fail(kind, message)
            case Stopped():
                self._stopped("")
        return isinstance(report, Finished | Failed | Stopped)

    def _gone(self, how: str) -> None:
        """It ended without a word."""
        if self._why is not None:
            self._stopped(how)
        elif self._oom_kills.happened():
            message = f"job: must fit into the machine's memory; got an {how}, for want of it"
            self._fail(FailureKind.OUT_OF_MEMORY, message)
        else:
            self._leases.lost(self.claim.token, how, checkpoints_s=self._checkpoints_s)

    def _stopped(self, how: str) -> None:
        why = self._why or Why.ASKED
        message = f"{why.value}; {how}" if how else why.value
        if why is Why.DEADLINE:
            self._fail(FailureKind.DEADLINE, f"job: {message}")
        else:
            self._leases.requeue(self.claim.token, message, checkpoints_s=self._checkpoints_s)

    def _fail(self, kind: FailureKind, message: str) -> None:
        self._leases.fail(self.claim.token, kind, message, checkpoints_s=self._checkpoints_s)

    def _remove_checkpoints(self) -> None:
        """Nobody goes on from a job that succeeded."""
        last = self._state_dir / "jobs" / self.claim.job_id / "attempt-999999.safetensors"
        for path in checkpoints_until(last)[1:]:
            path.unlink(missing_ok=True)
