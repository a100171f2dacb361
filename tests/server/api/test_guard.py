"""The guard: who may call and how often, errors as statuses, and every call counted once."""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from gate import PEER, RELAX, TOKENS, WATCH, Context, Gate, echo, raising, run
from structlog.testing import capture_logs

from khot_proto.v1 import khot_service_pb2 as pb
from khot_server import errors
from khot_server.api import guard as module
from khot_server.api.guard import CODES, identity
from khot_server.api.identity import LOCAL, Identity
from khot_server.errors import InvalidArgument, QueueFull, ServiceError, packed_details


def every_error() -> list[ServiceError]:
    found = []
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, ServiceError) and kind is not ServiceError:
            wants = {"InvalidArgument": ("k", "k: must be"), "NotFound": ("job", "x", "x: must be")}
            wants["AlreadyExists"] = wants["NotFound"]
            wants["FailedPrecondition"] = ("jobs/x", "x: must be")
            if not kind.__name__.startswith("_"):
                found.append(kind(*wants.get(kind.__name__, ("who: must be",))))
    return found


@run
async def test_a_call_goes_through_and_is_counted():
    gate = Gate()
    assert await gate.call(echo, request=b"hello") == b"hello"
    gate.check_counted(OK=1)


@pytest.mark.parametrize("error", every_error(), ids=lambda error: error.reason)
@run
async def test_an_error_becomes_its_status_with_its_details(error):
    gate, context = Gate(), Context()
    assert await gate.call(raising(error), context) is None
    status = context.status
    assert (status.code, status.message) == (error.code, str(error))
    assert list(status.details) == packed_details(error)
    gate.check_counted(**{CODES[error.code].name: 1})


@run
async def test_an_error_within_a_stream_ends_it_with_its_status():
    gate, context = Gate(), Context()

    async def watch(request: Any, context: Any) -> AsyncIterator[int]:
        yield 1
        yield 2
        raise QueueFull("queue: must have room; got none")

    responses = gate.iterate(watch, context)
    assert [number async for number in responses] == [1, 2]
    assert context.status.message == "queue: must have room; got none"
    gate.check_counted("WatchJob", RESOURCE_EXHAUSTED=1)
    gate.check_counted("Relax")


@run
async def test_a_stream_that_ends_or_is_left_is_counted_and_released():
    gate = Gate()

    async def watch(request: Any, context: Any) -> AsyncIterator[int]:
        yield 1
        yield 2

    assert [number async for number in gate.iterate(watch, Context())] == [1, 2]
    gate.check_counted("WatchJob", OK=1)
    left = gate.iterate(watch, Context())
    assert await anext(left) == 1
    await left.aclose()
    gate.check_counted("WatchJob", OK=1, CANCELLED=1)


@pytest.mark.parametrize(
    ("token", "method", "code"),
    [
        ("vision", RELAX, None),
        ("batch", RELAX, "PERMISSION_DENIED"),
        ("root", RELAX, None),
        (None, RELAX, "UNAUTHENTICATED"),
        ("nobody", RELAX, "UNAUTHENTICATED"),
        ("batch", WATCH, None),
        ("vision", WATCH, "PERMISSION_DENIED"),
        ("vision", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", None),
        ("vision", "/another.Service/Method", "PERMISSION_DENIED"),
        ("root", "/another.Service/Method", None),
    ],
)
@run
async def test_a_token_must_have_the_scope_of_the_service(token, method, code):
    gate, context, reached = Gate(TOKENS), Context(token), []

    async def behaviour(request: Any, context: Any) -> str:
        reached.append(identity().tenant)
        return "done"

    answer = await gate.call(behaviour, context, method=method)
    name = method.rpartition("/")[2]
    counted = name if name in ("Relax", "WatchJob") else "other"
    if code is None:
        assert (answer, reached, context.aborted) == ("done", [token], [])
        gate.check_counted(counted, OK=1)
    else:
        assert not reached and CODES[context.status.code].name == code
        gate.check_counted(counted, **{code: 1})


@run
async def test_each_call_has_its_own_identity():
    gate, both = Gate(TOKENS), asyncio.Barrier(2)

    async def behaviour(request: Any, context: Any) -> str:
        await both.wait()
        return identity().tenant

    calls = [gate.call(behaviour, Context(token)) for token in ("vision", "speech")]
    assert await asyncio.gather(*calls) == ["vision", "speech"]


@run
async def test_without_tokens_everybody_is_local():
    async def behaviour(request: Any, context: Any) -> Identity:
        return identity()

    assert await Gate().call(behaviour) == LOCAL


class Held:
    """Calls that are under way until they are let go."""

    def __init__(self, gate: Gate, *contexts: Context) -> None:
        self._gate, self._contexts = gate, contexts
        self._go = asyncio.Event()
        self._entered = 0

    async def __aenter__(self) -> "Held":
        self.tasks = [
            asyncio.create_task(self._gate.call(self._wait, context)) for context in self._contexts
        ]
        while self._entered < len(self.tasks):
            await asyncio.sleep(0)
        return self

    async def _wait(self, request: Any, context: Any) -> str:
        self._entered += 1
        await self._go.wait()
        return "done"

    async def __aexit__(self, *error: object) -> None:
        self._go.set()
        await asyncio.wait(self.tasks)


@pytest.mark.parametrize(
    ("tokens", "same", "other"),
    [
        (None, {"peer": PEER}, {"peer": "ipv4:127.0.0.1:5001"}),
        # a tenant has one limit, whatever connection it uses
        (TOKENS, {"token": "vision", "peer": "ipv4:127.0.0.1:5001"}, {"token": "speech"}),
    ],
    ids=["connection", "tenant"],
)
@run
async def test_a_caller_may_have_so_many_calls_under_way(tokens, same, other):
    gate = Gate(tokens, max_caller_calls=2)
    mine = {} if tokens is None else {"token": "vision"}
    async with Held(gate, Context(**mine), Context(**mine)) as held:
        refused = Context(**same)
        assert await gate.call(echo, refused) is None
        assert refused.status.message == "caller: at most 2 calls may be under way; got 2"
        assert list(refused.status.details) == packed_details(errors.TooManyCalls("x"))
        assert await gate.call(echo, Context(**other)) == b"?", "others have room"
        assert await gate.call(echo, Context(**same)) is None, "a refusal makes none"
    assert [task.result() for task in held.tasks] == ["done", "done"]
    assert await gate.call(echo, Context(**same)) == b"?"
    gate.check_counted(OK=4, RESOURCE_EXHAUSTED=2)


@pytest.mark.parametrize("error", [QueueFull("queue: full"), RuntimeError("x")], ids=repr)
@run
async def test_a_call_that_failed_is_not_under_way(error):
    gate = Gate(max_caller_calls=1)
    for _ in range(3):
        assert await gate.call(raising(error)) is None
    assert await gate.call(echo) == b"?"


@run
async def test_a_cancelled_call_is_not_under_way_and_is_counted_so():
    gate = Gate(max_caller_calls=2)
    async with Held(gate, Context(), Context()) as held:
        held.tasks[0].cancel()
        await asyncio.wait(held.tasks[:1])
        assert held.tasks[0].cancelled(), "and it is not answered"
        assert await gate.call(echo) == b"?"
    gate.check_counted(CANCELLED=1, OK=2)


@run
async def test_while_draining_calls_are_refused_and_those_under_way_go_on():
    gate, context = Gate(), Context()
    async with Held(gate, Context()) as held:
        gate.guard.draining = True
        assert await gate.call(echo, context) is None
        status = context.status
        assert status.message == "server: must be serving; got one that is shutting down"
        assert list(status.details) == packed_details(errors.Draining("x"))
    assert held.tasks[0].result() == "done"
    gate.check_counted(OK=1, UNAVAILABLE=1)


@pytest.mark.parametrize(
    ("calls_at", "ends"),
    [
        ([], 1.0),
        ([0.5], 1.6),  # a call began the quiet anew
        ([step / 2 for step in range(20)], 5.0),  # callers who do not listen
    ],
)
@run
async def test_it_is_quiet_when_no_call_has_come_for_a_while(monkeypatch, calls_at, ends):
    gate, now, left = Gate(), 100.0, list(calls_at)
    gate.guard.draining = True

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        while left and left[0] <= now - 100.0:
            left.pop(0)
            assert await gate.call(echo) is None

    clocks = SimpleNamespace(monotonic=lambda: now, perf_counter=lambda: now)
    monkeypatch.setattr(module, "time", clocks)
    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    await gate.guard.quiet(1.0, 5.0)
    assert now - 100.0 == pytest.approx(ends, abs=0.1)


NO_MESSAGE = b"\xff\xff\xff"


@run
async def test_bytes_that_are_no_message_are_refused_and_reach_nobody():
    gate, context = Gate(), Context()
    read = pb.ListOperatorsRequest.FromString
    assert await gate.call(raising(AssertionError()), context, NO_MESSAGE, read=read) is None
    text = "request: must be a message of the method; got 3 other bytes"
    assert context.status.message == text
    assert list(context.status.details) == packed_details(InvalidArgument("request", text))
    gate.check_counted(INVALID_ARGUMENT=1)


@run
async def test_bytes_that_are_no_message_end_a_stream_before_it_began():
    gate, context = Gate(), Context()

    async def watch(request: Any, context: Any) -> AsyncIterator[int]:
        yield 1

    read = pb.ListOperatorsRequest.FromString
    assert [one async for one in gate.iterate(watch, context, NO_MESSAGE, read)] == []
    assert CODES[context.status.code] == grpc.StatusCode.INVALID_ARGUMENT
    gate.check_counted("WatchJob", INVALID_ARGUMENT=1)


@run
async def test_bytes_of_a_message_are_read_for_the_servicer():
    item = pb.RelaxRequest(items=[pb.RelaxItem(operator="x")])
    raw = item.SerializeToString()
    assert await Gate().call(echo, request=raw, read=pb.RelaxRequest.FromString) == item
    gate = Gate()

    async def watch(request: Any, context: Any) -> AsyncIterator[Any]:
        yield request

    responses = gate.iterate(watch, Context(), raw, pb.RelaxRequest.FromString)
    assert [response async for response in responses] == [item]


@pytest.mark.parametrize(
    "error", [KeyError("secret"), ValueError("secret"), AssertionError("secret")], ids=repr
)
@run
async def test_an_unexpected_exception_is_internal_and_its_text_stays_here(error):
    gate, context = Gate(), Context()
    with capture_logs() as logs:
        assert await gate.call(raising(error), context) is None
    status = context.status
    assert status.code == grpc.StatusCode.INTERNAL.value[0]
    name = type(error).__name__
    assert status.message == f"Relax: must not fail so; got {name}, a fault of the server"
    assert b"secret" not in status.SerializeToString()
    (logged,) = logs
    assert (logged["event"], logged["method"], logged["exc_info"]) == (
        "call_failed",
        "Relax",
        error,
    )
    gate.check_counted(INTERNAL=1)


@run
async def test_a_servicer_that_aborts_by_itself_is_counted_with_its_code():
    gate, context = Gate(), Context()

    async def behaviour(request: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")

    assert await gate.call(behaviour, context) is None
    assert context.aborted == [(grpc.StatusCode.NOT_FOUND, "no such thing")]
    gate.check_counted(NOT_FOUND=1)


@run
async def test_a_stream_of_requests_is_guarded_too():
    gate, refused = Gate(TOKENS), Context("batch")

    async def stream(requests: Any, context: Any) -> None:
        await context.write(identity().tenant)

    inner = grpc.stream_stream_rpc_method_handler(stream)
    handler = gate.guard.handler(RELAX, inner)
    written: list[str] = []

    async def write(message: str) -> None:
        written.append(message)

    served: Any = Context("vision")
    served.write = write
    await handler.stream_stream(iter(()), served)
    assert written == ["vision"]
    await handler.stream_stream(iter(()), refused)
    assert CODES[refused.status.code] == grpc.StatusCode.PERMISSION_DENIED
    gate.check_counted(OK=1, PERMISSION_DENIED=1)


def test_handlers_are_wrapped_once_and_others_are_not_there():
    gate, added = Gate(), []
    server = SimpleNamespace(add_generic_rpc_handlers=added.extend)
    guarded = gate.guard.around(server)
    methods = {"Relax": grpc.unary_unary_rpc_method_handler(echo)}
    guarded.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("khot.v1.KHotService", methods)]
    )
    guarded.add_registered_method_handlers("khot.v1.KHotService", methods)
    (handler,) = added
    first, second = (handler.service(SimpleNamespace(method=RELAX)) for _ in range(2))
    assert first is second and first.unary_unary is not echo
    assert handler.service(SimpleNamespace(method=WATCH)) is None


@run
async def test_a_refused_call_leaves_nothing_of_its_request_to_the_garbage_collector():
    """Or overload would fill the memory with what was refused, until a collection."""
    gate, server = Gate(), grpc.aio.server()

    async def refuse(request: Any, context: Any) -> None:
        raise QueueFull("queue: at most 1 may wait; got 2")

    methods = {"Relax": grpc.unary_unary_rpc_method_handler(refuse)}
    gate.guard.around(server).add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("khot.v1.KHotService", methods)]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(RELAX)
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for _ in range(20):
                with pytest.raises(grpc.aio.AioRpcError, match="at most 1 may wait"):
                    await call(b"?")
            gc.collect()
            left = Counter(type(found).__name__ for found in gc.garbage)
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
    await server.stop(None)
    assert not left["QueueFull"] and not left["_ServicerContext"], left
