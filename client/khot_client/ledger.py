"""The requests of a stream that are unanswered: whose each is, by number. No I/O."""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from khot_client.calls import Call
from khot_client.errors import DeadlineExceeded, InvalidRequest, ServerError, from_status
from khot_client.operations import Item, Operation
from khot_proto.v1 import khot_service_pb2 as pb

Future = TypeVar("Future")


class Ledger(Generic[Future]):
    """What is in flight: for each number a future, and how to read its answer."""

    def __init__(self) -> None:
        self._last = 0
        self._open: dict[int, tuple[Future, Call[Any]]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(
        self, operation: Operation[Item, Any], item: Item, priority: str | None, future: Future
    ) -> pb.StreamRequest:
        """The message that asks for one item.

        Raises:
            InvalidRequest: it cannot be sent.
        """
        message = pb.StreamRequest(id=self._last + 1)
        operation.fill(getattr(message, operation.name), item, priority)
        self._last += 1
        self._open[self._last] = (
            future,
            Call("Stream", message, partial(_read, operation.name, partial(operation.only, item))),
        )
        return message

    def take(self, response: pb.StreamResponse) -> tuple[Future, Callable[[], Any]]:
        """Whose answer it is, and what gives its value or raises its error.

        Raises:
            ServerError: nobody asked for it.
        """
        found = self._open.pop(response.id, None)
        if found is None:
            raise ServerError(f"reply: must be to a request in flight; got one to {response.id}")
        future, call = found
        return future, partial(call.read, response)

    def drain(self) -> list[Future]:
        """All that will not be answered."""
        futures = [future for future, _ in self._open.values()]
        self._open.clear()
        return futures


def _read(name: str, only: Callable[[Any], Any], response: pb.StreamResponse) -> Any:
    kind = response.WhichOneof("answer")
    if kind == "error":
        error = response.error
        raise from_status(error.code, error.message, error.details)
    if kind != name:
        raise ServerError(f"reply: must be to {name}; got one to {kind}")
    return only(getattr(response, name))


def check_in_flight(limit: int) -> int:
    """The limit, if it is one.

    Raises:
        InvalidRequest: nothing could ever be sent.
    """
    if limit < 1:
        raise InvalidRequest(f"in_flight: must be at least 1; got {limit}", field="in_flight")
    return limit


def unanswered(limit_s: float | None) -> DeadlineExceeded:
    """The error of a request that was not answered in time."""
    message = f"stream: must answer within {limit_s} s; got no answer"
    return DeadlineExceeded(message, code="DEADLINE_EXCEEDED")
