"""One attempt at a job, in a process of its own: `python -m khot_server.jobs.attempt FD`.

FD is the attempt's end of a connection to its runner. The other end is held by the
runner alone, so when the connection ends, the runner is gone, and the attempt exits at
once: another runner may be at the same job soon.
"""

import contextlib
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from khot_server.jobs.files import log_name
from khot_server.jobs.messages import Order, Report, Stop


def main(descriptor: int) -> NoReturn:
    """Take the order from the connection, carry it out, and say how it ended."""
    # Both may be sent to a whole process group; the runner decides what they mean here.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection: Connection[Report, Order | Stop] = Connection(descriptor)
    try:
        order = connection.recv()
    except EOFError:
        sys.exit(1)
    assert isinstance(order, Order)
    _be_first_to_go()
    _print_to(order.directory / log_name(order.attempt))
    stop = threading.Event()

    def listen() -> None:
        try:
            while True:
                connection.recv()
                stop.set()
        except (EOFError, OSError):
            # Not sys.exit, which would wait for the main thread to end its training.
            os._exit(1)

    threading.Thread(target=listen, name="lifeline", daemon=True).start()
    # Here, so that the connection is watched while torch loads.
    from khot_server.jobs.tasks.carry_out import carry_out

    connection.send(carry_out(order, connection.send, stop.is_set))
    # The runner waits for the exit, and torch would take a second to clean up what the
    # system cleans up anyway.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _be_first_to_go() -> None:
    """Should memory be short, let the system end this process, not one that serves."""
    with contextlib.suppress(OSError):  # there is no such file but on Linux
        Path("/proc/self/oom_score_adj").write_text("1000")


def _print_to(path: Path) -> None:
    """Let all that is printed from here on go to the attempt's log, line by line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


if __name__ == "__main__":
    main(int(sys.argv[1]))
