"""The four operations of KHotService, each a row: its item, its message, its outcome.

One item or many, on a call of their own, on a stream or with those of others: all are
made of these rows.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from khot_client import messages
from khot_client.calls import Call
from khot_client.errors import InvalidRequest, KhotError, ServerError
from khot_client.values import (
    Gradients,
    Operator,
    Relaxed,
    RelaxItem,
    Sample,
    SampleItem,
    ServerInfo,
)
from khot_proto.v1 import khot_service_pb2 as pb

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


@dataclass(frozen=True, eq=False)
class Operation(Generic[Item, Outcome]):
    """One of the four.

    Attributes:
        method: its own call.
        name: on a stream, of request and answer.
        request: its message.
        item: the message of an item.
        write: an item into a message; raises InvalidRequest.
        read: the outcome of an item; raises ValueError.
    """

    method: str
    name: str
    request: type[Any]
    item: type[Any]
    write: Callable[[Any, Item], None]
    read: Callable[[Item, Any], Outcome | KhotError]

    def one(self, item: Item, priority: str | None) -> Call[Outcome]:
        """The call for one item.

        Raises:
            InvalidRequest: it cannot be sent.
        """
        request = self.request()
        self.fill(request, item, priority)
        return Call(self.method, request, partial(self.only, item))

    def fill(self, request: Any, item: Item, priority: str | None) -> None:
        """Make an empty request ask for one item."""
        if priority is not None:
            request.priority = messages.priority_number(priority)
        self.write(request.items.add(), item)

    def only(self, item: Item, response: Any) -> Outcome:
        """The outcome of the only item of a response; raised, if it is an error."""
        results = response.results
        if len(results) != 1:
            raise ServerError(f"reply: must have 1 result; got {len(results)}")
        outcome = self.read(item, results[0])
        if isinstance(outcome, KhotError):
            raise outcome
        return outcome

    def many(
        self, items: Iterable[Item], priority: str | None
    ) -> Call[list[Outcome | KhotError]] | list[KhotError]:
        """The call for several items; or what becomes of them, if none can be sent."""
        request = self.request(priority=messages.priority_number(priority))
        asked = list(items)
        refused: dict[int, KhotError] = {}
        for index, item in enumerate(asked):
            message = request.items.add()
            try:
                self.write(message, item)
            except InvalidRequest as error:
                # An empty message takes its place, so that the server counts as the caller does.
                message.Clear()
                refused[index] = error
        if len(refused) == len(asked):
            return list(refused.values())
        return Call(self.method, request, partial(self._each, asked, refused))

    def _each(
        self, items: list[Item], refused: dict[int, KhotError], response: Any
    ) -> list[Outcome | KhotError]:
        results = response.results
        if len(results) != len(items):
            raise ServerError(f"reply: must have {len(items)} results; got {len(results)}")
        return [
            refused.get(index) or self.read(item, result)
            for index, (item, result) in enumerate(zip(items, results, strict=True))
        ]


RELAX: Operation[RelaxItem, Relaxed] = Operation(
    "Relax", "relax", pb.RelaxRequest, pb.RelaxItem, messages.write_relax_item, messages.relaxed
)
RELAX_VJP: Operation[RelaxItem, Gradients] = Operation(
    "RelaxVjp",
    "relax_vjp",
    pb.RelaxVjpRequest,
    pb.RelaxItem,
    messages.write_relax_item,
    messages.gradients,
)
SAMPLE: Operation[SampleItem, Sample] = Operation(
    "Sample", "sample", pb.SampleRequest, pb.SampleItem, messages.write_sample_item, messages.sample
)
SAMPLE_VJP: Operation[SampleItem, Gradients] = Operation(
    "SampleVjp",
    "sample_vjp",
    pb.SampleVjpRequest,
    pb.SampleItem,
    messages.write_sample_item,
    messages.gradients,
)


def list_operators() -> Call[list[Operator]]:
    """The call for the server's registry."""
    return Call("ListOperators", pb.ListOperatorsRequest(), messages.operators)


def server() -> Call[ServerInfo]:
    """What the server is."""
    return Call("ListOperators", pb.ListOperatorsRequest(), messages.server_info)
