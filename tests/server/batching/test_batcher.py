"""The batcher: greedy batches, callers who leave, and engines that die."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

from khot_server.batching import batcher as module
from khot_server.batching.batcher import Answer, Batcher, Work
from khot_server.batching.policy import Limits
from khot_server.errors import EngineDied, EngineUnavailable, QueueFull
from khot_server.messages import BatchRequest, BatchResult, Hello, Layout


class Lost(Exception):
    pass


class Engine:
    """An engine in this process that doubles scores, when it is told to."""

    def __init__(self) -> None:
        self.sent: list[BatchRequest] = []
        self.results: asyncio.Queue[BatchResult | None] = asyncio.Queue()
        self.arrived = asyncio.Event()
        self.memory: dict[int, Memory] = {}
        self.closed = False

    async def hello(self) -> Hello:
        return Hello([], "cpu", 1)

    async def result(self) -> BatchResult:
        result = await self.results.get()
        if result is None:
            raise Lost
        return result

    async def send(self, request: BatchRequest) -> None:
        self.sent.append(request)
        self.arrived.set()

    def slot(self, number: int, size: int) -> "Memory":
        return self.memory.setdefault(number, Memory())

    def close(self) -> None:
        self.closed = True

    # what a test does with it

    async def batch(self) -> BatchRequest:
        """The next batch that was sent."""
        while not self.sent:
            self.arrived.clear()
            await self.arrived.wait()
        return self.sent.pop(0)

    def answer(self, request: BatchRequest, **fields: Any) -> None:
        self.results.put_nowait(BatchResult(request.id, 0.5, **fields))

    def die(self) -> None:
        self.results.put_nowait(None)


class Memory:
    def __init__(self) -> None:
        self.bytes = bytearray(1 << 16)

    def write(self, at: int, array: np.ndarray) -> int:
        data = np.ascontiguousarray(array).tobytes()
        self.bytes[at : at + len(data)] = data
        return at + len(data)

    def rows(self, layout: Layout, rows: slice) -> bytes:
        """The scores themselves: an engine that returns what it got."""
        size = layout.n * 8
        return bytes(
            self.bytes[layout.scores + rows.start * size : layout.scores + rows.stop * size]
        )


class Seen:
    def __init__(self) -> None:
        self.batches: list[tuple[BatchRequest, BatchResult]] = []
        self.queue: list[tuple[int, int]] = []
        self.engines: list[str] = []

    def engine_connected(self, hello: Hello) -> None:
        self.engines.append("up")

    def engine_lost(self) -> None:
        self.engines.append("lost")

    def batch_done(self, request: BatchRequest, result: BatchResult, queued: list[float]) -> None:
        self.batches.append((request, result))

    def queue_changed(self, entries: int, elements: int) -> None:
        self.queue.append((entries, elements))


class Room:
    """A batcher with an engine connected, and what it saw."""

    def __init__(self, **limits: int) -> None:
        self.seen = Seen()
        given = {"batch_elements": 1000, "queue_elements": 1000, "tenant_elements": 1000} | limits
        self.batcher = Batcher(Limits(**given), self.seen, Lost)

    async def connect(self) -> Engine:
        self.engine, up = Engine(), asyncio.Event()

        async def connected() -> None:
            up.set()

        self.serving = asyncio.create_task(self.batcher.serve(self.engine, connected))
        await up.wait()
        return self.engine

    def submit(
        self, rows: int, value: float = 1.0, n: int = 4, tenant: str = "a"
    ) -> "asyncio.Task[Answer]":
        scores = np.full((rows, n), value)
        ones = np.ones(rows)
        return asyncio.create_task(
            self.batcher.submit(Work(tenant, "relaxation", "sigmoid_topk", scores, ones, ones))
        )


async def settle() -> None:
    """Let every task run as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def wrapper() -> None:
        asyncio.run(asyncio.wait_for(test(), 10))

    wrapper.__name__ = test.__name__
    return wrapper


@run
async def test_whatever_waited_is_the_next_batch():
    room = Room()
    engine = await room.connect()
    first = room.submit(1)
    running = await engine.batch()
    second = room.submit(2)
    prepared = await engine.batch()
    others = [room.submit(rows, float(rows)) for rows in (1, 2, 3)]
    await settle()
    assert not engine.sent, "both slots are taken"
    engine.answer(running)
    together = await engine.batch()
    assert (running.rows, prepared.rows, together.rows) == (1, 2, 6)
    assert list(together.items) == [1, 2, 3]
    engine.answer(prepared)
    engine.answer(together)
    for rows, task in enumerate(others, start=1):
        answer = await task
        assert np.frombuffer(answer.data).tolist() == [float(rows)] * 4 * rows
        assert answer.batch_rows == 6 and answer.compute_s == 0.5 and answer.queue_s >= 0
    await first
    await second
    assert [request.rows for request, _ in room.seen.batches] == [1, 2, 6]
    assert room.seen.queue[-1] == (0, 0)


@run
async def test_a_caller_who_left_is_dropped_and_harms_nobody():
    room = Room()
    engine = await room.connect()
    blocking = [room.submit(1, n=n) for n in (4, 5)]
    running = [await engine.batch(), await engine.batch()]
    leaving, staying = room.submit(5), room.submit(2)
    await settle()
    leaving.cancel()
    await settle()
    engine.answer(running[0])
    batch = await engine.batch()
    assert list(batch.items) == [2]
    staying_too = room.submit(1, n=9)
    engine.answer(running[1])
    in_flight = await engine.batch()
    staying_too.cancel()  # after its batch was sent
    await settle()
    engine.answer(in_flight)
    engine.answer(batch)
    assert (await staying).refusal is None
    await asyncio.gather(*blocking)


@run
async def test_a_refusal_reaches_its_own_caller():
    room = Room()
    engine = await room.connect()
    holds = [room.submit(1, n=n) for n in (5, 6)]
    running = [await engine.batch(), await engine.batch()]
    good, bad = room.submit(1), room.submit(1)
    await settle()
    for request in running:
        engine.answer(request)
    engine.answer(await engine.batch(), refusals={"1": "x must be finite"})
    assert (await good).refusal is None
    refused = await bad
    assert refused.refusal == "x must be finite" and refused.data == b""
    await asyncio.gather(*holds)


@run
async def test_a_dead_engine_fails_only_what_it_had():
    room = Room()
    engine = await room.connect()
    lost = [room.submit(1, n=n) for n in (4, 5)]
    for _ in lost:
        await engine.batch()
    waiting = room.submit(3)
    await settle()
    engine.die()
    for task in lost:
        with pytest.raises(EngineDied, match="got one that died"):
            await task
    assert engine.closed and not room.batcher.connected
    with pytest.raises(EngineUnavailable, match="one is being started"):
        await room.submit(1)
    successor = await room.connect()
    successor.answer(await successor.batch())
    assert (await waiting).refusal is None
    assert room.seen.engines == ["up", "lost", "up"]


@run
async def test_who_waits_for_no_engine_is_told_in_the_end():
    room = Room()
    engine = await room.connect()
    held = [room.submit(1, n=n) for n in (4, 5)]
    for _ in held:
        await engine.batch()
    waiting = room.submit(3)
    await settle()
    patience, module.ENGINE_WAIT_S = module.ENGINE_WAIT_S, 0.0
    try:
        engine.die()
        with pytest.raises(EngineUnavailable, match="must be back by now"):
            await waiting
    finally:
        module.ENGINE_WAIT_S = patience
    await asyncio.gather(*held, return_exceptions=True)


@run
async def test_a_full_queue_refuses_at_once():
    room = Room(queue_elements=20)
    engine = await room.connect()
    held = [room.submit(1, n=n) for n in (4, 5)]
    running = [await engine.batch(), await engine.batch()]
    fits = room.submit(5)
    await settle()
    with pytest.raises(QueueFull, match="at most 20 scores may wait; got 20 waiting and 4 more"):
        await room.submit(1)
    for request in running:
        engine.answer(request)
    engine.answer(await engine.batch())
    await fits
    await asyncio.gather(*held)


@run
async def test_an_item_larger_than_the_queue_runs_when_nothing_waits():
    room = Room(queue_elements=20, batch_elements=10)
    engine = await room.connect()
    large = room.submit(100)
    engine.answer(await engine.batch())
    assert len((await large).data) == 100 * 4 * 8


@run
async def test_a_tenant_who_floods_the_queue_leaves_room_for_others():
    room = Room(tenant_elements=20)
    engine = await room.connect()
    held = [room.submit(1, n=n) for n in (4, 5)]
    running = [await engine.batch(), await engine.batch()]
    flood = room.submit(5, tenant="a")
    await settle()
    with pytest.raises(QueueFull, match="at most 20 scores of 'a' may wait; got 20 waiting"):
        await room.submit(1, tenant="a")
    other = room.submit(5, tenant="b")
    await settle()
    for request in running:
        engine.answer(request)
    batch = await engine.batch()
    assert list(batch.items) == [5, 5], "tenants share batches"
    engine.answer(batch)
    await asyncio.gather(flood, other, *held)
