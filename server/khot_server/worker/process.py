"""The engine's process: a link to the API process, a lifeline to the supervisor.

`python -m khot_server.worker.process --link-fd N --lifeline-fd M`. It loads torch, is told
its device over the lifeline, and serves. It ends when either is closed, whatever it is doing
(`pulse.py`).
"""

import argparse
import contextlib
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

from khot_server import logs
from khot_server.control import CANNOT_START, READY
from khot_server.messages import BatchRequest
from khot_server.worker import memory, pulse

if TYPE_CHECKING:
    from khot_server.worker.engine import Engine


def main() -> None:
    """Run the engine."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--link-fd", type=int, required=True)
    parser.add_argument("--lifeline-fd", type=int, required=True)
    options = parser.parse_args()
    logs.configure("engine")
    # Ctrl-C reaches the whole group, and some service managers send SIGTERM to all of it:
    # what was accepted is computed first, and the end of the link is the end.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    link = socket.socket(fileno=options.link_fd)
    lifeline = socket.socket(fileno=options.lifeline_fd)
    pulse.start(lifeline, link)
    # Threads that spin while they wait for work take the cores that the API process needs.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # Only now, for it loads torch, which takes seconds.
    from khot_server.worker.engine import Engine

    device = lifeline.recv(1 << 10).decode()
    try:
        engine = Engine(device)
    except Exception as error:  # whatever torch says of a device it does not have
        must = "khot-server: device must be one that torch can use here"
        print(f"{must}; got {device!r} ({error})", file=sys.stderr, flush=True)
        os._exit(CANNOT_START)
    lifeline.send(READY)
    with contextlib.suppress(ConnectionError):  # the API process is gone, and so are we
        serve(engine, link)
    # torch would take a second to clean up what the system cleans up anyway
    os._exit(0)


def serve(engine: "Engine", link: socket.socket) -> None:
    """Say hello, then answer batches until the link ends."""
    link.sendall(engine.hello(os.getpid()).encode())
    slots: dict[int, memoryview] = {}
    while (received := receive(link)) is not None:
        request, fd = received
        if fd is not None:
            slots[request.slot] = memoryview(memory.attach(fd))
        link.sendall(engine.run(request, slots[request.slot]).encode())


def receive(link: socket.socket) -> tuple[BatchRequest, int | None] | None:
    """The next batch, with the descriptor that came with it; None at the end of the link."""
    head, fds, _, _ = socket.recv_fds(link, 4, 1)
    head += _exactly(link, 4 - len(head))
    size = int.from_bytes(head, "little")
    body = _exactly(link, size)
    if len(head) < 4 or len(body) < size:
        return None
    return BatchRequest.decode(body), fds[0] if fds else None


def _exactly(link: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = link.recv(size - len(parts))
        if not part:
            break
        parts += part
    return bytes(parts)


if __name__ == "__main__":
    main()
