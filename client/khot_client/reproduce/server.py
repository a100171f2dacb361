"""A server of our own, for as long as an experiment takes; its state stays for the next time."""

import contextlib
import ctypes
import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from khot_client.errors import BadSettings, ServerError, Unavailable

START_S, STOP_S = 120.0, 60.0
TICK_S = 0.05
# Settings of whoever runs this are for another server, but for where and on what it works.
KEPT = ("KHOT_DATA_DIR", "KHOT_DATA_URL", "KHOT_DEVICE", "KHOT_NATIVE")
_SAID = re.compile(r"listening on (\S+), metrics on (\S+)")
_PR_SET_PDEATHSIG = 1


class LocalServer:
    """A khot-server as a child process.

    Attributes:
        address: of gRPC, host:port.
        page: of its status page.
    """

    def __init__(self, command: str, state: Path) -> None:
        self.log = state / "server.log"
        flags = ["--address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0"]
        flags += ["--state-dir", str(state), "--job-slots", str(cores()), "--job-threads", "1"]
        flags += ["--spare-engine", "false", "--drain-s", "1", "--log-format", "json"]
        environment = {k: v for k, v in os.environ.items() if k[:5] != "KHOT_" or k in KEPT}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [command, *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # so that Ctrl-C reaches us alone, who then stop it
                preexec_fn=_end_with_us if sys.platform == "linux" else None,  # noqa: PLW1509
            )

    def wait(self) -> None:
        """Return once it listens.

        Raises:
            Unavailable: it does not.
            ServerError: it has ended.
        """
        deadline = time.monotonic() + START_S
        while not (found := _SAID.search(self.log.read_text(errors="replace"))):
            self.check()
            if time.monotonic() > deadline:
                raise Unavailable(f"server: must listen within {START_S:.0f} s; see {self.log}")
            time.sleep(TICK_S)
        self.address, self.page = found[1], found[2]

    def check(self) -> None:
        """See that it lives.

        Raises:
            ServerError: it has ended.
        """
        if self._process.poll() is None:
            return
        said = self.log.read_text(errors="replace").strip().splitlines()
        last = said[-1] if said else "nothing"
        ended = f"server: must run; got its end, with {self._process.returncode}"
        raise ServerError(f"{ended}. It said: {last} ({self.log})")

    def stop(self) -> None:
        """Have it write checkpoints of what runs, and end; another Ctrl-C ends it at once."""
        try:
            self._process.terminate()
            self._process.wait(STOP_S)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            raise


@contextlib.contextmanager
def local_server(command: str, state: Path) -> Iterator[LocalServer]:
    """A server with this state directory, which no other may have meanwhile.

    Raises:
        BadSettings: another process has it.
        Unavailable, ServerError: the server does not start.
    """
    state.mkdir(parents=True, exist_ok=True)
    with (state / "reproduce.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            then = "Wait for it, or take another --out"
            raise BadSettings(
                f"{state}: must be used by one `khot reproduce`; got another. {then}"
            ) from None
        server = LocalServer(command, state)
        try:
            server.wait()
            yield server
        finally:
            server.stop()


def cores() -> int:
    """How many jobs can run side by side here."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _end_with_us() -> None:
    """Should we be killed, the server is told to stop, and does not stay behind."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
