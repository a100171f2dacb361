"""The connection for asyncio: the same as `connection.py`, awaited."""

import asyncio
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import grpc
import grpc.aio

from khot_client.calls import Call
from khot_client.channel import Endpoint, closed, methods_of, open_channel
from khot_client.errors import KhotError, Unavailable
from khot_client.operations import list_operators
from khot_client.settings import Settings

LOST = "Internal error from Core"
P = ParamSpec("P")
T = TypeVar("T")


class AsyncConnection(Endpoint):
    """A channel of grpc.aio, which is `io.Io` as it is.

    The channel is opened by the first call, for it belongs to the loop that runs then.
    """

    def __init__(self, settings: Settings, timeout_s: float | None) -> None:
        super().__init__(settings, timeout_s)
        self._channel: Any = None
        self._methods: dict[str, Callable[..., Any]] = {}
        self._closed = False

    async def call(self, call: Call[T], timeout_s: float | None = None) -> T:
        """The answer of a unary call.

        Raises:
            KhotError: the call failed.
        """
        try:
            return call.read(await self.begin(call.method, call.request, self.limit(timeout_s)))
        except grpc.RpcError as error:
            raise self.told(error) from None
        except asyncio.CancelledError:
            if self.closed_under():
                raise closed() from None
            raise

    def begin(self, method: str, request: Any, timeout_s: float | None) -> Any:
        """A call under way, as gRPC's own object.

        Raises:
            Cancelled: the connection is closed.
        """
        if self._closed:
            raise closed()
        if self._channel is None:
            self._channel = open_channel(self.settings, grpc.aio)
            self._methods = methods_of(self._channel)
        return self._methods[method](request, timeout=timeout_s, metadata=self._metadata)

    async def stream(self, call: Call[T], timeout_s: float | None) -> AsyncGenerator[T, None]:
        """The answers of a streaming call, as they come; closing the iterator ends the call.

        Raises:
            KhotError: the call failed.
        """
        under_way = self.begin(call.method, call.request, timeout_s)
        try:
            async for answer in under_way:
                yield call.read(answer)
        except grpc.RpcError as error:
            raise self.told(error) from None
        except asyncio.CancelledError:
            if self.closed_under():
                raise closed() from None
            raise
        finally:
            under_way.cancel()

    async def send(self, call: Call[T]) -> T:
        """The answer to a call whose request is an `uploads.Feed`."""
        under_way = self.begin(call.method, call.request, None)
        call.request.stop = under_way.cancel
        try:
            return call.read(await under_way)
        except grpc.RpcError as error:
            raise await self.reason(error) from None
        except asyncio.CancelledError:
            if being_cancelled():
                raise
            raise closed() from None
        finally:
            under_way.cancel()

    async def pause(self, seconds: float) -> None:
        """Nothing, for so long."""
        await asyncio.sleep(seconds)

    async def work(self, function: Callable[..., T], *args: Any) -> T:
        """What a function returns that may take long, from a thread."""
        return await asyncio.to_thread(function, *args)

    async def reason(self, error: grpc.RpcError) -> KhotError:
        """Ours for an error of a call that was being written to.

        When a message meets the end of its call, grpc.aio has an error of its own in the place of
        the server's status. A small call is then made instead: whoever is refused at the door is
        so again, and otherwise it may go on in another call.
        """
        told = self.told(error)
        if LOST not in str(error):
            return told
        try:
            await self.call(list_operators())
        except KhotError as refused:
            return refused
        must = f"{self.address}: must be a khot server that answers"
        return Unavailable(f"{must}; got the end of a call, without a reason")

    def closed_under(self) -> bool:
        """Whether a call was cancelled because the client was closed, not because its task was."""
        return self._closed and not being_cancelled()

    async def close(self) -> None:
        """End the calls that are under way, and the connection."""
        self._closed = True
        if self._channel is not None:
            await self._channel.close()


def being_cancelled() -> bool:
    """Whether it is the task that is cancelled, not a call of it: gRPC raises the same for both."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def awaited(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method of a blocking class, for its counterpart here: its arguments and docstring, awaited.

    It has to be one that only hands on what a call returns. On a connection of this kind that is
    a coroutine, which no type of the method can say.
    """

    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await cast(Awaitable[T], method(self, *args, **kwargs))

    return call
