"""What surrounds every call: identity, limits, errors as statuses, metrics, and the log.

The guard stands between the services and the server: `Guard.around(server)` takes
handlers as a server does, and hands them on with itself around each. So a servicer may
simply raise a ServiceError, and `identity()` is always there. (An interceptor could do it
too, but would wrap the handler again at every call.)

At debug level every call has a line in the log, and an id that its other lines and its caller
get too: `x-request-id` of its metadata, or one made here. Below that, only a call that fails by
a fault of ours has one, for to read the metadata costs as much as all the counting.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, Protocol
from uuid import uuid4

import grpc
import structlog
from google.protobuf.message import DecodeError
from google.rpc import code_pb2, status_pb2
from structlog.contextvars import bind_contextvars, get_contextvars

from khot_server import logs
from khot_server.api.identity import LOCAL, Identity, Tokens, authorize
from khot_server.errors import (
    Draining,
    Internal,
    InvalidArgument,
    ServiceError,
    TooManyCalls,
    packed_details,
)
from khot_server.metrics import CallMetrics, Metrics

log = structlog.get_logger()

REQUEST_ID, MAX_ID = "x-request-id", 64
CODES = {code.value[0]: code for code in grpc.StatusCode}
_identity: ContextVar[Identity] = ContextVar("identity", default=LOCAL)

# What a call needs; health is open to everyone, for load balancers have no token.
SCOPES = {
    "khot.v1.KHotService": "sample",
    "khot.v1.JobService": "jobs",
    "khot.v1.DatasetService": "jobs",
    "khot.v1.ArtifactService": "jobs",
    "grpc.reflection.v1alpha.ServerReflection": "sample",
}


def identity() -> Identity:
    """Who makes the present call."""
    return _identity.get()


class Guard:
    """Lets calls in, or tells why not.

    Args:
        tokens: of the callers; None: everybody is the tenant `local`.
        metrics: that count the calls.
        max_caller_calls: how many calls of one caller may be under way. A caller is a
            tenant, or a connection where nobody has a token.
    """

    def __init__(self, tokens: Tokens | None, metrics: Metrics, max_caller_calls: int) -> None:
        self._tokens, self._metrics, self._max_calls = tokens, metrics, max_caller_calls
        self._under_way: Counter[str] = Counter()
        self.draining = False
        self._refused_at = 0.0
        self.debugging = logs.debugging()

    async def quiet(self, quiet_s: float, most_s: float) -> None:
        """While draining: until no call has come for `quiet_s`, but at most `most_s`.

        A refused caller is told to come back in seconds, so they soon do not. It matters
        because gRPC itself answers a call that meets its shutdown, with a bare CANCELLED.
        """
        start = self._refused_at = time.monotonic()
        while (now := time.monotonic()) - self._refused_at < quiet_s and now - start < most_s:
            await asyncio.sleep(quiet_s / 5)

    def around(self, server: "Server") -> "Guarded":
        """Where to add the handlers of services, instead of to the server itself."""
        return Guarded(self, server)

    def handler(self, method: str, inner: Any) -> Any:
        """The handler of one method (`/service/name`) with the guard around it."""
        service, _, name = method.removeprefix("/").partition("/")
        asks, answers = (
            "stream" if streaming else "unary"
            for streaming in (inner.request_streaming, inner.response_streaming)
        )
        behaviour, read = getattr(inner, f"{asks}_{answers}"), inner.request_deserializer
        scope, metrics = SCOPES.get(service, "admin"), self._metrics.of_method(name)
        iterates = inner.response_streaming and not asyncio.iscoroutinefunction(behaviour)
        if inner.request_streaming:
            read = _measured(metrics.received, read)
        else:
            # read inside the guard, so that bytes which are no message are refused as others are
            behaviour, read = _reading(behaviour, read, metrics.received), None
        write = _written(metrics.sent, inner.response_serializer)
        wrapped = self._iterating if iterates else self._awaiting
        make = getattr(grpc, f"{asks}_{answers}_rpc_method_handler")
        return make(wrapped(behaviour, scope, metrics), read, write)

    def _awaiting(self, behaviour: Any, scope: str, metrics: CallMetrics) -> Any:
        async def call(request: Any, context: Any) -> Any:
            here = _Call(self, metrics, context)
            try:
                here.enter(scope)
                response = await behaviour(request, context)
            except BaseException as error:
                if not here.answered(error):
                    raise
                return None
            here.end()
            return response

        return call

    def _iterating(self, behaviour: Any, scope: str, metrics: CallMetrics) -> Any:
        async def call(request: Any, context: Any) -> AsyncIterator[Any]:
            here = _Call(self, metrics, context)
            try:
                here.enter(scope)
                async for response in behaviour(request, context):
                    yield response
            except BaseException as error:
                if not here.answered(error):
                    raise
                return
            here.end()

        return call

    def enter(self, scope: str, context: Any) -> str:
        """Let a call in; return whose it is.

        Raises:
            ServiceError: it must stay out.
        """
        if self.draining:
            self._refused_at = time.monotonic()
            raise Draining("server: must be serving; got one that is shutting down")
        if self._tokens is None:
            caller: str = context.peer()
        else:
            known = authorize(self._tokens, context.invocation_metadata() or (), scope)
            _identity.set(known)
            caller = known.tenant
        under_way = self._under_way[caller]
        if under_way >= self._max_calls:
            raise TooManyCalls(
                f"caller: at most {self._max_calls} calls may be under way; got {under_way}"
            )
        self._under_way[caller] = under_way + 1
        return caller

    def leave(self, caller: str) -> None:
        """The call has ended."""
        self._under_way[caller] -= 1
        if not self._under_way[caller]:
            del self._under_way[caller]


class _Call:
    """One call, from its arrival to its end, whatever that is."""

    __slots__ = ("_caller", "_context", "_guard", "_metrics", "_start")

    def __init__(self, guard: Guard, metrics: CallMetrics, context: Any) -> None:
        self._guard, self._metrics, self._context = guard, metrics, context
        self._caller: str | None = None
        self._start = time.perf_counter()
        metrics.begin()

    def enter(self, scope: str) -> None:
        """Raise ServiceError if it must stay out."""
        if self._guard.debugging:
            bind_contextvars(request_id=request_id(self._context))
        self._caller = self._guard.enter(scope, self._context)
        if self._guard.debugging:
            bind_contextvars(tenant=identity().tenant)

    def answered(self, error: BaseException) -> bool:
        """The call ended with this error. If it is ours, the caller is told; else it must go on."""
        if isinstance(error, (asyncio.CancelledError, GeneratorExit)):
            self.end(grpc.StatusCode.CANCELLED)
            return False
        if isinstance(error, grpc.aio.AbortError):  # the servicer's own
            self.end(self._context.code())
            return False
        if not isinstance(error, ServiceError):
            bind_contextvars(request_id=request_id(self._context), tenant=identity().tenant)
            log.error("call_failed", method=self._metrics.method, exc_info=error)
            must = f"{self._metrics.method}: must not fail so"
            error = Internal(f"{must}; got {type(error).__name__}, a fault of the server")
        code = CODES[error.code]
        self.end(code)
        status = status_pb2.Status(
            code=error.code, message=str(error), details=packed_details(error)
        )
        # Not `abort`: its exception and gRPC's call hold each other, and the request with them,
        # until the garbage collector comes. Under overload that would be most of the memory.
        self._context.set_code(code)
        self._context.set_details(str(error))
        self._trail(("grpc-status-details-bin", status.SerializeToString()))
        return True

    def end(self, code: grpc.StatusCode = grpc.StatusCode.OK) -> None:
        """The call has ended."""
        if self._caller is not None:
            self._guard.leave(self._caller)
        seconds = time.perf_counter() - self._start
        self._metrics.end(code.name, seconds)
        if self._guard.debugging:
            log.debug("call", method=self._metrics.method, code=code.name, seconds=seconds)
            self._trail()

    def _trail(self, *metadata: tuple[str, str | bytes]) -> None:
        """Send these after the reply, and the id of the call if it has one."""
        known = get_contextvars().get("request_id")
        if known is not None:
            metadata = (*metadata, (REQUEST_ID, known))
        self._context.set_trailing_metadata(metadata)


class Server(Protocol):
    """Takes handlers, as a grpc.aio server does."""

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler], /) -> None: ...


class Guarded:
    """Takes handlers as a server does, for the functions `add_...Servicer_to_server`."""

    def __init__(self, guard: Guard, server: Server) -> None:
        self._guard, self._server = guard, server

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        self._server.add_generic_rpc_handlers(
            tuple(_GuardedHandler(self._guard, handler) for handler in handlers)
        )

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """Generated code says everything twice; grpc.aio uses the first."""


class _GuardedHandler(grpc.GenericRpcHandler):
    """The handlers of a service, each wrapped once."""

    def __init__(self, guard: Guard, inner: grpc.GenericRpcHandler) -> None:
        self._guard, self._inner = guard, inner
        self._wrapped: dict[str, Any] = {}

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        wrapped = self._wrapped.get(details.method)
        if wrapped is None:
            inner = self._inner.service(details)
            if inner is None:
                return None
            wrapped = self._wrapped[details.method] = self._guard.handler(details.method, inner)
        return wrapped


def request_id(context: Any) -> str:
    """The id that the caller has given to the call, if it can stand in a log; or a new one."""
    if (known := get_contextvars().get("request_id")) is not None:
        return str(known)
    given = dict(context.invocation_metadata() or ()).get(REQUEST_ID)
    if (
        isinstance(given, str)
        and 0 < len(given) <= MAX_ID
        and given.isascii()
        and given.isprintable()
    ):
        return given
    return uuid4().hex


def _measured(told: Callable[[int], None], read: Callable[[bytes], Any] | None) -> Any:
    """`read`, or what leaves bytes as they are, that tells the size of each message."""

    def measured(data: bytes) -> Any:
        told(len(data))
        return data if read is None else read(data)

    return measured


def _written(told: Callable[[int], None], write: Callable[[Any], bytes] | None) -> Any:
    """`write`, or what leaves bytes as they are, that tells the size of each message."""

    def written(message: Any) -> bytes:
        data: bytes = message if write is None else write(message)
        told(len(data))
        return data

    return written


def _reading(
    inner: Any, deserialize: Callable[[bytes], Any] | None, told: Callable[[int], None]
) -> Any:
    """`inner` for the message in bytes, whose size is told."""

    def call(data: bytes, context: Any) -> Any:
        told(len(data))
        if deserialize is None:
            return inner(data, context)
        try:
            request = deserialize(data)
        except DecodeError:
            raise InvalidArgument(
                "request", f"request: must be a message of the method; got {len(data)} other bytes"
            ) from None
        return inner(request, context)

    return call


assert set(code_pb2.Code.values()) == set(CODES)
