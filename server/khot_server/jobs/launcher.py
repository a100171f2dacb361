"""How an attempt comes to run: the seam between the runner and where the work is done.

Here an attempt is a child process, in a fresh interpreter (threads of OpenMP do not
survive a fork). Another launcher may put it on another machine.
"""

import contextlib
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Protocol

from khot_server.jobs.messages import Order, Report, Stop

# How long an attempt that has said its last word may take to exit.
EXIT_S = 5.0


class Attempt(Protocol):
    """An attempt that was launched."""

    @property
    def connection(self) -> "Connection[Order | Stop, Report]":
        """Where its reports come from; at its end once the attempt is gone."""

    @property
    def name(self) -> str:
        """What to call it in a log."""

    def stop(self) -> None:
        """Ask it to write a checkpoint and end; it may take its time, or be gone."""

    def kill(self) -> None:
        """End it now. May be called from another thread, and more than once."""

    def wait(self) -> str:
        """Return how it ended, in words; kill it if it does not end by itself."""


class Launcher(Protocol):
    """Something that can run attempts."""

    def launch(self, order: Order) -> Attempt:
        """Start an attempt."""


class LocalLauncher:
    """Runs each attempt in a child process."""

    def launch(self, order: Order) -> Attempt:
        """Start an attempt."""
        return LocalAttempt(order)


class LocalAttempt:
    """An attempt in a child process."""

    def __init__(self, order: Order) -> None:
        # One connection is all: it carries the order, a wish to stop and the reports, and
        # each side sees at its end that the other is gone.
        self.connection, theirs = Pipe()
        with theirs:
            descriptor = theirs.fileno()
            command = [sys.executable, "-m", "khot_server.jobs.attempt", str(descriptor)]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=(descriptor,)
            )
        self.name = f"pid {self._process.pid}"
        self._send(order)

    def stop(self) -> None:
        self._send(Stop())

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> str:
        try:
            status = self._process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self.connection.close()
        return f"killed by signal {-status}" if status < 0 else f"exited with status {status}"

    def _send(self, message: Order | Stop) -> None:
        # If it is gone, the end of its reports will tell.
        with contextlib.suppress(OSError):
            self.connection.send(message)
