"""The bytes of an upload that is not complete, in a file that one call holds at a time.

The lock is the kernel's, so it ends with the process that has it. The name of the file
follows from the upload, so that it can be locked before the row is looked at.
"""

import fcntl
import hashlib
import os
from pathlib import Path
from threading import Lock

from khot_server.datasets.records import BadTable, Header, UploadBusy
from khot_server.jobs import durable

READ_BYTES = 1 << 20


def upload_file(tenant: str, upload_id: str) -> str:
    """Return the name of the file in which an upload is gathered."""
    return hashlib.sha256(f"{tenant}\0{upload_id}".encode()).hexdigest()[:32]


class Incoming:
    """The file of an upload, made if need be, and held until `close`.

    Methods block, and may be called from any thread.

    Raises:
        UploadBusy: another call holds it.
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._using = Lock()  # so that nothing is closed under a write
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(self._descriptor).st_nlink:  # another removed it, and lets it go
                raise BlockingIOError
        except BlockingIOError:
            os.close(self._descriptor)
            must = "must be sent by one call at a time"
            raise UploadBusy(f"upload_id: {must}; got one that another call sends") from None
        if not self.size:
            durable.sync(path.parent)

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return os.fstat(self._descriptor).st_size

    def append(self, data: bytes | bytearray, header: Header) -> None:
        """Add bytes; they are durable on return.

        Raises:
            BadTable: there would be more than declared; none is added.
            OSError: they cannot be written; some may have been.
        """
        with self._using:
            if self.size + len(data) > header.size_bytes:
                got = f"{self.size + len(data)} and more to come"
                raise BadTable(f"data: must be {header.size_bytes} bytes, as declared; got {got}")
            view = memoryview(data)
            while view:
                view = view[os.write(self._descriptor, view) :]
            os.fsync(self._descriptor)

    def clear(self) -> None:
        """Remove all bytes."""
        with self._using:
            os.ftruncate(self._descriptor, 0)

    def check(self, header: Header) -> None:
        """Raise BadTable unless the bytes are all there, and those that were declared."""
        with self._using:
            size = self.size
            if size != header.size_bytes:
                raise BadTable(f"data: must be {header.size_bytes} bytes, as declared; got {size}")
            digest, offset = hashlib.sha256(), 0
            while data := os.pread(self._descriptor, READ_BYTES, offset):
                digest.update(data)
                offset += len(data)
        if digest.hexdigest() != header.sha256:
            must = f"SHA-256 must be {header.sha256}, as declared"
            raise BadTable(f"data: {must}; got {digest.hexdigest()}")

    def remove(self) -> None:
        """Remove the file; it is held still."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of it."""
        with self._using:
            if self._descriptor >= 0:
                os.close(self._descriptor)
            self._descriptor = -1
