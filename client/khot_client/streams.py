"""Many requests in flight on one call, for blocking programs."""

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from copy import copy
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

import grpc
from numpy.typing import ArrayLike

from khot_client.channel import closed
from khot_client.connection import Connection
from khot_client.errors import InvalidRequest, KhotError, ServerError
from khot_client.ledger import Ledger, check_in_flight, unanswered
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

IN_FLIGHT = 32
CLOSE_S = 1.0


class Stream:
    """Requests that are answered as they finish. Made by `Client.stream`; use it in a `with`.

    Each method has the arguments of the client's of the same name, and returns the future of
    what that one returns. It waits while `in_flight` requests are unanswered. Leaving the
    `with` waits for all answers; leaving it by an exception ends the stream. When the stream
    breaks, all its futures get the error.
    """

    def __init__(self, connection: Connection, in_flight: int) -> None:
        self._connection, self._limit = connection, check_in_flight(in_flight)
        self._room = threading.Semaphore(in_flight)
        self._lock = threading.Lock()
        self._ledger: Ledger[Future[Any]] = Ledger()
        self._sent: SimpleQueue[Any] = SimpleQueue()
        self._broken: KhotError | None = None
        self._call = connection.begin("Stream", iter(self._sent.get, None), None)
        self._reader = threading.Thread(target=self._read, name="khot-stream", daemon=True)
        self._reader.start()

    def relax(
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
    ) -> Future[Relaxed]:
        """As `Client.relax`."""
        item = RelaxItem(x, k, tau, operator, options, g, diagnostics)
        return self.put(RELAX, item, priority)

    def relax_vjp(
        self,
        x: ArrayLike,
        k: ArrayLike | None,
        g: ArrayLike,
        *,
        tau: ArrayLike | None = None,
        operator: str = RELAXATION,
        options: Mapping[str, Any] | None = None,
        priority: Priority | None = None,
    ) -> Future[Gradients]:
        """As `Client.relax_vjp`."""
        return self.put(RELAX_VJP, RelaxItem(x, k, tau, operator, options, g), priority)

    def sample(
        self,
        x: ArrayLike,
        k: ArrayLike | None,
        *,
        operator: str = DESIGN,
        priority: Priority | None = None,
        **more: Any,
    ) -> Future[Sample]:
        """As `Client.sample`."""
        return self.put(SAMPLE, SampleItem(x, k, operator=operator, **more), priority)

    def sample_vjp(
        self,
        x: ArrayLike,
        k: ArrayLike | None,
        g: ArrayLike | None = None,
        *,
        seed: int,
        operator: str = ESTIMATOR,
        priority: Priority | None = None,
        **more: Any,
    ) -> Future[Gradients]:
        """As `Client.sample_vjp`."""
        item = SampleItem(x, k, operator=operator, seed=seed, g=g, **more)
        return self.put(SAMPLE_VJP, item, priority)

    def put(
        self, operation: Operation[Item, Outcome], item: Item, priority: str | None
    ) -> Future[Outcome]:
        """Send an item as soon as there is room, and return the future of its outcome.

        Raises:
            InvalidRequest: it cannot be sent.
            KhotError: the stream is broken, or closed.
        """
        future: Future[Outcome] = Future()
        future.set_running_or_notify_cancel()  # what was sent cannot be taken back
        self._room.acquire()
        try:
            with self._lock:
                if self._broken is not None:
                    raise copy(self._broken)
                self._sent.put(self._ledger.add(operation, item, priority, future))
        except BaseException:
            self._room.release()
            raise
        return future

    def outcomes(
        self, operation: Operation[Item, Outcome], items: Iterable[Item], priority: str | None
    ) -> Iterator[Outcome | KhotError]:
        """Yield the outcome of each item, in order.

        Raises:
            KhotError: the stream broke.
        """
        waiting: deque[Future[Outcome] | InvalidRequest] = deque()
        for item in items:
            try:
                waiting.append(self.put(operation, item, priority))
            except InvalidRequest as error:
                waiting.append(error)
            if len(waiting) >= self._limit:
                yield self._outcome(waiting.popleft())
        while waiting:
            yield self._outcome(waiting.popleft())

    def _outcome(self, waiting: Future[Any] | InvalidRequest) -> Any:
        if isinstance(waiting, InvalidRequest):
            return waiting
        limit = self._connection.limit(None)
        try:
            return waiting.result(limit)
        except FutureTimeoutError:
            raise unanswered(limit) from None
        except KhotError as error:
            if self._broken is not None:
                raise
            return error

    def close(self) -> None:
        """Wait for all answers, then end the stream."""
        self._sent.put(None)
        self._reader.join()

    def cancel(self) -> None:
        """End the stream; what is unanswered gets the error Cancelled."""
        self._call.cancel()
        self._sent.put(None)
        self._reader.join(CLOSE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if error is None:
            try:
                self.close()
            except BaseException:  # Ctrl-C, most likely
                self.cancel()
                raise
        else:
            self.cancel()

    def _read(self) -> None:
        broken: KhotError = closed()
        try:
            for response in self._call:
                with self._lock:
                    future, value = self._ledger.take(response)
                try:
                    future.set_result(value())
                except KhotError as error:
                    future.set_exception(error)
                self._room.release()
        except grpc.RpcError as error:
            broken = self._connection.told(error)
        except Exception as error:
            broken = error if isinstance(error, KhotError) else ServerError(f"reply: {error}")
            self._call.cancel()
        with self._lock:
            self._broken = broken
            left = self._ledger.drain()
        for future in left:
            future.set_exception(copy(broken))
            self._room.release()
        self._sent.put(None)  # gRPC's thread that takes from it ends too
