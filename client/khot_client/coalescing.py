"""Small calls that are made at the same time share a request.

There is no timer: what was asked while the last request was under way makes the next one, up
to a limit. A bad item fails alone, and each caller waits as long as he would have alone.
"""

import threading
import time
from collections import deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from copy import copy
from typing import Any, Generic, TypeVar

import grpc

from khot_client.calls import Call
from khot_client.channel import closed
from khot_client.connection import Connection
from khot_client.errors import DeadlineExceeded, KhotError, ServerError
from khot_client.messages import priority_number
from khot_client.operations import Item, Operation, Outcome

MAX_ITEMS, MAX_BYTES = 256, 4 << 20

F = TypeVar("F")


class Waiting(Generic[F]):
    """An item that waits to be sent, or to be answered.

    Attributes:
        message: the item.
        future: gets the response, and the place of this item in it.
        deadline: by time.monotonic; None: none.
    """

    __slots__ = ("deadline", "future", "message", "size")

    def __init__(self, message: Any, future: F, limit_s: float | None) -> None:
        self.message, self.future = message, future
        self.deadline = None if limit_s is None else time.monotonic() + limit_s
        self.size: int = message.ByteSize()


class Lane(Generic[F]):
    """What waits for one method with one priority. No I/O.

    Attributes:
        busy: whether a request of it is under way.
    """

    def __init__(self, operation: Operation[Any, Any], priority: str | None) -> None:
        self.operation = operation
        self._priority = priority_number(priority)
        self._queue: deque[Waiting[F]] = deque()
        self.busy = False

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, item: Any, future: F, limit_s: float | None) -> Waiting[F]:
        """Queue an item.

        Raises:
            InvalidRequest: it cannot be sent.
        """
        message = self.operation.item()
        self.operation.write(message, item)
        waiting = Waiting(message, future, limit_s)
        self._queue.append(waiting)
        return waiting

    def withdraw(self, waiting: Waiting[F]) -> None:
        """Its caller has left."""
        if waiting in self._queue:
            self._queue.remove(waiting)

    def take(self) -> tuple[Any, list[Waiting[F]], float | None]:
        """The next request, whose it is, and how long it may take: as the most patient says."""
        batch, size = [self._queue.popleft()], 0
        size = batch[0].size
        while self._queue and len(batch) < MAX_ITEMS and size + self._queue[0].size <= MAX_BYTES:
            size += self._queue[0].size
            batch.append(self._queue.popleft())
        messages = [waiting.message for waiting in batch]
        request = self.operation.request(items=messages, priority=self._priority)
        deadlines = [waiting.deadline for waiting in batch if waiting.deadline is not None]
        if len(deadlines) < len(batch):
            return request, batch, None
        return request, batch, max(0.0, max(deadlines) - time.monotonic())


def outcome(operation: Operation[Item, Outcome], item: Item, answer: tuple[Any, int]) -> Outcome:
    """What became of an item, out of the answer to all.

    Raises:
        KhotError: it failed.
    """
    response, place = answer

    def parse(response: Any) -> Outcome:
        if place >= len(response.results):
            raise ServerError(f"reply: must have a result for each item; got none for {place}")
        found = operation.read(item, response.results[place])
        if isinstance(found, KhotError):
            raise _as_alone(found, place)
        return found

    return Call("", None, parse).read(response)


def too_late(limit_s: float | None) -> DeadlineExceeded:
    """The error of a caller whose time is up."""
    message = f"call: must be answered within {limit_s} s; got no answer"
    return DeadlineExceeded(message, code="DEADLINE_EXCEEDED")


def _as_alone(error: KhotError, place: int) -> KhotError:
    """The error as if the item had been the only one, which to its caller it was."""
    here, alone = f"items[{place}]", "items[0]"
    error.message, error.field = (
        text.replace(here, alone) for text in (error.message, error.field)
    )
    error.args = (error.message,)
    return error


class Coalescer:
    """The lanes of a blocking client. Each caller waits in his own thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._lanes: dict[tuple[str, str | None], Lane[Future[tuple[Any, int]]]] = {}

    def call(
        self,
        operation: Operation[Item, Outcome],
        item: Item,
        priority: str | None,
        timeout_s: float | None,
    ) -> Outcome:
        """The outcome of one item.

        Raises:
            KhotError: the call failed, or the item was refused.
        """
        limit = self._connection.limit(timeout_s)
        with self._lock:
            key = (operation.method, priority)
            if key not in self._lanes:
                self._lanes[key] = Lane(operation, priority)
            lane = self._lanes[key]
            waiting = lane.put(item, Future(), limit)
            begins, lane.busy = not lane.busy, True
        if begins:
            self._next(lane)
        try:
            return outcome(operation, item, waiting.future.result(limit))
        except FutureTimeoutError:
            with self._lock:
                lane.withdraw(waiting)
            raise too_late(limit) from None

    def _next(self, lane: Lane[Future[tuple[Any, int]]]) -> None:
        """Send what waits; when it is answered, what waits then."""
        with self._lock:
            if not lane:
                lane.busy = False
                return
            request, batch, limit = lane.take()
        try:
            call = self._connection.begin(lane.operation.method, request, limit)
        except KhotError as error:
            self._fail(batch, error)
            self._next(lane)
            return

        def done(call: Any) -> None:
            try:
                response = call.result()
            except grpc.RpcError as error:
                self._fail(batch, self._connection.told(error))
            except grpc.FutureCancelledError:
                self._fail(batch, closed())
            else:
                for place, waiting in enumerate(batch):
                    waiting.future.set_result((response, place))
            self._next(lane)

        call.add_done_callback(done)

    def _fail(self, batch: list[Waiting[Future[tuple[Any, int]]]], error: KhotError) -> None:
        for waiting in batch:
            waiting.future.set_exception(copy(error))
