"""The blocking connection: calls, streams and uploads without gRPC errors."""

import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any, TypeVar

import grpc

from khot_client.calls import Call
from khot_client.channel import Endpoint, closed, methods_of, open_channel
from khot_client.settings import Settings

T = TypeVar("T")
CLOSE_S = 1.0


class Connection(Endpoint):
    """A channel with the methods of all services, and the way to call them."""

    def __init__(self, settings: Settings, timeout_s: float | None) -> None:
        super().__init__(settings, timeout_s)
        self._channel = open_channel(settings, grpc)
        self._methods = methods_of(self._channel)
        self.blocking = Blocking(self)

    def call(self, call: Call[T], timeout_s: float | None = None) -> T:
        """The answer of a unary call.

        Raises:
            KhotError: the call failed.
        """
        method = self._methods[call.method]
        try:
            answer = method(call.request, timeout=self.limit(timeout_s), metadata=self._metadata)
        except grpc.RpcError as error:
            raise self.told(error) from None
        except ValueError:  # the only one that gRPC raises here
            raise closed() from None
        return call.read(answer)

    def begin(self, method: str, request: Any, timeout_s: float | None) -> Any:
        """A call under way, as gRPC's own object: of a unary call its future.

        Raises:
            Cancelled: the connection is closed.
        """
        begin = getattr(self._methods[method], "future", self._methods[method])
        try:
            return begin(request, timeout=timeout_s, metadata=self._metadata)
        except ValueError:
            raise closed() from None

    def stream(self, call: Call[T], timeout_s: float | None) -> Iterator[T]:
        """The answers of a streaming call, as they come; closing the iterator ends the call.

        Raises:
            KhotError: the call failed.
        """
        under_way = self.begin(call.method, call.request, timeout_s)
        try:
            for answer in under_way:
                yield call.read(answer)
        except grpc.RpcError as error:
            raise self.told(error) from None
        finally:
            under_way.cancel()

    def close(self) -> None:
        """End the calls that are under way, and the connection."""
        # gRPC waits for all calls to end, and one that Ctrl-C tore out of its hands never
        # does (grpc#19973). So that the user's program ends, the waiting is another thread's.
        closing = threading.Thread(target=self._channel.close, daemon=True)
        closing.start()
        closing.join(CLOSE_S)


class Blocking:
    """The connection to a coroutine (`io.Io`): what it awaits has happened when it returns."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def call(self, call: Call[T], timeout_s: float | None = None) -> T:
        return self._connection.call(call, timeout_s)

    async def stream(self, call: Call[T], timeout_s: float | None) -> AsyncGenerator[T, None]:
        with contextlib.closing(self._connection.stream(call, timeout_s)) as answers:  # type: ignore[type-var]
            for answer in answers:
                yield answer

    async def send(self, call: Call[T]) -> T:
        # As a future, which Ctrl-C leaves in our hands to be cancelled.
        under_way = self._connection.begin(call.method, call.request, None)
        call.request.stop = under_way.cancel
        try:
            answer = under_way.result()
        except grpc.RpcError as error:
            raise self._connection.told(error) from None
        except grpc.FutureCancelledError:
            raise closed() from None
        finally:
            under_way.cancel()
        return call.read(answer)

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    async def work(self, function: Callable[..., T], *args: Any) -> T:
        return function(*args)
