"""The batcher: greedy batches on several engines, callers who leave, and engines that die."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

from khot_server.batching import batcher as module
from khot_server.batching.batcher import Batch, Batcher
from khot_server.batching.policy import Limits
from khot_server.batching.work import Entry, Item, Outcome
from khot_server.errors import (
    BatchTooLong,
    DeadlineExceeded,
    EngineDied,
    EngineFailed,
    EngineUnavailable,
    QueueFull,
    ServiceError,
)
from khot_server.messages import BatchRequest, BatchResult, Call, Hello, LinkLost, OperatorInfo

OPERATOR = OperatorInfo(
    "sigmoid_topk", "relaxation", "", "", {}, {}, True, False, False, False, False
)


class Engine:
    """An engine in this process, and the link to it: it doubles scores, when it is told to."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self.sent: list[BatchRequest] = []
        self.slots: dict[int, bytearray] = {}
        self.dead = False
        self.closed = 0
        self._arrived = asyncio.Event()
        self._result: Callable[[BatchResult], None] | None = None
        self._lost: Callable[[], None] | None = None

    async def hello(self) -> Hello:
        if self.dead:
            raise LinkLost
        return Hello((OPERATOR,), self.device, 1)

    def listen(self, result: Callable[[BatchResult], None], lost: Callable[[], None]) -> None:
        self._result, self._lost = result, lost

    def send(self, request: BatchRequest) -> None:
        if self.dead:
            raise LinkLost
        self.sent.append(request)
        self._arrived.set()

    def memory(self, slot: int, size: int) -> memoryview:
        if len(self.slots.get(slot, b"")) < size:
            self.slots[slot] = bytearray(b"\xaa" * size)  # as a slot is that was used before
        return memoryview(self.slots[slot])

    def close(self) -> None:
        self.closed += 1

    # what a test does with it

    async def batch(self) -> BatchRequest:
        """The next batch that was sent."""
        while not self.sent:
            self._arrived.clear()
            await self._arrived.wait()
        return self.sent.pop(0)

    def array(self, request: BatchRequest, name: str, dtype: str = "float32") -> np.ndarray:
        """An array of the batch, to be read and written."""
        at, width = request.layout[name]
        size = request.rows * width // np.dtype(dtype).itemsize
        return np.frombuffer(self.slots[request.slot], dtype, size, at)

    def answer(self, request: BatchRequest, **fields: Any) -> None:
        self.array(request, "soft")[:] = 2 * self.array(request, "scores")
        assert self._result is not None
        self._result(BatchResult(request.id, 500, **fields))

    def die(self) -> None:
        self.dead = True
        assert self._lost is not None
        self._lost()


class Observer:
    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.engines: list[str] = []

    def engine_connected(self, hello: Hello) -> None:
        self.engines.append(f"up {hello.device}")

    def engine_lost(self) -> None:
        self.engines.append("lost")

    def batch_done(self, batch: Batch) -> None:
        self.batches.append(batch)


class Caller:
    """Somebody with an item, and what he was told of it."""

    def __init__(self, rows: int, value: float, n: int, **of: Any) -> None:
        call = Call("sigmoid_topk", "{}", n, "float32")
        self.value = value
        ones = np.ones(rows).tobytes()
        scores = np.full((rows, n), value, "float32").tobytes()
        self.entry = Entry(
            Item(call, rows, {"k": ones, "tau": ones, "scores": scores}), self._told, **of
        )
        self.done = asyncio.Event()
        self.error: ServiceError | None = None
        self.refusal: str | None = None
        self.soft: list[float] = []
        self.times: tuple[int, int, int, int] | None = None

    def _told(self, entry: Entry, outcome: Outcome | ServiceError) -> None:
        assert entry is self.entry and not self.done.is_set(), "told once, of his own"
        self.done.set()
        if isinstance(outcome, ServiceError):
            self.error = outcome
            return
        self.refusal = outcome.refusal
        self.soft = np.frombuffer(outcome.read("soft"), "float32").tolist()
        self.times = (outcome.queue_ns, outcome.batch_ns, outcome.compute_ns, outcome.batch_rows)

    @property
    def served(self) -> bool:
        """Whether he was told what he asked for."""
        return self.soft == [2 * self.value] * self.entry.elements and self.refusal is None


class Room:
    """A batcher, and all that is around it."""

    def __init__(self, max_batch_s: float = 60.0, **limits: Any) -> None:
        self.observer = Observer()
        self.batcher = Batcher(Limits(**limits), self.observer, max_batch_s)
        self.serving: dict[Engine, asyncio.Task[None]] = {}

    async def connect(self, device: str = "cpu") -> Engine:
        engine, up = Engine(device), asyncio.Event()

        async def connected() -> None:
            up.set()

        task = asyncio.create_task(self.batcher.serve(engine, connected))
        self.serving[engine] = task
        await up.wait()
        return engine

    def submit(self, rows: int = 1, value: float = 1.0, n: int = 4, **of: Any) -> Caller:
        caller = Caller(rows, value, n, arrival=self.batcher.clock(), **of)
        self.batcher.submit([caller.entry])
        return caller

    def submit_together(self, *rows: int) -> list[Caller]:
        """As the items of one request, which are queued together; the values are 1, 2, ..."""
        callers = [Caller(count, float(value), 4) for value, count in enumerate(rows, start=1)]
        self.batcher.submit([caller.entry for caller in callers])
        return callers

    @property
    def is_empty(self) -> bool:
        queue = self.batcher.queue
        return (queue.entries, queue.elements, queue.held) == (0, 0, 0)


async def turns() -> None:
    """Let everything happen that will happen by itself at once."""
    for _ in range(100):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def run(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """An async test as a test."""

    @functools.wraps(test)
    def wrapper(**fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**fixtures), 20))

    return wrapper


@run
async def test_whatever_waited_is_the_next_batch():
    room = Room()
    engine = await room.connect()
    first = room.submit()
    running = await engine.batch()
    others = [room.submit(rows, float(rows)) for rows in (1, 2, 3)]
    await turns()
    assert not engine.sent, "what is small is better filled than early"
    engine.answer(running)
    together = await engine.batch()
    assert (running.rows, running.items, together.rows, together.items) == (1, 1, 6, 3)
    engine.answer(together)
    assert first.served and all(other.served for other in others)
    assert [batch.request for batch in room.observer.batches] == [running, together]
    assert [len(batch.entries) for batch in room.observer.batches] == [1, 3]
    assert room.is_empty


@run
async def test_items_of_one_request_share_a_batch_if_their_calls_agree():
    room = Room()
    engine = await room.connect()
    callers = [Caller(1, float(value), n) for value, n in enumerate((4, 7, 4, 7, 4))]
    room.batcher.submit([caller.entry for caller in callers])
    first = await engine.batch()
    engine.answer(first)
    second = await engine.batch()
    engine.answer(second)
    assert [(batch.items, batch.call.n) for batch in (first, second)] == [(3, 4), (2, 7)]
    assert all(caller.served for caller in callers)


@run
async def test_everybody_is_told_where_the_time_went():
    room, now = Room(), 10.0
    room.batcher.clock = lambda: now
    engine = await room.connect()
    room.submit()
    running = await engine.batch()
    first = room.submit(2)
    now = 11.0
    second = room.submit(3)
    now = 13.0
    engine.answer(running)
    batch = await engine.batch()
    now = 13.5
    engine.answer(batch)
    assert first.times == (3_000_000_000, 499_999_500, 500, 5)
    assert second.times == (2_000_000_000, 499_999_500, 500, 5)
    _, done = room.observer.batches
    assert (done.start, done.end) == (13.0, 13.5)


@run
async def test_the_slot_has_the_items_and_their_rows_entry_by_entry():
    room = Room()
    engine = await room.connect()
    call = Call("imle", "{}", 3, "float32", samples=2, pulled="cotangent", form="soft")
    draw = np.random.default_rng(0)
    seeds, rows = (2**64 - 1, 7), (4, 1)
    given = [
        {
            "k": draw.normal(size=count),
            "tau": draw.normal(size=count),
            "scores": draw.normal(size=(count, 3)).astype("float32"),
            "cotangent": draw.normal(size=(2, count, 3)).astype("float32"),
        }
        for count in rows
    ]
    whole, other = (
        Item(call, count, {name: array.tobytes() for name, array in arrays.items()}, seed)
        for count, arrays, seed in zip(rows, given, seeds, strict=True)
    )

    def ignore(entry: Entry, outcome: object) -> None:
        del entry, outcome

    pieces = ((1, 2), (3, 1))  # two chunks of the first item, not all of it
    chunks = [Entry(whole, ignore, first=first, rows=count) for first, count in pieces]
    room.batcher.submit([*chunks, Entry(other, ignore)])
    batch = await engine.batch()
    assert (batch.rows, batch.items, batch.call) == (4, 3, call)
    table = np.frombuffer(engine.slots[batch.slot], "uint64", 9).reshape(3, 3)
    assert table.tolist() == [[2, seeds[0], 1], [1, seeds[0], 3], [1, seeds[1], 0]]
    for name in ("k", "tau", "scores"):
        dtype = "float32" if name == "scores" else "float64"
        wanted = np.concatenate([given[0][name][1:], given[1][name]])
        assert engine.array(batch, name, dtype).tolist() == wanted.ravel().tolist()
    first, second = (arrays["cotangent"] for arrays in given)
    wanted = np.concatenate([part.ravel() for part in (first[:, 1:3], first[:, 3:], second)])
    assert engine.array(batch, "cotangent").tolist() == wanted.tolist()


@run
async def test_a_second_batch_is_prepared_only_if_it_is_large_and_a_third_never():
    room = Room(ahead_elements=40, batch_elements=100)
    engine = await room.connect()
    callers = [room.submit(1)]
    running = await engine.batch()
    callers.append(room.submit(9))
    await turns()
    assert not engine.sent, "36 scores are not worth it"
    callers.append(room.submit(1))
    prepared = await engine.batch()
    assert (prepared.rows, prepared.slot) == (10, 1 - running.slot)
    callers.append(room.submit(25))
    await turns()
    assert not engine.sent, "both slots are taken"
    engine.answer(running)
    third = await engine.batch()
    assert (third.rows, third.slot) == (25, running.slot)
    engine.answer(prepared)
    engine.answer(third)
    assert all(caller.served for caller in callers)


@run
async def test_several_engines_share_the_work_and_the_least_busy_is_next():
    room = Room(ahead_elements=40)
    engines = [await room.connect("cpu"), await room.connect("cuda:0")]
    assert room.batcher.devices == ["cpu", "cuda:0"]
    callers = [room.submit(20)]
    first = await engines[0].batch()
    callers.append(room.submit(20))
    second = await engines[1].batch()
    assert not engines[0].sent, "an idle engine goes before a busy one"
    assert first.id != second.id
    callers.append(room.submit(20))
    ahead = await engines[0].batch()
    engines[1].answer(second)
    callers.append(room.submit(1))
    engines[1].answer(await engines[1].batch())
    engines[0].answer(first)
    engines[0].answer(ahead)
    assert all(caller.served for caller in callers)
    assert room.is_empty


@run
async def test_a_caller_who_left_before_his_entry_was_sent_is_not_in_the_batch():
    room = Room()
    engine = await room.connect()
    holding = room.submit()
    running = await engine.batch()
    leaving, staying = room.submit(5), room.submit(2)
    room.batcher.withdraw([leaving.entry])
    assert (room.batcher.queue.entries, room.batcher.queue.elements) == (1, 8)
    engine.answer(running)
    batch = await engine.batch()
    assert (batch.rows, batch.items) == (2, 1)
    engine.answer(batch)
    assert holding.served and staying.served and not leaving.done.is_set()


@run
async def test_a_caller_who_left_after_his_entry_was_sent_harms_nobody():
    room = Room()
    engine = await room.connect()
    staying, leaving, last = room.submit_together(1, 2, 3)
    batch = await engine.batch()
    room.batcher.withdraw([leaving.entry])
    engine.answer(batch)
    assert staying.served and last.served and not leaving.done.is_set()
    alone = room.submit()
    engine.answer(await engine.batch())
    assert alone.served, "and the slot is free again"


@run
async def test_a_thousand_callers_who_left_leave_an_empty_queue():
    room = Room()
    engine = await room.connect()
    room.submit()
    running = await engine.batch()
    callers = [room.submit(n=4 + number % 3) for number in range(1000)]
    for caller in callers:
        room.batcher.withdraw([caller.entry])
    assert room.batcher.queue.entries == 0
    engine.answer(running)
    await turns()
    assert room.is_empty and not engine.sent


@run
async def test_an_entry_whose_deadline_passed_in_the_queue_is_never_sent():
    room, now = Room(), 0.0
    room.batcher.clock = lambda: now
    engine = await room.connect()
    holding = room.submit()
    running = await engine.batch()
    late, live = room.submit(3, deadline=1.0), room.submit(2, deadline=1.5)
    late_too = room.submit(n=9, deadline=1.0)
    now = 1.0
    engine.answer(running)
    batch = await engine.batch()
    assert (batch.rows, batch.items) == (2, 1)
    engine.answer(batch)
    await turns()
    assert not engine.sent and room.is_empty
    for caller in (late, late_too):
        assert isinstance(caller.error, DeadlineExceeded)
    assert holding.served and live.served
    only = room.submit(deadline=1.0)
    await only.done.wait()
    assert isinstance(only.error, DeadlineExceeded) and not engine.sent


@run
async def test_with_a_wait_a_batch_leaves_by_itself_when_it_is_time():
    room, now = Room(max_wait_s=0.01), 0.0
    room.batcher.clock = lambda: now
    engine = await room.connect()
    first = room.submit()
    await turns()
    now = 0.005
    second = room.submit()
    await turns()
    assert not engine.sent
    now = 0.01
    batch = await engine.batch()
    assert batch.items == 2
    engine.answer(batch)
    assert first.served and second.served


@run
async def test_a_refusal_reaches_its_own_caller():
    room = Room()
    engine = await room.connect()
    good, bad, good_too = room.submit_together(1, 2, 3)
    engine.answer(await engine.batch(), refusals={1: "x must be finite"})
    assert good.served and good_too.served
    assert bad.refusal == "x must be finite" and bad.error is None


@run
async def test_a_batch_that_failed_fails_its_callers_and_not_the_engine():
    room = Room()
    engine = await room.connect()
    failed = room.submit_together(1, 1)
    running = await engine.batch()
    waiting = room.submit()
    engine.answer(running, failure="RuntimeError: out of memory")
    for caller in failed:
        assert isinstance(caller.error, EngineFailed)
        assert str(caller.error) == "engine: must not fail; got RuntimeError: out of memory"
    engine.answer(await engine.batch())
    assert waiting.served
    assert engine.closed == 0


@run
async def test_iterations_are_counted_by_row():
    room = Room()
    engine = await room.connect()
    for rows, values in ((1, [7]), (5, [3, 0, 3, 9, 3])):
        caller = room.submit(rows)
        batch = await engine.batch()
        engine.array(batch, "iterations", "int32")[:] = values
        engine.answer(batch, roots=True)
        assert caller.served
    room.submit()
    engine.answer(await engine.batch())
    counted = [batch.iterations for batch in room.observer.batches]
    assert counted == [{7: 1}, {0: 1, 3: 3, 9: 1}, None]


@run
async def test_rows_that_were_refused_have_no_iterations():
    """The engine leaves their memory as it was: anything, such as a number below 0."""
    room = Room()
    engine = await room.connect()
    callers = room.submit_together(1, 2, 1)
    batch = await engine.batch()
    engine.array(batch, "iterations", "int32")[:] = [4, -5, 2**31 - 1, 4]
    engine.answer(batch, roots=True, refusals={1: "x must be finite"})
    assert [caller.served for caller in callers] == [True, False, True]
    assert [batch.iterations for batch in room.observer.batches] == [{4: 2}]


@run
async def test_a_dead_engine_fails_only_what_it_had():
    room = Room()
    engines = [await room.connect(), await room.connect()]
    callers = [room.submit(n=n) for n in (4, 5)]
    await engines[0].batch()
    running = await engines[1].batch()
    waiting = room.submit(3, n=4)
    await turns()
    engines[0].die()
    assert isinstance(callers[0].error, EngineDied)
    assert not callers[1].done.is_set() and not waiting.done.is_set()
    assert (engines[0].closed, engines[1].closed) == (1, 0)
    await room.serving[engines[0]]
    engines[1].answer(running)
    engines[1].answer(await engines[1].batch())
    assert callers[1].served and waiting.served
    assert room.observer.engines == ["up cpu", "up cpu", "lost"]


@run
async def test_both_batches_of_a_dead_engine_are_lost_and_who_left_is_not_told():
    room = Room(ahead_elements=4)
    engine = await room.connect()
    first, leaving = room.submit_together(1, 1)
    await engine.batch()
    second = room.submit()
    await engine.batch()
    room.batcher.withdraw([leaving.entry])
    engine.die()
    assert isinstance(first.error, EngineDied) and isinstance(second.error, EngineDied)
    assert not leaving.done.is_set()


@run
async def test_the_queue_waits_for_the_next_engine():
    room = Room()
    engine = await room.connect()
    lost = room.submit()
    await engine.batch()
    waiting = room.submit(3)
    await turns()
    engine.die()
    assert isinstance(lost.error, EngineDied)
    with pytest.raises(EngineUnavailable, match="must be running; got none, one is being started"):
        room.submit()
    await room.serving[engine]
    assert not waiting.done.is_set() and room.batcher.devices == []
    successor = await room.connect("cuda:1")
    successor.answer(await successor.batch())
    assert waiting.served
    assert room.observer.engines == ["up cpu", "lost", "up cuda:1"]


@run
async def test_an_engine_that_is_found_dead_when_a_batch_is_sent_loses_only_that_batch():
    room = Room()
    engines = [await room.connect(), await room.connect()]
    engines[0].dead = True
    unlucky = room.submit()
    await unlucky.done.wait()
    assert isinstance(unlucky.error, EngineDied)
    await room.serving[engines[0]]
    lucky = room.submit()
    engines[1].answer(await engines[1].batch())
    assert lucky.served and engines[0].closed == 1


@run
async def test_an_engine_that_dies_before_its_hello_was_never_there():
    room, engine = Room(), Engine()
    engine.dead = True

    async def never() -> None:
        raise AssertionError("it is not connected")

    await room.batcher.serve(engine, never)
    assert engine.closed == 1 and room.observer.engines == []
    with pytest.raises(EngineUnavailable, match="got none"):
        room.submit()


@run
async def test_serving_can_be_cancelled_and_then_the_engine_is_given_up():
    room = Room()
    engine = await room.connect()
    caller = room.submit()
    await engine.batch()
    room.serving[engine].cancel()
    await asyncio.wait([room.serving[engine]])
    assert isinstance(caller.error, EngineDied)
    assert (engine.closed, room.batcher.devices) == (1, [])


@run
async def test_a_batch_that_takes_too_long_gives_its_engine_up():
    room = Room(max_batch_s=0.02, ahead_elements=4)
    stuck, other = await room.connect(), await room.connect()
    slow = room.submit()
    await stuck.batch()
    quick = room.submit()
    other.answer(await other.batch())
    await slow.done.wait()
    assert isinstance(slow.error, BatchTooLong)
    assert str(slow.error) == (
        "engine: a batch must take at most 0.02 s; got one that takes longer"
    )
    await room.serving[stuck]
    assert quick.served and (stuck.closed, other.closed) == (1, 0)
    after = room.submit()
    other.answer(await other.batch())
    assert after.served


@run
async def test_a_batch_behind_one_that_takes_too_long_may_be_tried_again():
    room = Room(max_batch_s=0.02, ahead_elements=4)
    stuck = await room.connect()
    slow = room.submit()
    await stuck.batch()
    behind = room.submit()
    await stuck.batch()
    await slow.done.wait()
    assert isinstance(slow.error, BatchTooLong) and isinstance(behind.error, EngineDied)


@run
async def test_the_time_of_a_batch_behind_another_begins_when_that_one_ends():
    room = Room(max_batch_s=10.0, ahead_elements=4)
    now = 0.0
    room.batcher.clock = lambda: now
    engine = await room.connect()
    (lane,) = room.batcher._lanes
    room.submit()
    first = await engine.batch()
    behind = room.submit()
    second = await engine.batch()
    now = 9.0
    engine.answer(first)
    now = 18.0  # long since it was sent
    room.batcher._watch(lane)
    assert not engine.closed
    engine.answer(second)
    assert behind.served
    stuck = room.submit()
    await engine.batch()
    now = 28.0
    room.batcher._watch(lane)
    assert isinstance(stuck.error, BatchTooLong)


@run
async def test_an_engine_that_answers_in_time_is_watched_and_kept():
    room = Room(max_batch_s=0.01)
    engine = await room.connect()
    start = room.batcher.clock()
    while room.batcher.clock() < start + 0.05:  # longer than a batch may take, in many
        caller = room.submit()
        engine.answer(await engine.batch())
        assert caller.served
    (lane,) = room.batcher._lanes
    await until(lambda: lane.watch is None)
    assert engine.closed == 0, "nothing is under way, so nothing takes too long"
    slow = room.submit()
    await engine.batch()
    await slow.done.wait()
    assert isinstance(slow.error, BatchTooLong), "and it is watched again"


@run
async def test_who_waits_for_no_engine_is_told_in_the_end(monkeypatch):
    monkeypatch.setattr(module, "ENGINE_WAIT_S", 0.01)
    room = Room()
    engine = await room.connect()
    room.submit()
    await engine.batch()
    waiting = [room.submit(3), room.submit(n=9)]
    await turns()
    engine.die()
    for caller in waiting:
        await caller.done.wait()
        assert isinstance(caller.error, EngineUnavailable)
        assert str(caller.error) == "engine: must be back by now; got none"
    assert room.is_empty


@run
async def test_nobody_is_given_up_once_there_is_an_engine_again(monkeypatch):
    """Even if two engines were lost at once, each of which could have been the last."""
    room, loop = Room(), asyncio.get_running_loop()
    timers: list[tuple[asyncio.TimerHandle, Callable[[], None]]] = []
    original = loop.call_later

    def call_later(delay: float, callback: Any, *arguments: Any) -> asyncio.TimerHandle:
        handle = original(delay, callback, *arguments)
        if delay == module.ENGINE_WAIT_S:
            timers.append((handle, callback))
        return handle

    monkeypatch.setattr(loop, "call_later", call_later)
    engines = [await room.connect(), await room.connect()]
    for engine in engines:
        room.submit()
        await engine.batch()
    waiting = room.submit()
    await turns()
    for engine in engines:
        engine.die()
    await asyncio.gather(*(room.serving[engine] for engine in engines))
    successor = await room.connect()
    running = await successor.batch()
    also_waiting = room.submit()
    assert timers
    for handle, callback in timers:  # the time has come
        if not handle.cancelled():
            callback()
    assert not also_waiting.done.is_set()
    successor.answer(running)
    successor.answer(await successor.batch())
    assert waiting.served and also_waiting.served


@run
async def test_a_full_queue_refuses_at_once_and_keeps_what_it_has():
    """What the engine has counts too: it is time that who comes now would wait."""
    room = Room(queue_elements=24)
    engine = await room.connect()
    room.submit()
    running = await engine.batch()
    fits = room.submit(5)
    with pytest.raises(QueueFull, match="at most 24 .* under way; got 24 under way and 4 more"):
        room.submit()
    engine.answer(running)
    fits_now = room.submit()
    engine.answer(await engine.batch())
    engine.answer(await engine.batch())
    assert fits.served and fits_now.served and room.is_empty


@run
async def test_what_a_lost_engine_had_makes_room():
    room = Room(queue_elements=4)
    engine, other = await room.connect(), await room.connect()
    lost = room.submit()
    await engine.batch()
    engine.die()
    await room.serving[engine]
    assert isinstance(lost.error, EngineDied)
    served = room.submit()
    other.answer(await other.batch())
    assert served.served and room.is_empty


@run
async def test_the_operators_are_those_of_the_hello():
    room = Room()
    assert room.batcher.operators == {}
    await room.connect()
    assert room.batcher.operators == {"sigmoid_topk": OPERATOR}
