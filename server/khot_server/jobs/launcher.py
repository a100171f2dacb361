"""How an attempt comes to run: the seam between the runner and where the work is done.

Here an attempt is a process of its own: forked by the nursery, which has torch loaded, or, where
there is none, spawned in a fresh interpreter. While the nursery loads, attempts wait for it: one
that was spawned would not begin sooner, and keep it from loading. Another launcher may put them
on another machine.
"""

import contextlib
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Protocol

import structlog

from khot_server.jobs.messages import Order, Report, Stop
from khot_server.jobs.nursery import Forked, Loading, Nursery, NurseryLost, in_words

log = structlog.get_logger()

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

    @property
    def loading(self) -> "Loading | None":
        """What to wait for before an attempt can begin; None: it can begin at once."""

    def launch(self, order: Order) -> Attempt:
        """Start an attempt."""


class LocalLauncher:
    """Runs each attempt in a process of its own.

    Args:
        warm: whether to keep a nursery, so that attempts begin at once.
    """

    def __init__(self, *, warm: bool = False) -> None:
        self._nursery = Nursery() if warm and sys.platform == "linux" else None

    @property
    def loading(self) -> Loading | None:
        """The nursery, while it loads."""
        if self._nursery is None:
            return None
        try:
            return None if self._nursery.ready else self._nursery.loading
        except NurseryLost:
            self._replace_nursery()
            return self.loading

    def launch(self, order: Order) -> Attempt:
        """Start an attempt."""
        # One connection is all: it carries the order, a wish to stop and the reports, and
        # each side sees at its end that the other is gone.
        ours, theirs = Pipe()
        with theirs:
            process = self._forked(theirs.fileno()) or Spawned(theirs.fileno())
            return LocalAttempt(process, ours, order)

    def close(self) -> None:
        """End the nursery."""
        if self._nursery is not None:
            self._nursery.close()

    def _forked(self, descriptor: int) -> Forked | None:
        """A process of the nursery, if there is one that has loaded."""
        if self._nursery is None:
            return None
        try:
            return self._nursery.fork(descriptor)
        except NurseryLost:
            self._replace_nursery()
            return None

    def _replace_nursery(self) -> None:
        assert self._nursery is not None
        loaded = self._nursery.loaded
        log.warning("nursery_lost", loaded=loaded)
        self._nursery.close()
        # one that could not load here never will
        self._nursery = Nursery() if loaded else None


class Process(Protocol):
    """Where an attempt runs."""

    @property
    def pid(self) -> int: ...

    def kill(self) -> None: ...

    def wait(self, timeout_s: float | None) -> str | None:
        """Return how it ended, in words; None if it has not."""


class Spawned:
    """A process in a fresh interpreter."""

    def __init__(self, descriptor: int) -> None:
        command = [sys.executable, "-m", "khot_server.jobs.attempt", str(descriptor)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(descriptor,))
        self.pid = self._process.pid

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout_s: float | None) -> str | None:
        try:
            return in_words(self._process.wait(timeout_s))
        except subprocess.TimeoutExpired:
            return None


class LocalAttempt:
    """An attempt in a process of this machine."""

    def __init__(
        self, process: Process, connection: "Connection[Order | Stop, Report]", order: Order
    ) -> None:
        self.connection, self._process = connection, process
        self.name = f"pid {process.pid}"
        self._send(order)

    def stop(self) -> None:
        self._send(Stop())

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> str:
        how = self._process.wait(EXIT_S)
        if how is None:
            self._process.kill()
            how = self._process.wait(None)
        self.connection.close()
        return str(how)

    def _send(self, message: Order | Stop) -> None:
        # If it is gone, the end of its reports will tell.
        with contextlib.suppress(OSError):
            self.connection.send(message)
