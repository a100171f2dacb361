"""The states of a job, and the one table of how it may pass between them.

The store asks `check_transition` before every change, so what is not in the table
cannot happen; `server/README.md` shows what `python -m khot_server.jobs.states` prints.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class JobState(StrEnum):
    """Where a job is in its life; the names of `JobState` in job_service.proto."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    PAUSING = "PAUSING"
    PAUSED = "PAUSED"
    CANCELLING = "CANCELLING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class FailureKind(StrEnum):
    """Why a job failed; the names of `FailureKind` in job_service.proto."""

    USER_ERROR = "USER_ERROR"
    DIVERGED = "DIVERGED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    WORKER_LOST = "WORKER_LOST"
    DEADLINE = "DEADLINE"
    STORAGE = "STORAGE"
    INTERNAL = "INTERNAL"


class IllegalTransition(Exception):
    """The table of states has no such step."""


_S = JobState

TRANSITIONS: Mapping[JobState, Mapping[JobState, str]] = MappingProxyType(
    {
        _S.QUEUED: {
            _S.RUNNING: "a runner claims it",
            _S.PAUSED: "it is asked to pause",
            _S.CANCELLED: "it is asked to end",
        },
        _S.RUNNING: {
            _S.SUCCEEDED: "the attempt ends with a result",
            _S.FAILED: "the attempt fails, is late, or too many attempts were lost",
            _S.QUEUED: "the runner shuts down, or the attempt is lost or could not store",
            _S.PAUSING: "it is asked to pause",
            _S.CANCELLING: "it is asked to end",
        },
        _S.PAUSING: {
            _S.PAUSED: "the attempt has stopped, or is lost",
            _S.SUCCEEDED: "the attempt ended with a result first",
            _S.FAILED: "the attempt failed first",
            _S.CANCELLING: "it is asked to end",
        },
        _S.PAUSED: {
            _S.QUEUED: "it is resumed",
            _S.CANCELLED: "it is asked to end",
        },
        _S.CANCELLING: {
            _S.CANCELLED: "the attempt has stopped, or is lost",
            _S.SUCCEEDED: "the attempt ended with a result first",
            _S.FAILED: "the attempt failed first",
        },
        _S.SUCCEEDED: {},
        _S.FAILED: {_S.QUEUED: "it is tried again, as the user wishes"},
        _S.CANCELLED: {_S.QUEUED: "it is tried again, as the user wishes"},
    }
)

# Nothing happens to a job in these by itself.
ENDED = frozenset({_S.SUCCEEDED, _S.FAILED, _S.CANCELLED})

# Where a job goes when its attempt stops without an outcome; so these are the states in
# which a runner holds a lease.
AFTER_STOP: Mapping[JobState, JobState] = MappingProxyType(
    {_S.RUNNING: _S.QUEUED, _S.PAUSING: _S.PAUSED, _S.CANCELLING: _S.CANCELLED}
)

# What may be better another time, and is tried again by itself; the user's errors are not.
INFRASTRUCTURE = frozenset({FailureKind.WORKER_LOST, FailureKind.STORAGE})


def check_transition(who: str, old: JobState, new: JobState) -> None:
    """Return if a job may pass from `old` to `new`.

    Raises:
        IllegalTransition: it may not; the message lists where it may go from `old`.
    """
    ways = TRANSITIONS[old]
    if new not in ways:
        must = f"be one of {', '.join(ways)}" if ways else "stay as it is"
        raise IllegalTransition(f"{who}: after {old} its state must {must}; got {new}")


def markdown() -> str:
    """Return the table of `server/README.md`."""
    lines = ["| from | to | when |", "|---|---|---|"]
    for old, ways in TRANSITIONS.items():
        lines += [f"| {old} | {new} | {why} |" for new, why in ways.items()]
        lines += [] if ways else [f"| {old} | | the end |"]
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())
