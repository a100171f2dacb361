"""The batcher: one owner of the queue, one batch running, one prepared behind it.

No timer: whatever queued while the engine was busy is the next batch. A caller who
left is dropped before his entry is sent, and ignored after; an engine that died fails
the entries it had, and the rest wait for the next engine.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

import numpy as np

from khot_server.batching.policy import Limits, plan
from khot_server.errors import EngineDied, EngineUnavailable, QueueFull, ServiceError
from khot_server.messages import Array, BatchRequest, BatchResult, Hello, Kind, Layout, OperatorInfo

SLOTS = 2
ENGINE_WAIT_S = 30.0


@dataclass(frozen=True)
class Work:
    """One item of a tenant: rows (r, n) of scores for one operator, with k and tau of each."""

    tenant: str
    kind: Kind
    operator: str
    scores: Array
    k: Array
    tau: Array
    seed: int = 0

    @property
    def key(self) -> tuple[object, ...]:
        return self.kind, self.operator, self.scores.shape[1], self.scores.dtype.name

    @property
    def elements(self) -> int:
        return self.scores.size


@dataclass(frozen=True)
class Answer:
    """The bytes of an item's result, or why the library refused it."""

    data: bytes
    refusal: str | None
    queue_s: float
    compute_s: float
    batch_rows: int


@dataclass(eq=False)
class _Entry:
    work: Work
    future: "asyncio.Future[Answer]"
    arrival: float = field(default_factory=time.perf_counter)

    @property
    def key(self) -> tuple[object, ...]:
        return self.work.key

    @property
    def elements(self) -> int:
        return self.work.elements


@dataclass(frozen=True)
class _Flight:
    request: BatchRequest
    entries: list[_Entry]
    start: float


class Transport(Protocol):
    """The way to one engine; `khot_server.worker.link.Link` is it."""

    async def hello(self) -> Hello: ...
    async def result(self) -> BatchResult: ...
    async def send(self, request: BatchRequest) -> None: ...
    def slot(self, number: int, size: int) -> "Memory": ...
    def close(self) -> None: ...


class Memory(Protocol):
    """The shared memory of one batch."""

    def write(self, at: int, array: Array) -> int: ...
    def rows(self, layout: Layout, rows: slice) -> bytes: ...


class Observer(Protocol):
    """Who is told of what happened, for the metrics."""

    def engine_connected(self, hello: Hello) -> None: ...
    def engine_lost(self) -> None: ...
    def batch_done(
        self, request: BatchRequest, result: BatchResult, queued: list[float]
    ) -> None: ...
    def queue_changed(self, entries: int, elements: int) -> None: ...


class Batcher:
    """From `submit` of many callers to batches on one engine after another."""

    def __init__(self, limits: Limits, observer: Observer, lost: type[Exception]) -> None:
        self._limits, self._observer, self._lost = limits, observer, lost
        self._queue: list[_Entry] = []
        self._queued_elements = 0
        self._flights: dict[int, _Flight] = {}
        self._free = list(range(SLOTS))
        self._numbers = count()
        self._changed = asyncio.Event()
        self._link: Transport | None = None
        self._giving_up: asyncio.TimerHandle | None = None
        self.operators: dict[str, OperatorInfo] = {}

    @property
    def connected(self) -> bool:
        """Whether there is an engine."""
        return self._link is not None

    async def submit(self, work: Work) -> Answer:
        """The answer to one item.

        Raises:
            QueueFull: more waits than may wait.
            EngineUnavailable: there is no engine now.
            EngineDied: the engine died with this item.
        """
        if self._link is None:
            raise EngineUnavailable("engine: must be running; got none, one is being started")
        self._refuse_overload(work)
        entry = _Entry(work, asyncio.get_running_loop().create_future())
        self._queue.append(entry)
        self._count()
        self._changed.set()
        try:
            return await entry.future
        finally:
            # a caller who left; one who was answered is in no queue any more
            if entry in self._queue:
                self._queue.remove(entry)
                self._count()

    def _refuse_overload(self, work: Work) -> None:
        """Refuse what would make the queue too long; an item alone in it may be of any size."""
        of_tenant = sum(e.elements for e in self._queue if e.work.tenant == work.tenant)
        for whose, waiting, most in (
            ("", self._queued_elements, self._limits.queue_elements),
            (f" of {work.tenant!r}", of_tenant, self._limits.tenant_elements),
        ):
            if waiting and waiting + work.elements > most:
                raise QueueFull(
                    f"queue: at most {most} scores{whose} may wait; "
                    f"got {waiting} waiting and {work.elements} more"
                )

    async def serve(self, link: Transport, connected: Callable[[], Awaitable[None]]) -> None:
        """Feed this engine until it is lost; say when it is there. One engine at a time."""
        try:
            hello = await link.hello()
        except self._lost:
            link.close()
            return
        self.operators = {row.name: row for row in hello.operators}
        self._link = link
        if self._giving_up is not None:
            self._giving_up.cancel()
        self._observer.engine_connected(hello)
        await connected()
        self._changed.set()
        feeding = asyncio.create_task(self._feed(link))
        try:
            while True:
                self._settle(link, await link.result())
        except self._lost:
            pass
        finally:
            feeding.cancel()
            with contextlib.suppress(asyncio.CancelledError, self._lost):
                await feeding
            self._lose(link)

    async def _feed(self, link: Transport) -> None:
        while True:
            while not (self._queue and self._free):
                self._changed.clear()
                await self._changed.wait()
            batch, self._queue = plan(self._queue, self._limits)
            self._count()
            await self._send(link, batch)

    async def _send(self, link: Transport, entries: list[_Entry]) -> None:
        first, slot = entries[0].work, self._free.pop()
        items = [len(entry.work.scores) for entry in entries]
        number, (rows, n) = next(self._numbers), (sum(items), first.scores.shape[1])
        dtype = first.scores.dtype.name
        request = BatchRequest(number, slot, first.kind, first.operator, rows, n, dtype, items)
        layout = request.layout
        memory = link.slot(slot, layout.size)
        for at, arrays in (
            (layout.k, [entry.work.k for entry in entries]),
            (layout.tau, [entry.work.tau for entry in entries]),
            (
                layout.seeds,
                [np.full(r, e.work.seed, np.uint64) for r, e in zip(items, entries, strict=True)],
            ),
            (layout.scores, [entry.work.scores for entry in entries]),
        ):
            for array in arrays:
                at = memory.write(at, array)  # noqa: PLW2901
        self._flights[number] = _Flight(request, entries, time.perf_counter())
        await link.send(request)

    def _settle(self, link: Transport, result: BatchResult) -> None:
        flight = self._flights.pop(result.id)
        request, layout = flight.request, flight.request.layout
        memory = link.slot(request.slot, layout.size)
        queued = [flight.start - entry.arrival for entry in flight.entries]
        for index, (entry, rows) in enumerate(zip(flight.entries, request.slices, strict=True)):
            if entry.future.done():
                continue
            refusal = result.refusals.get(str(index))
            data = b"" if refusal is not None else memory.rows(layout, rows)
            entry.future.set_result(
                Answer(data, refusal, queued[index], result.compute_s, request.rows)
            )
        self._free.append(request.slot)
        self._changed.set()
        self._observer.batch_done(request, result, queued)

    def _lose(self, link: Transport) -> None:
        self._link = None
        link.close()
        for flight in self._flights.values():
            _fail(flight.entries, EngineDied, "must live until it has answered; got one that died")
        self._flights.clear()
        self._free = list(range(SLOTS))
        self._observer.engine_lost()
        self._giving_up = asyncio.get_running_loop().call_later(ENGINE_WAIT_S, self._give_up)

    def _give_up(self) -> None:
        _fail(self._queue, EngineUnavailable, "must be back by now; got none")
        self._queue = []
        self._count()

    def _count(self) -> None:
        self._queued_elements = sum(entry.elements for entry in self._queue)
        self._observer.queue_changed(len(self._queue), self._queued_elements)


def _fail(entries: list[_Entry], error: type[ServiceError], message: str) -> None:
    for entry in entries:
        if not entry.future.done():
            entry.future.set_exception(error(f"engine: {message}"))
