"""What waits for an engine: rows of one item, as bytes, and who is to be told."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from khot_server.batching.policy import INTERACTIVE
from khot_server.errors import ServiceError
from khot_server.messages import Call

Buffer = bytes | memoryview


class Item(NamedTuple):
    """One item of a request, checked as far as its form goes.

    Attributes:
        call: what is asked.
        rows: how many.
        arrays: the bytes of all its rows by the names of `Layout`, which the call has;
            those with samples are (samples, rows, ...).
        seed: of the item; its rows' seeds follow from it.
    """

    call: Call
    rows: int
    arrays: Mapping[str, Buffer]
    seed: int = 0

    def of_rows(self, name: str, first: int, rows: int) -> list[Buffer]:
        """The bytes of these rows of an array, one piece for each sample."""
        data = self.arrays[name]
        if rows == self.rows:
            return [data]
        draws = (self.call.samples or 1) if name in ("cotangent", "losses", "baseline") else 1
        view, width = memoryview(data), len(data) // (self.rows * draws)
        starts = ((draw * self.rows + first) * width for draw in range(draws))
        return [view[start : start + rows * width] for start in starts]


class Outcome(Protocol):
    """What became of an entry: what its listener is told, and can read while it is told."""

    @property
    def refusal(self) -> str | None: ...
    @property
    def algorithm(self) -> str: ...
    @property
    def roots(self) -> bool: ...
    @property
    def gradients(self) -> tuple[str, ...]: ...
    @property
    def queue_ns(self) -> int: ...
    @property
    def batch_ns(self) -> int: ...
    @property
    def compute_ns(self) -> int: ...
    @property
    def batch_rows(self) -> int: ...

    def read(self, name: str) -> memoryview:
        """The bytes of the entry's rows of an array. Valid only until the listener returns."""


Listener = Callable[["Entry", "Outcome | ServiceError"], None]


class Entry:
    """Rows of an item that wait for an engine: all of them, or a chunk.

    Attributes:
        item: whose rows they are.
        first: the index of the first row in the item.
        rows: how many.
        elements: how many scores, of all samples.
        tenant: whose limits they count against.
        priority: INTERACTIVE or BULK.
        arrival: when they came, by the batcher's clock.
        deadline: when nobody wants them any more.
        listener: is told the outcome, once; None once it has been told or has left.
    """

    __slots__ = (
        "arrival",
        "deadline",
        "elements",
        "first",
        "item",
        "listener",
        "priority",
        "rows",
        "tenant",
    )

    def __init__(
        self,
        item: Item,
        listener: Listener,
        *,
        first: int = 0,
        rows: int | None = None,
        tenant: str = "",
        priority: int = INTERACTIVE,
        arrival: float = 0.0,
        deadline: float = float("inf"),
    ) -> None:
        self.item, self.first, self.tenant, self.priority = item, first, tenant, priority
        self.rows = item.rows if rows is None else rows
        self.elements = self.rows * item.call.elements
        self.arrival, self.deadline = arrival, deadline
        self.listener: Listener | None = listener

    def tell(self, outcome: Outcome | ServiceError) -> None:
        """Tell the listener, if it still listens."""
        listener, self.listener = self.listener, None
        if listener is not None:
            listener(self, outcome)


def chunks(rows: int, call: Call, most_rows: int, most_elements: int) -> list[tuple[int, int]]:
    """(first, rows) of the pieces of an item that are small enough for a batch."""
    if rows <= most_rows and rows * call.elements <= most_elements:
        return [(0, rows)]
    each = max(1, min(most_rows, most_elements // call.elements))
    return [(first, min(each, rows - first)) for first in range(0, rows, each)]
