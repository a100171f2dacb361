"""What the longer operations need of a connection, and how to run them without a loop.

Watching over lost connections, uploads and downloads that go on where they broke off: each
is written once, as a coroutine over these five. In the client for asyncio they wait; in the
blocking client they block, so that a coroutine over them never waits, and ends in one go.
"""

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
)
from typing import Any, Protocol, TypeVar

from khot_client.calls import Call

T = TypeVar("T")


class Io(Protocol):
    """A connection, to a coroutine."""

    async def call(self, call: Call[T], timeout_s: float | None = None) -> T:
        """The answer to a call; by default within the time that the client allows."""

    def stream(self, call: Call[T], timeout_s: float | None) -> AsyncGenerator[T, None]:
        """The answers to a call, as they come; closing it ends the call."""

    async def send(self, call: Call[T]) -> T:
        """The answer to a call whose request is an `uploads.Feed`; no time limit.

        Raises:
            KhotError: the call failed, or the feed stopped it.
        """

    async def pause(self, seconds: float) -> None:
        """Nothing, for so long."""

    async def work(self, function: Callable[..., T], *args: Any) -> T:
        """What a function returns that may take long, such as on a file."""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The value of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    finally:
        coroutine.close()
    raise AssertionError("a coroutine of the blocking client must not wait")


def iterate(source: AsyncGenerator[T, None]) -> Iterator[T]:
    """The values of a generator that never waits; closing this closes it."""
    try:
        while True:
            try:
                value = run(anext(source))
            except StopAsyncIteration:
                return
            yield value
    finally:
        run(source.aclose())


async def as_async(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    """The items of either kind of iterable."""
    if isinstance(items, Iterable):
        for item in items:
            yield item
    else:
        async for item in items:
            yield item
