"""Files that are whole under their name after any crash.

What is written comes to be under another name, is synced and renamed, and the directory is
synced. Only then may a row of the store speak of it.
"""

import os
from pathlib import Path


def write(path: Path, data: bytes) -> None:
    """Write `path` so that it is durable on return; its directory is made if need be.

    Raises:
        OSError: it cannot be written; what was there under this name still is.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".tmp")
    with unfinished.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Bring the contents of a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
