"""Many requests in flight on one call, for asyncio: see `streams.py`."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from copy import copy
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio
from numpy.typing import ArrayLike

from khot_client.aio_connection import AsyncConnection
from khot_client.channel import closed
from khot_client.errors import DeadlineExceeded, InvalidRequest, KhotError, ServerError
from khot_client.io import as_async
from khot_client.ledger import Ledger, check_in_flight, unanswered
from khot_client.messages import invalid
from khot_client.operations import RELAX, RELAX_VJP, SAMPLE, SAMPLE_VJP, Item, Operation, Outcome
from khot_client.values import (
    DESIGN,
    ESTIMATOR,
    RELAXATION,
    Gradients,
    Priority,
    Relaxed,
    RelaxItem,
    Sample,
    SampleItem,
)


class AsyncStream:
    """`Stream` for asyncio. Made by `AsyncClient.stream`; use it in an `async with`.

    Each method has the arguments of the client's of the same name and returns, awaited, the
    same. Call them from many tasks: they wait while `in_flight` requests are unanswered.
    """

    def __init__(self, connection: AsyncConnection, in_flight: int) -> None:
        self._connection, self._limit = connection, check_in_flight(in_flight)
        self._room = asyncio.Semaphore(in_flight)
        self._ledger: Ledger[asyncio.Future[Any]] = Ledger()
        self._unsent: deque[Any] = deque()
        self._broken: KhotError | None = None
        self._call: Any = None
        self._reader: asyncio.Task[None] | None = None
        self._writer: asyncio.Task[None] | None = None

    async def relax(
        self,
        x: ArrayLike,
        k: ArrayLike | None,
        *,
        tau: ArrayLike | None = None,
        operator: str = RELAXATION,
        options: Mapping[str, Any] | None = None,
        g: ArrayLike | None = None,
        diagnostics: bool = False,
        priority: Priority | None = None,
    ) -> Relaxed:
        """As `Client.relax`."""
        item = RelaxItem(x, k, tau, operator, options, g, diagnostics)
        return await self._answered(await self.put(RELAX, item, priority))

    async def relax_vjp(
        self,
        x: ArrayLike,
        k: ArrayLike | None,
        g: ArrayLike,
        *,
        tau: ArrayLike | None = None,
        operator: str = RELAXATION,
        options: Mapping[str, Any] | None = None,
        priority: Priority | None = None,
    ) -> Gradients:
        """As `Client.relax_vjp`."""
        item = RelaxItem(x, k, tau, operator, options, g)
        return await self._answered(await self.put(RELAX_VJP, item, priority))

    async def sample(
        self,
        x: ArrayLike,
        k: ArrayLike | None,
        *,
        operator: str = DESIGN,
        priority: Priority | None = None,
        **more: Any,
    ) -> Sample:
        """As `Client.sample`."""
        item = SampleItem(x, k, operator=operator, **more)
        return await self._answered(await self.put(SAMPLE, item, priority))

    async def sample_vjp(
        self,
        x: ArrayLike,
        k: ArrayLike | None,
        g: ArrayLike | None = None,
        *,
        seed: int,
        operator: str = ESTIMATOR,
        priority: Priority | None = None,
        **more: Any,
    ) -> Gradients:
        """As `Client.sample_vjp`."""
        item = SampleItem(x, k, operator=operator, seed=seed, g=g, **more)
        return await self._answered(await self.put(SAMPLE_VJP, item, priority))

    async def put(
        self, operation: Operation[Item, Outcome], item: Item, priority: str | None
    ) -> asyncio.Future[Outcome]:
        """Send an item as soon as there is room, and return the future of its outcome.

        Raises:
            InvalidRequest: it cannot be sent.
            KhotError: the stream is broken, or closed.
        """
        if self._reader is None:
            raise invalid("stream", "must be in an `async with`", "one that is not")
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        await self._room.acquire()
        try:
            if self._broken is not None:
                raise copy(self._broken)
            self._unsent.append(self._ledger.add(operation, item, priority, future))
        except BaseException:
            self._room.release()
            raise
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())
        return future

    async def outcomes(
        self,
        operation: Operation[Item, Outcome],
        items: Iterable[Item] | AsyncIterable[Item],
        priority: str | None,
    ) -> AsyncIterator[Outcome | KhotError]:
        """Yield the outcome of each item, in order.

        Raises:
            KhotError: the stream broke.
        """
        waiting: deque[asyncio.Future[Outcome] | InvalidRequest] = deque()
        async for item in as_async(items):
            try:
                waiting.append(await self.put(operation, item, priority))
            except InvalidRequest as error:
                waiting.append(error)
            if len(waiting) >= self._limit:
                yield await self._outcome(waiting.popleft())
        while waiting:
            yield await self._outcome(waiting.popleft())

    async def _outcome(self, waiting: asyncio.Future[Any] | InvalidRequest) -> Any:
        if isinstance(waiting, InvalidRequest):
            return waiting
        try:
            return await self._answered(waiting)
        except DeadlineExceeded:
            raise
        except KhotError as error:
            if self._broken is not None:
                raise
            return error

    async def _answered(self, future: asyncio.Future[Outcome]) -> Outcome:
        limit = self._connection.limit(None)
        try:
            async with asyncio.timeout(limit):
                return await future
        except TimeoutError:
            raise unanswered(limit) from None

    async def close(self) -> None:
        """Wait for all answers, then end the stream."""
        if self._reader is not None:
            if self._writer is not None:
                await asyncio.wait([self._writer])
            if self._broken is None:
                await self._call.done_writing()
            await self._reader

    async def __aenter__(self) -> Self:
        self._call = self._connection.begin("Stream", None, None)
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                await self.close()
        finally:
            self._call.cancel()
            tasks = [task for task in (self._reader, self._writer) if task is not None]
            await asyncio.wait(tasks)

    async def _write(self) -> None:
        """Send what is unsent.

        As a task of its own: gRPC ends the call, which is everybody's, when whoever writes to it
        is cancelled. What goes wrong here is told by the reader.
        """
        over = (grpc.RpcError, asyncio.InvalidStateError, asyncio.CancelledError)
        with contextlib.suppress(*over):
            while self._unsent:
                await self._call.write(self._unsent.popleft())

    async def _read(self) -> None:
        broken: KhotError = closed()
        try:
            while (response := await self._call.read()) is not grpc.aio.EOF:
                future, value = self._ledger.take(response)
                self._room.release()
                if not future.done():
                    _settle(future, value)
        except grpc.RpcError as error:
            broken = await self._connection.reason(error)
        except asyncio.CancelledError:
            pass  # of the call, by whoever leaves
        except Exception as error:
            broken = error if isinstance(error, KhotError) else ServerError(f"reply: {error}")
            self._call.cancel()
        self._broken = broken
        for future in self._ledger.drain():
            self._room.release()
            if not future.done():
                _fail(future, copy(broken))


def _settle(future: asyncio.Future[Any], value: Any) -> None:
    try:
        future.set_result(value())
    except KhotError as error:
        _fail(future, error)


def _fail(future: asyncio.Future[Any], error: KhotError) -> None:
    future.set_exception(error)
    future.exception()  # seen: asyncio need not say that nobody waited for it
