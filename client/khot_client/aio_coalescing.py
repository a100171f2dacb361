"""Small calls of many tasks that share a request: see `coalescing.py`."""

import asyncio
from copy import copy
from typing import Any

import grpc

from khot_client.aio_connection import AsyncConnection
from khot_client.channel import closed
from khot_client.coalescing import Lane, Waiting, outcome, too_late
from khot_client.errors import KhotError
from khot_client.operations import Item, Operation, Outcome

Answer = asyncio.Future[tuple[Any, int]]


class AsyncCoalescer:
    """The lanes of a client for asyncio. Calls of one turn of the loop go together."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._lanes: dict[tuple[str, str | None], Lane[Answer]] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # the loop alone would not keep them

    async def call(
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
        key = (operation.method, priority)
        if key not in self._lanes:
            self._lanes[key] = Lane(operation, priority)
        lane = self._lanes[key]
        waiting = lane.put(item, asyncio.get_running_loop().create_future(), limit)
        if not lane.busy:
            lane.busy = True
            task = asyncio.create_task(self._send(lane))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            async with asyncio.timeout(limit):
                answer = await waiting.future
        except TimeoutError:
            lane.withdraw(waiting)
            raise too_late(limit) from None
        except asyncio.CancelledError:
            lane.withdraw(waiting)
            raise
        return outcome(operation, item, answer)

    async def _send(self, lane: Lane[Answer]) -> None:
        """Send what waits, then what waits then, until nothing does."""
        try:
            while lane:
                request, batch, limit = lane.take()
                try:
                    call = self._connection.begin(lane.operation.method, request, limit)
                    response = await call
                except grpc.RpcError as error:
                    _fail(batch, self._connection.told(error))
                except KhotError as error:
                    _fail(batch, error)
                except asyncio.CancelledError:
                    _fail(batch, closed())
                    if not self._connection.closed_under():
                        raise
                else:
                    for place, waiting in enumerate(batch):
                        if not waiting.future.done():
                            waiting.future.set_result((response, place))
        finally:
            lane.busy = False


def _fail(batch: list[Waiting[Answer]], error: KhotError) -> None:
    for waiting in batch:
        if not waiting.future.done():
            waiting.future.set_exception(copy(error))
            waiting.future.exception()  # seen, also if its caller has left
