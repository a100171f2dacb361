"""The names of checkpoint files, and which of them may go; `checkpoint` has their contents."""

from pathlib import Path


def checkpoint_name(attempt: int, step: int) -> str:
    """Return the file name of a checkpoint; names sort in the order of writing."""
    return f"attempt-{attempt:06d}-step-{step:012d}.safetensors"


def remove_older(path: Path) -> None:
    """Remove the checkpoints beside `path` that were written before it, unfinished ones too.

    Those after it stay: an attempt may be one ahead of what its runner has recorded.
    """
    for other in path.parent.glob("attempt-*"):
        if other.name < path.name:
            other.unlink(missing_ok=True)
