"""A process that has loaded all an attempt needs, and forks one when asked.

`python -m khot_server.jobs.nursery FD`. To load torch, its optimizers and matplotlib takes
three seconds, to fork a process that has loaded them some milliseconds, and the memory is shared.

OpenMP and CUDA do not survive a fork once they have begun; so nothing is computed here, only
imported, and the nursery serves only if it still has a single thread. Where it cannot, and on
systems other than Linux, attempts are spawned: see `launcher`.

The protocol, over a socket pair to the runner: READY once it is loaded; then FORK, with the
descriptor of an attempt's connection, is answered by the attempt's pid, and REAP with a pid by
its wait status. A pid is not used again before it is reaped. At the end of the socket the
nursery ends; its attempts see the end of the runner by themselves.
"""

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

READY, FORK, REAP = b"R", b"F", b"W"
_NUMBER = struct.Struct("<q")
REPLY_S = 2.0  # for an answer: a fork takes milliseconds
LOAD_S = 60.0  # to load: more than it takes on a slow disk


class NurseryLost(Exception):
    """The nursery is gone, or does not answer."""


@dataclass(frozen=True)
class Loading:
    """Something that is not there yet: what can be read from once it is, and when to give it up."""

    socket: socket.socket
    until: float


class Nursery:
    """The runner's end of it.

    Attributes:
        loaded: whether it was ready when it was last asked.
        loading: what to wait for until it is.
    """

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "khot_server.jobs.nursery", str(theirs.fileno())]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),)
            )
        self._socket.settimeout(REPLY_S)
        self.loading = Loading(self._socket, time.monotonic() + LOAD_S)
        self.loaded = False

    @property
    def ready(self) -> bool:
        """Whether it has loaded.

        Raises:
            NurseryLost: it is gone, or takes too long.
        """
        if not self.loaded and select.select([self._socket], [], [], 0)[0]:
            self.loaded = self._exactly(1) == READY
        if not self.loaded and time.monotonic() >= self.loading.until:
            raise NurseryLost
        return self.loaded

    def fork(self, descriptor: int) -> "Forked | None":
        """Return a new attempt that has this descriptor; None while it is still loading.

        Raises:
            NurseryLost: it is gone.
        """
        if not self.ready:
            return None
        try:
            socket.send_fds(self._socket, [FORK], [descriptor])
        except OSError as error:
            raise NurseryLost from error
        (pid,) = _NUMBER.unpack(self._exactly(_NUMBER.size))
        return Forked(self, pid)

    def reap(self, pid: int) -> int:
        """Return the wait status of an attempt that has ended.

        Raises:
            NurseryLost: nobody can tell any more.
        """
        try:
            self._socket.sendall(REAP + _NUMBER.pack(pid))
        except OSError as error:
            raise NurseryLost from error
        (status,) = _NUMBER.unpack(self._exactly(_NUMBER.size))
        return int(status)

    def close(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def _exactly(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            try:
                part = self._socket.recv(size - len(parts))
            except OSError as error:
                raise NurseryLost from error
            if not part:
                raise NurseryLost
            parts += part
        return parts


class Forked:
    """A process that the nursery made.

    Attributes:
        pid: of it.
    """

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self.pid, self._nursery = pid, nursery
        self._descriptor = os.pidfd_open(pid)
        self._ended: str | None = None
        self._lock = threading.Lock()  # the descriptor, once closed, may be another file's

    def kill(self) -> None:
        with self._lock:
            if self._ended is None:
                with contextlib.suppress(OSError):  # it has ended, and nobody waited for it yet
                    signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def wait(self, timeout_s: float | None) -> str | None:
        """Return how it ended, in words; None if it has not."""
        if self._ended is None:
            ended, _, _ = select.select([self._descriptor], [], [], timeout_s)
            if not ended:
                return None
            try:
                how = in_words(os.waitstatus_to_exitcode(self._nursery.reap(self.pid)))
            except NurseryLost:
                how = "ended, and so has who could tell how"
            with self._lock:
                self._ended = how
                os.close(self._descriptor)
        return self._ended


def in_words(status: int) -> str:
    """How a process ended, by its return code as `subprocess` has it."""
    return f"killed by signal {-status}" if status < 0 else f"exited with status {status}"


def main(descriptor: int) -> NoReturn:
    """Load, and fork attempts until the socket ends."""
    # Both may be sent to a whole process group; the runner decides what they mean here.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # To ask for GPUs otherwise would begin CUDA.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    # OpenBLAS, numpy's, would begin threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from khot_server.jobs.tasks import warm

    warm.up()
    control = socket.socket(fileno=descriptor)
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        os._exit(1)
    control.sendall(READY)
    with contextlib.suppress(OSError):
        while _answer(control):
            pass
    os._exit(0)


def _answer(control: socket.socket) -> bool:
    """Whether there was something to do."""
    kind, fds, _, _ = socket.recv_fds(control, 1, 1)
    if kind == FORK:
        pid = os.fork()
        if pid == 0:
            control.close()
            from khot_server.jobs import attempt

            attempt.main(fds[0])
        os.close(fds[0])
        control.sendall(_NUMBER.pack(pid))
    elif kind == REAP:
        (pid,) = _NUMBER.unpack(control.recv(_NUMBER.size, socket.MSG_WAITALL))
        control.sendall(_NUMBER.pack(os.waitpid(pid, 0)[1]))
    return bool(kind)


if __name__ == "__main__":
    main(int(sys.argv[1]))
