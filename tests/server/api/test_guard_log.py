"""What the guard tells of calls: their lines and names in the log, the sizes of their messages."""

import asyncio
import functools
import re
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import structlog
from gate import RELAX, TOKENS, WATCH, Context, Gate, echo, raising, run
from structlog.testing import capture_logs

from khot_proto.v1 import khot_service_pb2 as pb
from khot_server.errors import QueueFull


async def logged_call(gate: Gate, behaviour: Any, context: Context) -> dict[str, Any]:
    """The only line that a call logs. It is a task, as a call of gRPC is."""
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        await asyncio.create_task(gate.call(behaviour, context))
    (line,) = lines
    return line


@pytest.mark.parametrize("given", ["a", "trace-1/span 2", "~" * 64])
@run
async def test_a_caller_can_name_his_call_in_the_log_and_gets_the_name_back(given):
    gate, context = Gate(TOKENS), Context("vision", request_id=given)
    gate.guard.debugging = True
    line = await logged_call(gate, echo, context)
    assert (line["event"], line["log_level"], line["code"]) == ("call", "debug", "OK")
    assert (line["request_id"], line["tenant"]) == (given, "vision")
    assert context.trailing == (("x-request-id", given),)


@pytest.mark.parametrize("given", [None, "", "~" * 65, "line\nbreak", "é", "\x1b[2J"], ids=repr)
@run
async def test_a_call_with_no_name_for_a_log_is_given_one_of_its_own(given):
    gate = Gate()
    gate.guard.debugging = True
    contexts = [Context(request_id=given) for _ in range(2)]
    names = [(await logged_call(gate, echo, context))["request_id"] for context in contexts]
    assert names[0] != names[1] and all(re.fullmatch("[0-9a-f]{32}", name) for name in names)
    assert [dict(context.trailing)["x-request-id"] for context in contexts] == names


@run
async def test_a_refused_call_has_its_line_and_its_name_beside_its_status():
    gate, context = Gate(), Context(request_id="mine")
    gate.guard.debugging = True
    line = await logged_call(gate, raising(QueueFull("queue: full")), context)
    assert (line["code"], line["request_id"]) == ("RESOURCE_EXHAUSTED", "mine")
    assert context.status.message == "queue: full"
    assert dict(context.trailing)["x-request-id"] == "mine"


@run
async def test_a_fault_of_ours_has_a_name_at_any_level_and_nothing_else_has():
    gate, fault, other = Gate(), Context(request_id="mine"), Context(request_id="mine")
    line = await logged_call(gate, raising(KeyError("secret")), fault)
    assert (line["event"], line["request_id"], line["tenant"]) == ("call_failed", "mine", "local")
    assert dict(fault.trailing)["x-request-id"] == "mine"
    with capture_logs() as lines:
        assert await gate.call(raising(QueueFull("queue: full")), other) is None
        assert await gate.call(echo, Context(request_id="mine")) == b"?"
    assert not lines and [key for key, _ in other.trailing] == ["grpc-status-details-bin"]


def size_of(message: bytes | pb.RelaxItem) -> int:
    return len(message) if isinstance(message, bytes) else message.ByteSize()


@run
async def test_the_size_of_every_message_is_counted_either_way():
    """On a real server: of unary calls and streams, of bytes and of messages."""
    gate, server = Gate(), grpc.aio.server()
    sent = [pb.RelaxItem(operator="x" * length) for length in (0, 100, 70_000)]

    async def stream(requests: Any, context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            yield request
            yield request

    item = (pb.RelaxItem.FromString, pb.RelaxItem.SerializeToString)
    unary = {"Relax": grpc.unary_unary_rpc_method_handler(echo)}
    streams = {"WatchJob": grpc.stream_stream_rpc_method_handler(stream, *item)}
    services = {"khot.v1.KHotService": unary, "khot.v1.JobService": streams}
    gate.guard.around(server).add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(*service) for service in services.items()]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert await channel.unary_unary(RELAX)(b"12345") == b"12345"
        call = channel.stream_stream(WATCH, pb.RelaxItem.SerializeToString, item[0])(iter(sent))
        received = [message async for message in call]
    await server.stop(None)
    assert received == [message for message in sent for _ in range(2)]
    for method, told, heard in (("Relax", [b"12345"], [b"12345"]), ("WatchJob", sent, received)):
        for name, messages in (("request", told), ("response", heard)):
            series = f"khot_{name}_message_bytes"
            value = functools.partial(
                gate.metrics.registry.get_sample_value, labels={"method": method}
            )
            assert value(f"{series}_sum") == sum(map(size_of, messages))
            assert value(f"{series}_count") == len(messages)
