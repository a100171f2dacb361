"""A guard with its metrics, and calls through it, with what gRPC gives a servicer."""

import asyncio
import functools
import hashlib
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
from google.rpc import status_pb2

from khot_server.api.guard import CODES, Guard
from khot_server.api.identity import Identity, Tokens
from khot_server.metrics import Metrics

RELAX = "/khot.v1.KHotService/Relax"
WATCH = "/khot.v1.JobService/WatchJob"
PEER = "ipv4:127.0.0.1:5000"


def token_of(tenant: str, *scopes: str) -> dict[str, Identity]:
    """The token of a tenant is his name."""
    return {hashlib.sha256(tenant.encode()).hexdigest(): Identity(tenant, frozenset(scopes))}


TOKENS = Tokens(
    token_of("vision", "sample")
    | token_of("speech", "sample")
    | token_of("batch", "jobs")
    | token_of("root", "admin")
)


class Context:
    """What gRPC gives a servicer."""

    def __init__(
        self, token: str | None = None, peer: str = PEER, request_id: str | None = None
    ) -> None:
        self._peer = peer
        self._metadata: tuple[tuple[str, str], ...] = (("x-other", "1"),)
        if request_id is not None:
            self._metadata += (("x-request-id", request_id),)
        if token is not None:
            self._metadata += (("authorization", f"Bearer {token}"),)
        self.trailing: tuple[tuple[str, bytes], ...] = ()
        self.aborted: list[tuple[grpc.StatusCode, str]] = []

    def peer(self) -> str:
        return self._peer

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    def set_trailing_metadata(self, metadata: tuple[tuple[str, bytes], ...]) -> None:
        self.trailing = metadata

    async def abort(self, code: grpc.StatusCode, details: str = "") -> None:
        self.aborted.append((code, details))
        raise grpc.aio.AbortError

    def set_code(self, code: grpc.StatusCode) -> None:
        self.told_code = code

    def set_details(self, details: str) -> None:
        self.told_details = details

    def code(self) -> grpc.StatusCode:
        return self.aborted[-1][0]

    @property
    def status(self) -> status_pb2.Status:
        """What the caller is told: the status in the trailer, which agrees with the call's own."""
        assert not self.aborted
        status = status_pb2.Status.FromString(dict(self.trailing)["grpc-status-details-bin"])
        assert (CODES[status.code], status.message) == (self.told_code, self.told_details)
        return status


class Gate:
    """A guard with its metrics, and calls through it."""

    def __init__(self, tokens: Tokens | None = None, max_caller_calls: int = 2) -> None:
        self.metrics = Metrics(("Relax", "WatchJob"))
        self.guard = Guard(tokens, self.metrics, max_caller_calls)

    async def call(
        self,
        behaviour: Any,
        context: Context | None = None,
        request: Any = b"?",
        method: str = RELAX,
        read: Any = None,
    ) -> Any:
        """The response of a unary call; None if there is none."""
        inner = grpc.unary_unary_rpc_method_handler(behaviour, read)
        handler = self.guard.handler(method, inner)
        try:
            return await handler.unary_unary(request, context or Context())
        except grpc.aio.AbortError:
            return None

    def iterate(
        self, behaviour: Any, context: Context, request: Any = b"?", read: Any = None
    ) -> Any:
        """The responses of a call of WatchJob."""
        inner = grpc.unary_stream_rpc_method_handler(behaviour, read)
        return self.guard.handler(WATCH, inner).unary_stream(request, context)

    def check_counted(self, method: str = "Relax", **codes: int) -> None:
        """Every call of the method is counted once, with its code, and none is under way."""
        value = self.metrics.registry.get_sample_value
        found = {
            code.name: value("khot_requests_total", {"method": method, "code": code.name})
            for code in grpc.StatusCode
        }
        assert {name: count for name, count in found.items() if count} == codes
        of_method = {"method": method}
        assert value("khot_requests_in_flight", of_method) == 0
        assert value("khot_request_duration_seconds_count", of_method) == sum(codes.values())
        assert not self.guard._under_way, "and nobody's calls are"


def run(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """An async test as a test."""

    @functools.wraps(test)
    def wrapper(**parameters: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**parameters), 20))

    return wrapper


async def echo(request: Any, context: Any) -> Any:
    return request


def raising(error: BaseException) -> Any:
    async def behaviour(request: Any, context: Any) -> Any:
        raise error

    return behaviour
