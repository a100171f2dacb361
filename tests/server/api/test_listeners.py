"""Several servers on one port: they serve as one, and notice who else is there."""

import asyncio
import functools
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import pytest

from khot_server.api import listeners as module
from khot_server.api.listeners import SERVERS, Listeners
from khot_server.config import Settings

METHOD = "/khot.test/Method"


def run(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return wrapper


async def peer(request: bytes, context: Any) -> bytes:
    return str(context.peer()).encode()


def made() -> Listeners:
    listeners = Listeners(Settings())
    handler = grpc.unary_unary_rpc_method_handler(peer)
    listeners.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("khot.test", {"Method": handler})]
    )
    return listeners


async def ask(address: str) -> bytes:
    options = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own
    async with grpc.aio.insecure_channel(address, options) as channel:
        answer: bytes = await channel.unary_unary(METHOD)(b"", timeout=10)
    return answer


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
@run
async def test_every_connection_is_served_by_one_of_them(host):
    listeners = made()
    port = listeners.bind(f"{host}:0", None)
    await listeners.start()
    answers = await asyncio.gather(*(ask(f"{host}:{port}") for _ in range(2 * SERVERS)))
    assert len(set(answers)) == 2 * SERVERS
    await listeners.stop(1.0)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(f"{host}:{port}")
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


@run
async def test_stopping_lets_what_is_under_way_end(monkeypatch):
    monkeypatch.setattr(module, "SERVERS", 2)
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow(request: bytes, context: Any) -> bytes:
        entered.set()
        await leave.wait()
        return b"done"

    listeners = Listeners(Settings())
    handler = grpc.unary_unary_rpc_method_handler(slow)
    listeners.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("khot.test", {"Method": handler})]
    )
    port = listeners.bind("127.0.0.1:0", None)
    await listeners.start()
    call = asyncio.create_task(ask(f"127.0.0.1:{port}"))
    await entered.wait()
    stopping = asyncio.create_task(listeners.stop(10.0))
    await asyncio.sleep(0.05)
    leave.set()
    assert await call == b"done"
    await stopping


@run
async def test_a_port_that_others_share_as_we_do_is_taken():
    """The kernel would let us in, and give each of us some of the connections."""
    first, second = made(), made()
    port = first.bind("127.0.0.1:0", None)
    await first.start()
    with pytest.raises(OSError, match="in use"):
        second.bind(f"127.0.0.1:{port}", None)
    await first.stop(0.0)


@run
async def test_a_port_that_somebody_listens_on_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match="in use"):
        made().bind(f"127.0.0.1:{other.getsockname()[1]}", None)


@run
async def test_an_address_of_another_machine_is_refused():
    with pytest.raises((OSError, RuntimeError)):
        made().bind("192.0.2.1:50551", None)


@run
async def test_a_port_that_was_just_left_can_be_taken_again():
    """Connections of the server before may still wait for their end."""
    first = made()
    port = first.bind("127.0.0.1:0", None)
    await first.start()
    await ask(f"127.0.0.1:{port}")
    await first.stop(0.0)
    again = made()
    assert again.bind(f"127.0.0.1:{port}", None) == port
    await again.start()
    assert await ask(f"127.0.0.1:{port}")
    await again.stop(0.0)
