"""The files of a job as one set: all of them are there, or none."""

import hashlib
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from khot_server.jobs import durable
from khot_server.jobs.records import Artifact

MEDIA_TYPES = {
    ".csv": "text/csv; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".safetensors": "application/octet-stream",
}
NAME = re.compile(r"[A-Za-z0-9_-]+(\.[a-z]+)")

# The bytes, or what writes them to the path that it is given.
Contents = bytes | Callable[[Path], object]


def publish(directory: Path, files: Mapping[str, Contents]) -> tuple[Artifact, ...]:
    """Make `directory` hold these files and no others, durably; return them by name.

    They come to be in a directory beside it, which is then renamed. So under its own name
    there is a whole set at any moment, or, between an older set and this one, none. For one
    caller at a time: what one before it left unfinished is removed.

    Raises:
        ValueError: a name is not that of a file of a known kind; nothing was written.
        OSError: they cannot be written; what was there before still is.
    """
    kinds = {name: _media_type(name) for name in sorted(files)}
    new, old = (directory.with_name(f"{directory.name}.{which}") for which in ("new", "old"))
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        made = tuple(_write(new / name, files[name], kind) for name, kind in kinds.items())
        durable.sync(new)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    if directory.exists():
        directory.rename(old)
    new.rename(directory)
    durable.sync(directory.parent)
    shutil.rmtree(old, ignore_errors=True)
    return made


def _write(path: Path, contents: Contents, media_type: str) -> Artifact:
    if isinstance(contents, bytes):
        path.write_bytes(contents)
    else:
        contents(path)
    durable.sync(path)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Artifact(path.name, path.stat().st_size, digest, media_type)


def _media_type(name: str) -> str:
    found = NAME.fullmatch(name)
    if found is None or found[1] not in MEDIA_TYPES:
        must = f"must be a plain name that ends in one of {', '.join(MEDIA_TYPES)}"
        raise ValueError(f"artifact: name {must}; got {name!r}")
    return MEDIA_TYPES[found[1]]
