"""Connections: bounded in number, size and time, on a thread of their own.

A client may be slow, rude or many; `Bounds` says what it may take. A connection carries one
request and its reply. When there are as many as may be, the one that has kept us waiting for
the longest makes room for the next: so whoever asks without delay, as Prometheus does, is
answered, whatever the others do. The thread of gRPC sees nothing of it.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import ParamSpec, Protocol, TypeVar

import structlog

from khot_server.web.messages import END_OF_HEAD, Refused, Reply, Request, parse

log = structlog.get_logger()

PIECE_BYTES = 64 * 1024
WORKERS = 4  # threads that make replies

P = ParamSpec("P")
T = TypeVar("T")


class Site(Protocol):
    """What is served; called from several threads."""

    def answer(self, request: Request) -> Reply: ...
    def refuse(self, why: Refused) -> Reply: ...


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What a client may take.

    Attributes:
        connections: at once.
        head_bytes: of a request without its body, which nobody reads.
        head_s: to send it in.
        answer_s: from there to the end of the reply.
        linger_s: from there until the client hangs up.
    """

    connections: int = 64
    head_bytes: int = 16 * 1024
    head_s: float = 5.0
    answer_s: float = 30.0
    linger_s: float = 1.0


class WebServer:
    """Serves a site from a thread of its own."""

    def __init__(self, site: Site, bounds: Bounds | None = None) -> None:
        self._site, self._bounds = site, bounds or Bounds()
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="web")
        self._connections: set[asyncio.Task[None]] = set()
        self._idle: dict[asyncio.Task[None], None] = {}  # we wait for these, the longest first
        self._thread: threading.Thread | None = None

    def start(self, address: str) -> int:
        """Listen at `host:port`; return the port.

        Raises:
            OSError: the address is taken, or none of this machine.
        """
        host, _, port = address.rpartition(":")
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        family, _, _, _, where = found[0]
        listener = socket.create_server(where[:2], family=family)
        self._loop = asyncio.new_event_loop()
        self._closed = asyncio.Event()
        # a daemon: should the process end without `close`, nothing waits for it
        self._thread = threading.Thread(target=self._run, args=(listener,), name="web", daemon=True)
        self._thread.start()
        return int(listener.getsockname()[1])

    def close(self) -> None:
        """Hang up on everybody, and return when it is done."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._closed.set)
            self._thread.join()
        self._workers.shutdown()

    def _run(self, listener: socket.socket) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(listener))

    async def _serve(self, listener: socket.socket) -> None:
        limit = self._bounds.head_bytes
        async with await asyncio.start_server(self._connected, sock=listener, limit=limit):
            await self._closed.wait()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= self._bounds.connections:
            longest = next(iter(self._idle), None)
            if longest is None:  # all are being answered
                writer.transport.abort()
                return
            del self._idle[longest]
            longest.cancel()
        self._connections.add(task)
        try:
            await self._exchange(task, reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass  # nobody is left to tell
        except Exception:
            log.exception("web_failed")
        finally:
            self._connections.discard(task)
            writer.transport.abort()  # what was to be sent has been

    async def _exchange(
        self,
        task: asyncio.Task[None],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Take a request, answer it, and see the client off."""
        with self._waiting(task):
            asked = await self._asked(reader, writer)
        async with asyncio.timeout(self._bounds.answer_s):
            reply = await self._in_thread(self._reply, asked)
            with_body = isinstance(asked, Refused) or asked.method != "HEAD"
            await self._send(task, writer, reply, with_body)
        with self._waiting(task):
            # If we closed now, bytes that nobody has read would reset the connection, and the
            # reply could be lost with it.
            writer.write_eof()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._bounds.linger_s):
                    while await reader.read(PIECE_BYTES):
                        pass

    @contextlib.contextmanager
    def _waiting(self, task: asyncio.Task[None]) -> Iterator[None]:
        """While the client is to act, its connection may have to make room for another."""
        self._idle[task] = None
        try:
            yield
        finally:
            self._idle.pop(task, None)

    async def _asked(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Request | Refused:
        try:
            async with asyncio.timeout(self._bounds.head_s):
                head = await reader.readuntil(END_OF_HEAD)
            return parse(head, writer.get_extra_info("peername")[0])
        except Refused as refused:
            return refused
        except asyncio.LimitOverrunError:
            must = f"request: must have at most {self._bounds.head_bytes} bytes before its body"
            return Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"{must}; got more")

    def _reply(self, asked: Request | Refused) -> Reply:
        return self._site.refuse(asked) if isinstance(asked, Refused) else self._site.answer(asked)

    async def _send(
        self,
        task: asyncio.Task[None],
        writer: asyncio.StreamWriter,
        reply: Reply,
        with_body: bool,
    ) -> None:
        writer.transport.set_write_buffer_limits(0)  # so that `drain` waits for all of it
        writer.write(reply.head())
        if isinstance(reply.body, bytes):
            writer.write(reply.body if with_body else b"")
            await self._read_by(task, writer)
            return
        with reply.body as file:
            while with_body and (piece := await self._in_thread(file.read, PIECE_BYTES)):
                writer.write(piece)
                await self._read_by(task, writer)
        await self._read_by(task, writer)

    async def _read_by(self, task: asyncio.Task[None], writer: asyncio.StreamWriter) -> None:
        """Return when the client has taken what was written."""
        with self._waiting(task):
            await writer.drain()

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._loop.run_in_executor(self._workers, partial(work, *args, **kwargs))
