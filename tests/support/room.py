"""A batcher with engines in this process, and callers who tell what they were told."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np

from khot_server.batching.batcher import Batch, Batcher
from khot_server.batching.policy import Limits
from khot_server.batching.work import Entry, Item, Outcome
from khot_server.errors import ServiceError
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
