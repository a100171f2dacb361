"""What surrounds every call: identity, errors as statuses, and metrics.

An interceptor that wraps each handler, so that a servicer may simply raise a
ServiceError, and `identity()` is always there.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NoReturn

import grpc
import structlog
from google.protobuf.message import DecodeError
from google.rpc import code_pb2, status_pb2

from khot_server.api.identity import Identity, Tokens, authorize
from khot_server.errors import Draining, Internal, InvalidArgument, ServiceError, packed_details
from khot_server.metrics import Metrics

log = structlog.get_logger()

CODES = {code.value[0]: code for code in grpc.StatusCode}
_identity: ContextVar[Identity] = ContextVar("identity")

# What a call needs; health is open to everyone, for load balancers have no token.
SCOPES = {
    "khot.v1.KHotService": "sample",
    "khot.v1.JobService": "jobs",
    "grpc.reflection.v1alpha.ServerReflection": "sample",
}
OPEN = ("grpc.health.v1.Health",)


def identity() -> Identity:
    """Who makes the present call."""
    return _identity.get()


@dataclass
class _Call:
    method: str
    code: grpc.StatusCode = grpc.StatusCode.OK
    start: float = field(default_factory=time.perf_counter)


class Guard(grpc.aio.ServerInterceptor):
    """Wraps every handler."""

    def __init__(self, tokens: Tokens | None, metrics: Metrics, methods: set[str]) -> None:
        self._tokens, self._metrics, self._methods = tokens, metrics, methods
        self.draining = False
        self._refused_at = 0.0

    async def quiet(self, quiet_s: float, most_s: float) -> None:
        """While draining: until no call has come for `quiet_s`, but at most `most_s`.

        A refused caller is told to come back in seconds, so they soon do not. It matters
        because gRPC itself answers a call that meets its shutdown, with a bare CANCELLED.
        """
        start = self._refused_at = time.monotonic()
        while (now := time.monotonic()) - self._refused_at < quiet_s and now - start < most_s:
            await asyncio.sleep(quiet_s / 5)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        details: grpc.HandlerCallDetails,
    ) -> Any:
        """The handler, with the guard around it."""
        handler = await continuation(details)
        if handler is None:
            return handler
        service, _, name = details.method.removeprefix("/").partition("/")
        if service in OPEN:
            return handler
        asks, answers = (
            "stream" if streaming else "unary"
            for streaming in (handler.request_streaming, handler.response_streaming)
        )
        wrap = self._streaming if handler.response_streaming else self._unary
        make = getattr(grpc, f"{asks}_{answers}_rpc_method_handler")
        inner, read = getattr(handler, f"{asks}_{answers}"), handler.request_deserializer
        if not handler.request_streaming:
            # read inside the guard, so that bytes which are no message are refused as others are
            inner, read = _reading(inner, handler.request_deserializer), None
        return make(wrap(inner, service, name), read, handler.response_serializer)

    def _unary(self, inner: Any, service: str, name: str) -> Any:
        async def call(request: Any, context: Any) -> Any:
            with self._observed(name) as seen:
                try:
                    self._enter(service, context)
                    return await inner(request, context)
                except ServiceError as error:
                    await _abort(context, error, seen)
                except (asyncio.CancelledError, grpc.aio.AbortError):
                    raise
                except Exception as error:
                    await _abort(context, _internal(name, error), seen)

        return call

    def _streaming(self, inner: Any, service: str, name: str) -> Any:
        async def call(request: Any, context: Any) -> AsyncIterator[Any]:
            with self._observed(name) as seen:
                try:
                    self._enter(service, context)
                    async for response in inner(request, context):
                        yield response
                except ServiceError as error:
                    await _abort(context, error, seen)
                except (asyncio.CancelledError, grpc.aio.AbortError):
                    raise
                except Exception as error:
                    await _abort(context, _internal(name, error), seen)

        return call

    def _enter(self, service: str, context: Any) -> None:
        if self.draining:
            self._refused_at = time.monotonic()
            raise Draining("server: must be serving; got one that is shutting down")
        scope = SCOPES.get(service, "admin")
        _identity.set(authorize(self._tokens, context.invocation_metadata() or (), scope))

    @contextmanager
    def _observed(self, name: str) -> Iterator[_Call]:
        seen = _Call(name if name in self._methods else "other")
        in_flight = self._metrics.in_flight.labels(seen.method)
        in_flight.inc()
        try:
            yield seen
        except (asyncio.CancelledError, GeneratorExit):
            seen.code = grpc.StatusCode.CANCELLED
            raise
        finally:
            in_flight.dec()
            self._metrics.requests.labels(seen.method, seen.code.name).inc()
            duration = time.perf_counter() - seen.start
            self._metrics.request_duration.labels(seen.method).observe(duration)


def _reading(inner: Any, deserialize: Callable[[bytes], Any]) -> Any:
    """`inner` for the message in bytes."""

    def call(data: bytes, context: Any) -> Any:
        try:
            request = deserialize(data)
        except DecodeError:
            raise InvalidArgument(
                "request", f"request: must be a message of the method; got {len(data)} other bytes"
            ) from None
        return inner(request, context)

    return call


def _internal(name: str, error: Exception) -> ServiceError:
    log.exception("call_failed", method=name)
    return Internal(f"{name}: must not fail so; got {type(error).__name__}, a fault of the server")


async def _abort(context: Any, error: ServiceError, seen: _Call) -> NoReturn:
    seen.code = CODES[error.code]
    status = status_pb2.Status(code=error.code, message=str(error), details=packed_details(error))
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    await context.abort(seen.code, str(error))
    raise AssertionError("abort raises")


assert set(code_pb2.Code.values()) == set(CODES)
