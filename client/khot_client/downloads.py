"""Files of a job, downloaded so that what looks complete is complete.

The bytes go to a name that ends in `.part`, with the beginning of their checksum in it, so
that a later call goes on with the same file and with no other. It gets its own name when
its size and SHA-256 are right and it is on disk.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from io import FileIO
from pathlib import Path

from khot_client import job_calls as calls
from khot_client.errors import NotFound, ServerError, TransferFailed, Unavailable
from khot_client.io import Io
from khot_client.job_values import Artifact
from khot_client.watching import Patience

TRIES = 2  # a damaged part is begun anew once
Told = Callable[[str, int, int], object]


async def download(
    io: Io,
    job_id: str,
    to: str | os.PathLike[str],
    name: str | None,
    progress: Told | None,
    reconnect_s: float,
) -> list[Path]:
    """The paths of the files: all of the job, or the one of that name."""
    listed = await Patience(reconnect_s).call(io, calls.artifacts(job_id))
    target = Path(to)
    if name is None:
        wanted = listed
    else:
        wanted = [artifact for artifact in listed if artifact.name == name]
        if not wanted:
            known = ", ".join(artifact.name for artifact in listed) or "none"
            message = f"artifact: must be one of the job's, {known}; got {name!r}"
            raise NotFound(message, code="NOT_FOUND")
    alone = name is not None and not target.is_dir()
    paths = []
    for artifact in wanted:
        if Path(artifact.name).name != artifact.name or artifact.name == "..":
            must = "artifact: name must be one of a file in a folder"
            raise ServerError(f"reply: {must}; got {artifact.name!r}")
        path = target if alone else target / artifact.name
        await _Download(io, job_id, artifact, path, progress).run(reconnect_s)
        paths.append(path)
    return paths


class _Download:
    """One file on its way."""

    def __init__(
        self, io: Io, job_id: str, artifact: Artifact, path: Path, progress: Told | None
    ) -> None:
        self._io, self._job_id, self._artifact = io, job_id, artifact
        self._path, self._progress = path, progress
        self._part = path.with_name(f"{path.name}.{artifact.sha256[:12]}.part")

    async def run(self, reconnect_s: float) -> None:
        if await self._io.work(self._is_whole, self._path):
            self._tell(self._artifact.size_bytes)
            return
        for _ in range(TRIES):
            await self._fetch(Patience(reconnect_s))
            if await self._io.work(self._finish):
                return
        raise TransferFailed(
            f"{self._path}: must arrive with the checksum of the server's file; got another, "
            "twice. Download it again; if that does not help, the server's file is damaged."
        )

    async def _fetch(self, patience: Patience) -> None:
        """Get the bytes that are not there yet, over any loss of connection."""
        with _told(self._path):
            self._part.parent.mkdir(parents=True, exist_ok=True)
            file = self._part.open("ab", buffering=0)
        with file:
            while True:
                call = calls.download(self._job_id, self._artifact.name, self._begin(file))
                try:
                    async with aclosing(self._io.stream(call, None)) as pieces:
                        async for data in pieces:
                            self._tell(await self._io.work(self._write, file, data))
                            patience.progress()
                    return
                except Unavailable as lost:
                    await patience.pause(self._io, lost)

    def _begin(self, file: FileIO) -> int:
        """How many bytes are there; none, if they are too many."""
        with _told(self._path):
            size = os.fstat(file.fileno()).st_size
            if size > self._artifact.size_bytes:
                size = file.truncate(0)
        return size

    def _write(self, file: FileIO, data: bytes) -> int:
        """Append the data; return how many bytes there are."""
        left = memoryview(data)
        with _told(self._path):
            while left:  # a disk that fills takes a part of it first
                left = left[file.write(left) :]
            return os.fstat(file.fileno()).st_size

    def _finish(self) -> bool:
        """Give the file its name, if it is whole; else remove it."""
        with _told(self._path):
            if not self._is_whole(self._part):
                self._part.unlink(missing_ok=True)
                return False
            _sync(self._part)
            self._part.replace(self._path)
            _sync(self._path.parent)
        return True

    def _is_whole(self, path: Path) -> bool:
        with _told(path):
            if not path.is_file() or path.stat().st_size != self._artifact.size_bytes:
                return False
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == self._artifact.sha256

    def _tell(self, done: int) -> None:
        if self._progress is not None:
            self._progress(self._artifact.name, done, self._artifact.size_bytes)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What the system says of files becomes ours."""
    try:
        yield
    except OSError as error:
        got = error.strerror or type(error).__name__
        raise TransferFailed(
            f"{path}: must be a file that can be written; got {got}. Free some space or choose "
            "another folder, and download again: it goes on where it broke off."
        ) from None


def _sync(path: Path) -> None:
    """Have it on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
