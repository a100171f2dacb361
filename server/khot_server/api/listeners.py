"""The address that is listened on: several gRPC servers with one set of handlers.

A grpc.aio server takes up one call at a time, and needs a turn of the event loop and a task for
each. Where many callers wait, that is dearer than all that we do with a call. So there are several
servers on the same port, among which the kernel shares out the connections (SO_REUSEPORT): in one
turn of the loop each takes up a call. They share the process, the loop and the handlers.
"""

import asyncio
import errno
import socket
from collections.abc import Sequence
from typing import Any

import grpc

from khot_server.config import Settings

# 64 callers of a bare echo: 460 us of CPU a call with one, 310 with 4, 270 with 16.
SERVERS = 16
MIN_PING_S = 10.0


class Listeners:
    """The servers. Handlers are added as to one server."""

    def __init__(self, settings: Settings) -> None:
        options = connection_options(settings)
        self._servers = [grpc.aio.server(options=options) for _ in range(SERVERS)]

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        for server in self._servers:
            server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """Generated code says everything twice; the first is enough."""

    def bind(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        """Take the address; return its port, which is chosen if it was 0.

        Raises:
            OSError, RuntimeError: it is taken, or is no address of this machine.
        """
        host, _, port = address.rpartition(":")
        _check_free(host.strip("[]"), int(port))
        for server in self._servers:
            at = f"{host}:{port}"
            if credentials is None:
                port = str(server.add_insecure_port(at))
            else:
                port = str(server.add_secure_port(at, credentials))
        return int(port)

    async def start(self) -> None:
        for server in self._servers:
            await server.start()

    async def stop(self, grace_s: float) -> None:
        """Take no more calls; those under way have so long to end."""
        await asyncio.gather(*(server.stop(grace_s) for server in self._servers))


def connection_options(settings: Settings) -> list[tuple[str, int]]:
    """How gRPC treats connections."""
    size, asked_after = settings.max_message_bytes, round(1000 * settings.keepalive_s)
    return [
        ("grpc.max_receive_message_length", size),
        ("grpc.max_send_message_length", size),
        ("grpc.so_reuseport", 1),
        # Calls above it wait at the caller, with their deadlines running, until others have
        # ended. gRPC protects itself from bursts that do not: near the limit it refuses some
        # of them, with a bare UNAVAILABLE. So it is well above --max-caller-calls, whose
        # refusals say why, and when to come back.
        ("grpc.max_concurrent_streams", settings.max_connection_calls),
        # Calls that gRPC has not yet handed to us wait there. From a thousand on it would
        # answer some of them itself, with a bare CANCELLED; ours say why, and when to retry.
        ("grpc.server.max_pending_requests", 1 << 16),
        ("grpc.server.max_pending_requests_hard_limit", 1 << 17),
        # A peer that is gone without a word (its machine, or the way to it) holds calls and
        # watches. So a silent connection is asked, with or without calls, and closed when
        # it does not answer; its calls are cancelled. It is the time of pings that counts
        # (60 s if it is not given), and the keepalive's own has no effect as of gRPC 1.85.
        ("grpc.keepalive_time_ms", asked_after),
        ("grpc.keepalive_timeout_ms", asked_after),
        ("grpc.http2.ping_timeout_ms", asked_after),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),  # no end to the asking
        # Callers may ask too, but one that asks more often than this is sent away.
        ("grpc.http2.min_ping_interval_without_data_ms", round(1000 * MIN_PING_S)),
    ]


def _check_free(host: str, port: int) -> None:
    """Raise OSError if somebody listens there: sharing the port, ours would not notice."""
    if port == 0:
        return
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(address)
            except OSError as error:
                # for other reasons, gRPC may still serve the name's other addresses
                if error.errno == errno.EADDRINUSE:
                    raise
