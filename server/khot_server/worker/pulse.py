"""The engine's pulse: a thread that says that the engine is alive, and ends it when it is alone.

Every PULSE_S a byte goes over the lifeline to the supervisor, which kills an engine that is
silent (`supervisor.py` says when). A process that was stopped sends none, nor one whose
threads wait for each other. One that computes does: torch and the kernels let other threads
run meanwhile. A batch that never ends is therefore not found here but by the API process,
which closes the link.

The same thread waits for the lifeline and the link to be hung up, so that an engine ends at
once, also in the middle of a batch: without the API process nobody wants its result, and
without the supervisor nobody would restart it.
"""

import os
import select
import socket
import threading

from khot_server.control import PULSE, PULSE_S


def start(lifeline: socket.socket, link: socket.socket) -> None:
    """Beat from now on, until the process ends."""
    threading.Thread(target=_beat, args=(lifeline, link), name="pulse", daemon=True).start()


def _beat(lifeline: socket.socket, link: socket.socket) -> None:
    hung_up = select.poll()
    for end in (lifeline, link):
        hung_up.register(end, 0)  # which, unlike data, is told without being asked for
    while True:
        try:
            lifeline.send(PULSE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass  # the supervisor does not read just now, and has enough to read later
        except OSError:
            os._exit(0)
        if hung_up.poll(PULSE_S * 1000):
            os._exit(0)
