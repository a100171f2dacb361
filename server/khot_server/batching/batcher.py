"""The batcher: from the entries of many callers to batches on several engines.

It owns the queue. Whatever queued while the engines were busy is the next batch, for the
first engine that is free; a large one is prepared while that engine still computes. A
caller who left is dropped before his entry is sent, and ignored after; so is an entry whose
deadline has passed. An engine that died fails the entries it had, and the rest wait for the
other engines, or for the next one.

Everything happens in callbacks of the event loop: a task for each batch or item would cost
more than a small batch does.
"""

import asyncio
import struct
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, Protocol

import numpy as np

from khot_server.batching.policy import Limits
from khot_server.batching.queue import Queue
from khot_server.batching.work import Entry
from khot_server.errors import (
    BatchTooLong,
    DeadlineExceeded,
    EngineDied,
    EngineFailed,
    EngineUnavailable,
    ServiceError,
)
from khot_server.messages import (
    Array,
    BatchRequest,
    BatchResult,
    Hello,
    Layout,
    LinkLost,
    OperatorInfo,
)

SLOTS = 2
ENGINE_WAIT_S = 30.0
_RESIDUAL = struct.Struct("<d")


class Link(Protocol):
    """The way to one engine; `khot_server.worker.link.Link` is it.

    Once the engine is gone, `hello` raises `LinkLost` and `listen` says `lost`.
    """

    async def hello(self) -> Hello: ...
    def listen(self, result: Callable[[BatchResult], None], lost: Callable[[], None]) -> None: ...
    def send(self, request: BatchRequest) -> None: ...
    def memory(self, slot: int, size: int) -> memoryview: ...
    def close(self) -> None: ...


class Observer(Protocol):
    """Who is told of what happened, for the metrics."""

    def engine_connected(self, hello: Hello) -> None: ...
    def engine_lost(self) -> None: ...
    def batch_done(self, batch: "Batch") -> None: ...


@dataclass(slots=True)
class Batch:
    """A batch on its way, and back.

    Attributes:
        request: as it was sent.
        entries: whose rows it has.
        layout: of its slot.
        start: when its entries left the queue.
        end: when its result came.
        result: once it has come.
        roots: how they were found, if there are some.
    """

    request: BatchRequest
    entries: list[Entry]
    layout: Layout
    start: float
    end: float = 0.0
    result: BatchResult | None = None
    roots: "Roots | None" = None


class Roots(NamedTuple):
    """How the roots of the rows that were served were found.

    Attributes:
        iterations: rows by root-finding iterations.
        residuals: of each row.
    """

    iterations: dict[int, int]
    residuals: Sequence[float] | Array


class Served:
    """The outcome of an entry whose batch came back: see `batching.work.Outcome`."""

    __slots__ = ("_batch", "_first", "_memory", "_rows", "queue_ns", "refusal")

    def __init__(
        self, batch: Batch, memory: memoryview, entry: Entry, first: int, refusal: str | None
    ) -> None:
        self._batch, self._memory, self._first, self._rows = batch, memory, first, entry.rows
        self.queue_ns = int((batch.start - entry.arrival) * 1e9)
        self.refusal = refusal

    @property
    def _result(self) -> BatchResult:
        assert self._batch.result is not None
        return self._batch.result

    @property
    def algorithm(self) -> str:
        return self._result.algorithm

    @property
    def roots(self) -> bool:
        return self._result.roots

    @property
    def gradients(self) -> tuple[str, ...]:
        return self._result.gradients

    @property
    def compute_ns(self) -> int:
        return self._result.compute_ns

    @property
    def batch_ns(self) -> int:
        return max(0, int((self._batch.end - self._batch.start) * 1e9) - self.compute_ns)

    @property
    def batch_rows(self) -> int:
        return self._batch.request.rows

    def read(self, name: str) -> memoryview:
        at, width = self._batch.layout[name]
        return self._memory[at + self._first * width : at + (self._first + self._rows) * width]


@dataclass(slots=True, eq=False)
class _Lane:
    """One engine: its link, its free slots, and the batches it has.

    Attributes:
        since: when the time of the batch that runs began: when it was sent, or when the one
            before it ended.
    """

    link: Link
    hello: Hello
    gone: "asyncio.Future[None]"
    free: list[int]
    batches: dict[int, Batch]
    since: float = 0.0
    watch: asyncio.TimerHandle | None = None


class Batcher:
    """From `submit` of many callers to batches on the engines that there are."""

    def __init__(self, limits: Limits, observer: Observer, max_batch_s: float = 60.0) -> None:
        self.queue = Queue(limits)
        self.operators: dict[str, OperatorInfo] = {}
        self.clock = time.perf_counter
        self._observer, self._max_batch_s = observer, max_batch_s
        self._lanes: list[_Lane] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._giving_up: asyncio.TimerHandle | None = None

    @property
    def devices(self) -> list[str]:
        """What each engine that there is runs on."""
        return [lane.hello.device for lane in self._lanes]

    def submit(self, entries: list[Entry]) -> None:
        """Queue the entries of one request, all or none; their listeners are told the rest.

        Raises:
            QueueFull: more would be under way than may be.
            EngineUnavailable: there is no engine now.
        """
        if not self._lanes:
            raise EngineUnavailable("engine: must be running; got none, one is being started")
        self.queue.push(entries)
        self._feed()

    def withdraw(self, entries: Iterable[Entry]) -> None:
        """Nobody waits for these entries any more."""
        entries = list(entries)
        for entry in entries:
            entry.listener = None
        self.queue.discard(entries)

    async def serve(self, link: Link, connected: Callable[[], Awaitable[None]]) -> None:
        """Feed this engine until it is lost; say when it is there."""
        try:
            hello = await link.hello()
        except LinkLost:
            link.close()
            return
        loop = asyncio.get_running_loop()
        lane = _Lane(link, hello, loop.create_future(), list(range(SLOTS)), {})
        self.operators = {row.name: row for row in hello.operators}
        self._lanes.append(lane)
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        self._observer.engine_connected(hello)
        link.listen(lambda result: self._settle(lane, result), lambda: self._gone(lane))
        try:
            await connected()
            self._feed()
            await lane.gone
        finally:
            self._lose(lane)

    def _feed(self) -> None:
        """Give the engines that are free what waits for them."""
        while self.queue.entries and (lane := self._next_lane()) is not None:
            now = self.clock()
            taken = self.queue.take(now, ahead=bool(lane.batches))
            for entry in taken.expired:
                entry.tell(
                    DeadlineExceeded("deadline: must not pass in the queue; got one that did")
                )
            if taken.batch:
                self._send(lane, taken.batch, now)
            elif not taken.expired:
                self._wake_at(taken.ready_at)
                break

    def _next_lane(self) -> _Lane | None:
        """The engine with the least to do that has a free slot."""
        if len(self._lanes) == 1:
            return self._lanes[0] if self._lanes[0].free else None
        lanes = [lane for lane in self._lanes if lane.free]
        return min(lanes, key=lambda lane: len(lane.batches), default=None)

    def _wake_at(self, ready_at: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if ready_at is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, ready_at - self.clock()), self._feed)

    def _send(self, lane: _Lane, entries: list[Entry], now: float) -> None:
        slot, call = lane.free.pop(), entries[0].item.call
        rows = sum(entry.rows for entry in entries)
        request = BatchRequest(next(self._numbers), slot, rows, len(entries), call)
        batch = Batch(request, entries, request.layout, now)
        if not lane.batches:
            lane.since = now
        lane.batches[request.id] = batch
        if lane.watch is None:
            self._watch(lane)
        try:
            _fill(lane.link.memory(slot, batch.layout.size), batch)
            lane.link.send(request)
        except (LinkLost, OSError, MemoryError):  # the engine is gone, or the memory is
            self._gone(lane)

    def _settle(self, lane: _Lane, result: BatchResult) -> None:
        batch = lane.batches.pop(result.id)
        self.queue.release(batch.entries)
        slot, layout = batch.request.slot, batch.layout
        memory = lane.link.memory(slot, layout.size)
        batch.result = result
        batch.end = lane.since = self.clock()
        if result.roots:
            batch.roots = _roots(memory, batch, result.refusals)
        first = 0
        for index, entry in enumerate(batch.entries):
            if result.failure is not None:
                entry.tell(EngineFailed(f"engine: must not fail; got {result.failure}"))
            elif entry.listener is not None:
                entry.tell(Served(batch, memory, entry, first, result.refusals.get(index)))
            first += entry.rows
        lane.free.append(slot)
        self._feed()
        self._observer.batch_done(batch)

    def _watch(self, lane: _Lane) -> None:
        """See that no batch takes too long: an engine that is stuck would hold its callers."""
        lane.watch = None
        if not lane.batches:
            return
        now = self.clock()
        if (end := lane.since + self._max_batch_s) <= now:
            must = f"a batch must take at most {self._max_batch_s:g} s"
            self._gone(lane, BatchTooLong(f"engine: {must}; got one that takes longer"))
            return
        loop = asyncio.get_running_loop()
        lane.watch = loop.call_later(end - now, self._watch, lane)

    def _gone(self, lane: _Lane, why: ServiceError | None = None) -> None:
        """The engine died, or is given up. It ends with its link."""
        if lane not in self._lanes:
            return
        self._lanes.remove(lane)
        if not lane.gone.done():  # it is, where serving was cancelled
            lane.gone.set_result(None)
        lane.link.close()
        if lane.watch is not None:
            lane.watch.cancel()
        died = EngineDied("engine: must live until it has answered; got one that died")
        for batch in lane.batches.values():
            self.queue.release(batch.entries)
            for entry in batch.entries:
                entry.tell(why or died)
            why = None  # the batch behind the one that is to blame may be tried again

    def _lose(self, lane: _Lane) -> None:
        self._gone(lane)
        self._observer.engine_lost()
        if not self._lanes and self._giving_up is None:
            loop = asyncio.get_running_loop()
            self._giving_up = loop.call_later(ENGINE_WAIT_S, self._give_up)
        self._feed()

    def _give_up(self) -> None:
        self._giving_up = None
        for entry in self.queue.clear():
            entry.tell(EngineUnavailable("engine: must be back by now; got none"))


def _fill(memory: memoryview, batch: Batch) -> None:
    """Copy the entries into the slot: the table of items, then each array, entry by entry."""
    layout, at = batch.layout, 0
    for entry in batch.entries:
        for value in (entry.rows, entry.item.seed, entry.first):
            memory[at : at + 8] = value.to_bytes(8, "little")
            at += 8
    for name in batch.entries[0].item.arrays:
        at, _ = layout[name]
        for entry in batch.entries:
            for piece in entry.item.of_rows(name, entry.first, entry.rows):
                memory[at : at + len(piece)] = piece
                at += len(piece)


def _roots(memory: memoryview, batch: Batch, refusals: Mapping[int, str]) -> Roots:
    """What the slot, which is soon another batch's, tells of them.

    The rows of a refused item hold whatever was there before.
    """
    layout, rows = batch.layout, batch.request.rows
    (at, _), (residual_at, _) = layout["iterations"], layout["residual"]
    if rows == 1:
        iterations = int.from_bytes(memory[at : at + 4], "little")
        return Roots({iterations: 1}, _RESIDUAL.unpack_from(memory, residual_at))
    found = np.frombuffer(memory, np.int32, rows, at)
    residuals = np.frombuffer(memory, np.float64, rows, residual_at)
    if refusals:
        served = [index not in refusals for index in range(len(batch.entries))]
        kept = np.repeat(served, [entry.rows for entry in batch.entries])
        found, residuals = found[kept], residuals[kept]
    counts = np.bincount(found)
    (values,) = counts.nonzero()
    iterations_of = dict(zip(values.tolist(), counts[values].tolist(), strict=True))
    return Roots(iterations_of, residuals.copy())
