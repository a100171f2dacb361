"""One attempt at a job, in a process of its own: `python -m khot_server.jobs.attempt FD`.

FD is the attempt's end of a connection to its runner. The other end is held by the
runner alone, so when the connection ends, the runner is gone, and the attempt exits at
once: another runner may be at the same job soon.
"""

import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from typing import NoReturn

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


if __name__ == "__main__":
    main(int(sys.argv[1]))
