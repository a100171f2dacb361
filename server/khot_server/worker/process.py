"""The engine's process: a socket to the API process, a lifeline to the supervisor.

`python -m khot_server.worker.process --link-fd N --lifeline-fd M --device cpu`. It ends
when either is closed: with the API process its callers are gone, and without the
supervisor nobody would restart it.
"""

import argparse
import contextlib
import os
import select
import signal
import socket
import sys

from khot_server.control import CANNOT_START
from khot_server.messages import BatchRequest, decode, encode
from khot_server.worker import memory
from khot_server.worker.engine import Engine


def main() -> None:
    """Run the engine."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--link-fd", type=int, required=True)
    parser.add_argument("--lifeline-fd", type=int, required=True)
    parser.add_argument("--device", required=True)
    options = parser.parse_args()
    # Ctrl-C reaches the whole group; the supervisor decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    link = socket.socket(fileno=options.link_fd)
    try:
        engine = Engine(options.device)
    except Exception as error:  # whatever torch says of a device it does not have
        must = "khot-server: device must be one that torch can use here"
        print(f"{must}; got {options.device!r} ({error})", file=sys.stderr, flush=True)
        os._exit(CANNOT_START)
    with contextlib.suppress(ConnectionError):  # the API process is gone, and so are we
        serve(engine, link, options.lifeline_fd)
    # torch would take a second to clean up what the system cleans up anyway
    os._exit(0)


def serve(engine: Engine, link: socket.socket, lifeline_fd: int) -> None:
    """Say hello, then answer batches until the link or the lifeline ends."""
    link.sendall(encode(engine.hello(os.getpid())))
    slots: dict[int, memoryview] = {}
    while True:
        ready, _, _ = select.select([link.fileno(), lifeline_fd], [], [])
        if lifeline_fd in ready:
            return
        received = receive(link)
        if received is None:
            return
        request, fd = received
        if fd is not None:
            slots[request.slot] = memoryview(memory.attach(fd))
        link.sendall(encode(engine.run(request, slots[request.slot])))


def receive(link: socket.socket) -> tuple[BatchRequest, int | None] | None:
    """The next batch, with the descriptor that came with it; None at the end of the link."""
    head, fds, _, _ = socket.recv_fds(link, 4, 1)
    head += b"" if len(head) in (0, 4) else _exactly(link, 4 - len(head))
    if len(head) < 4:
        return None
    body = _exactly(link, int.from_bytes(head, "little"))
    request = decode(body)
    assert isinstance(request, BatchRequest)
    return request, fds[0] if fds else None


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
