"""The files of a job in its directory: checkpoints, logs, and which of them may go.

jobs/J/attempt-000001-step-000000000420.safetensors    `checkpoint` has their contents
jobs/J/log-000001.txt                                  what attempt 1 has printed
jobs/J/artifacts/                                      what the job left
jobs/J/lock                                            held by the attempt that runs
"""

import fcntl
import os
from pathlib import Path

_alone_in: set[Path] = set()
KEPT = 2  # checkpoints: should the newest be damaged, there is the one before


def job_directory(state_dir: Path, job_id: str) -> Path:
    return state_dir / "jobs" / job_id


def be_alone_in(directory: Path) -> None:
    """Wait until no other attempt at the job lives: one that was given up may, for a moment.

    The lock goes with the process, so it is never let go of before.
    """
    if directory in _alone_in:
        return
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    _alone_in.add(directory)


def checkpoint_name(attempt: int, step: int) -> str:
    """Return the file name of a checkpoint; names sort in the order of writing."""
    return f"attempt-{attempt:06d}-step-{step:012d}.safetensors"


def log_name(attempt: int) -> str:
    """Return the file name of what an attempt has printed."""
    return f"log-{attempt:06d}.txt"


def checkpoints_until(path: Path) -> list[Path]:
    """Return `path` and the checkpoints beside it that were written before, the newest first."""
    older = [other for other in path.parent.glob("attempt-*.safetensors") if other < path]
    return [path, *sorted(older, reverse=True)]


def remove_older(path: Path) -> None:
    """Remove the checkpoints beside `path` that are not needed, unfinished ones too.

    Those after it stay: an attempt may be one ahead of what its runner has recorded.
    """
    kept = set(checkpoints_until(path)[:KEPT])
    for other in path.parent.glob("attempt-*"):
        if other.name < path.name and other not in kept:
            other.unlink(missing_ok=True)
