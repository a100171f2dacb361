"""Relaxing and sampling, for asyncio: see `serving.py`."""

from collections.abc import AsyncIterable, AsyncIterator, Iterable

from khot_client.aio_coalescing import AsyncCoalescer
from khot_client.aio_connection import AsyncConnection, awaited
from khot_client.aio_streams import AsyncStream
from khot_client.calls import Call
from khot_client.errors import KhotError
from khot_client.operations import RELAX, SAMPLE, Item, Operation, Outcome
from khot_client.serving import Serving
from khot_client.streams import IN_FLIGHT
from khot_client.values import Priority, Relaxed, RelaxItem, Sample, SampleItem


class AsyncServing:
    """The operations of KHotService, each as a function of arrays: those of `Serving`, awaited."""

    relax = awaited(Serving.relax)
    relax_vjp = awaited(Serving.relax_vjp)
    sample = awaited(Serving.sample)
    sample_vjp = awaited(Serving.sample_vjp)
    relax_many = awaited(Serving.relax_many)
    relax_vjp_many = awaited(Serving.relax_vjp_many)
    sample_many = awaited(Serving.sample_many)
    sample_vjp_many = awaited(Serving.sample_vjp_many)
    list_operators = awaited(Serving.list_operators)
    server = awaited(Serving.server)

    def __init__(self, connection: AsyncConnection, *, coalesce: bool) -> None:
        self._connection = connection
        self._coalescer = AsyncCoalescer(connection) if coalesce else None

    def stream(self, in_flight: int = IN_FLIGHT) -> AsyncStream:
        """As `Client.stream`."""
        return AsyncStream(self._connection, in_flight)

    def relax_stream(
        self,
        items: Iterable[RelaxItem] | AsyncIterable[RelaxItem],
        *,
        in_flight: int = IN_FLIGHT,
        priority: Priority | None = None,
    ) -> AsyncIterator[Relaxed | KhotError]:
        """As `Client.relax_stream`."""
        return self._streamed(RELAX, items, in_flight, priority)

    def sample_stream(
        self,
        items: Iterable[SampleItem] | AsyncIterable[SampleItem],
        *,
        in_flight: int = IN_FLIGHT,
        priority: Priority | None = None,
    ) -> AsyncIterator[Sample | KhotError]:
        """As `Client.sample_stream`."""
        return self._streamed(SAMPLE, items, in_flight, priority)

    async def _one(
        self,
        operation: Operation[Item, Outcome],
        item: Item,
        priority: str | None,
        timeout_s: float | None,
    ) -> Outcome:
        if self._coalescer is not None:
            return await self._coalescer.call(operation, item, priority, timeout_s)
        return await self._connection.call(operation.one(item, priority), timeout_s)

    async def _many(
        self,
        operation: Operation[Item, Outcome],
        items: Iterable[Item],
        priority: str | None,
        timeout_s: float | None,
    ) -> list[Outcome | KhotError]:
        call = operation.many(items, priority)
        return await self._connection.call(call, timeout_s) if isinstance(call, Call) else [*call]

    async def _streamed(
        self,
        operation: Operation[Item, Outcome],
        items: Iterable[Item] | AsyncIterable[Item],
        in_flight: int,
        priority: str | None,
    ) -> AsyncIterator[Outcome | KhotError]:
        async with AsyncStream(self._connection, in_flight) as stream:
            async for outcome in stream.outcomes(operation, items, priority):
                yield outcome
