"""What travels between the API process and the engine.

A batch is rows of one operator, one n and one dtype. Its arrays lie in a slot of
shared memory, laid out by `Layout`; the header that rings the bell is JSON.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["relaxation", "design"]
Array = NDArray[Any]
_ALIGNMENT = 64


@dataclass(frozen=True)
class Layout:
    """Where the arrays of a batch lie in its slot, in bytes from its start.

    k and tau are float64 and seeds (of the item) uint64, one a row; the scores follow,
    and then the result: soft rows in the dtype of the scores, or masks of ceil(n / 8) bytes a row.
    """

    kind: Kind
    rows: int
    n: int
    dtype: str

    @property
    def k(self) -> int:
        return 0

    @property
    def tau(self) -> int:
        return _aligned(8 * self.rows)

    @property
    def seeds(self) -> int:
        return self.tau + _aligned(8 * self.rows)

    @property
    def scores(self) -> int:
        return self.seeds + _aligned(8 * self.rows)

    @property
    def result(self) -> int:
        return self.scores + _aligned(self.rows * self.n * np.dtype(self.dtype).itemsize)

    @property
    def result_row(self) -> int:
        """The bytes of one row of the result."""
        if self.kind == "design":
            return -(-self.n // 8)
        return self.n * np.dtype(self.dtype).itemsize

    @property
    def size(self) -> int:
        return self.result + _aligned(self.rows * self.result_row)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


@dataclass(frozen=True)
class BatchRequest:
    """To the engine: apply `operator` to the rows in `slot`. `items` are their row counts."""

    id: int
    slot: int
    kind: Kind
    operator: str
    rows: int
    n: int
    dtype: str
    items: Sequence[int]
    # the slot's memory is new, and its descriptor comes with this message
    new_memory: int = 0

    @property
    def layout(self) -> Layout:
        return Layout(self.kind, self.rows, self.n, self.dtype)

    @property
    def slices(self) -> list[slice]:
        """The rows of each item."""
        ends = list(accumulate(self.items, initial=0))
        return [slice(*pair) for pair in pairwise(ends)]


@dataclass(frozen=True)
class BatchResult:
    """From the engine: the result is in the slot. An item that was refused has its message."""

    id: int
    compute_s: float
    refusals: dict[str, str] = field(default_factory=dict)
    # root-finding iterations -> rows, and how many of these rows needed bisection
    iterations: dict[str, int] = field(default_factory=dict)
    fallback_rows: int = 0


@dataclass(frozen=True)
class OperatorInfo:
    """A row of the engine's registry."""

    name: str
    kind: str
    summary: str
    reference: str
    properties: dict[str, str]


@dataclass(frozen=True)
class Hello:
    """The engine's first message: what it has and where it runs."""

    operators: list[OperatorInfo]
    device: str
    pid: int


_TYPES: dict[str, type[Any]] = {
    type_.__name__: type_ for type_ in (BatchRequest, BatchResult, Hello)
}

Message = BatchRequest | BatchResult | Hello


def encode(message: Message) -> bytes:
    """The message as one frame: its length in four bytes, then JSON."""
    body = json.dumps([type(message).__name__, asdict(message)]).encode()
    return len(body).to_bytes(4, "little") + body


def decode(body: bytes) -> Message:
    """The message of a frame without its length."""
    name, fields = json.loads(body)
    if name == "Hello":
        fields["operators"] = [OperatorInfo(**row) for row in fields["operators"]]
    message: Message = _TYPES[name](**fields)
    return message
