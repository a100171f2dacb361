"""What travels between the API process and an engine.

A batch is rows of one `Call`. Its arrays lie in a slot of shared memory, laid out by
`Layout`, which both sides compute; the header that rings the bell is a few numbers, and what
is the same for many batches as JSON, so that it is written and read once.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Form = Literal["soft", "bits", "indices", "dense"]
# As bytes, in the order of the table `items` of a batch.
ITEM_BYTES = 24
_ALIGNMENT = 64


class LinkLost(Exception):
    """The other end of a link is gone."""


class Call(NamedTuple):
    """What all rows of a batch have in common: what is asked, of which operator, in which form.

    Attributes:
        operator: by its name in the registry.
        options: its own keywords, a JSON object with sorted names.
        n: units of a row.
        dtype: of the scores and all that is like them.
        k: "rows" if each row has its own; the one number of an operator that takes no
            other; None if none was given.
        samples: draws of each row; None for one draw without that dimension.
        ranks: columns of the result for each unit; None where it has one without a dimension.
        form: of the value; None if only gradients are wanted.
        pi: whether the inclusion probabilities are wanted.
        pulled: what the gradients are for, if they are wanted.
        baseline: of the losses.
        diagnostics: whether the caller wants iterations and residuals; the engine writes them
            in any case.
    """

    operator: str
    options: str
    n: int
    dtype: str
    k: float | Literal["rows"] | None = "rows"
    samples: int | None = None
    ranks: int | None = None
    form: Form | None = "soft"
    pi: bool = False
    pulled: Literal["cotangent", "losses"] | None = None
    baseline: Literal["given", "leave_one_out"] | None = None
    diagnostics: bool = False

    @property
    def elements(self) -> int:
        """Scores of a row, of all its samples and ranks: what its work and memory grow with.

        With no rank the result is empty, but the scores are there.
        """
        return self.n * max(1, self.columns) * (self.samples or 1)

    @property
    def columns(self) -> int:
        """Values of the result for each unit."""
        return 1 if self.ranks is None else self.ranks


@lru_cache(4096)
def _row_bytes(call: Call) -> dict[str, int]:
    """The arrays of a batch in their order, with the bytes that each has for a row."""
    size, draws = np.dtype(call.dtype).itemsize, 1 if call.samples is None else call.samples
    value = size * call.n * call.columns
    widths = {
        "k": 8 if call.k == "rows" else 0,
        "tau": 8,
        "scores": size * call.n,
        "cotangent": value * draws if call.pulled == "cotangent" else 0,
        "losses": size * draws if call.pulled == "losses" else 0,
        "baseline": size * draws if call.baseline == "given" else 0,
        # from here on: what the engine writes
        "soft": value * draws if call.form == "soft" else 0,
        "bits": -(-call.n // 8) * draws if call.form == "bits" else 0,
        "counts": 4 * draws if call.form == "indices" else 0,
        "units": unit_dtype(call.n).itemsize * call.n * draws if call.form == "indices" else 0,
        "dense": value * draws if call.form == "dense" else 0,
        "pi": size * call.n if call.pi else 0,
        "gradient": size * call.n if call.pulled else 0,
        "gradient_k": 8 if call.pulled else 0,
        "gradient_tau": 8 if call.pulled else 0,
        "iterations": 4,
        "residual": 8,
    }
    return {name: width for name, width in widths.items() if width}


def unit_dtype(n: int) -> np.dtype[Any]:
    """The smallest type of the wire that can number n units."""
    return np.dtype(np.uint16 if n <= 1 << 16 else np.int32)


class Layout:
    """Where the arrays of a batch lie in its slot.

    First the table `items`, (rows, seed, index of the first row) as uint64 for each item;
    then each array of `_row_bytes`, row after row. k, tau and the gradients in them are
    float64, counts and iterations int32, units as `unit_dtype` says, residual float64, and
    the rest is of the call's dtype. The rows of an item lie together; with samples, those
    of its first draw come first: (samples, rows, n) for each item.

    Attributes:
        size: of all, in bytes.
    """

    __slots__ = ("_at", "_widths", "size")

    def __init__(self, call: Call, rows: int, items: int) -> None:
        self._widths = _row_bytes(call)
        self._at: dict[str, int] = {}
        at = _aligned(ITEM_BYTES * items)
        for name, width in self._widths.items():
            self._at[name] = at
            at = _aligned(at + width * rows)
        self.size = at

    def __contains__(self, name: str) -> bool:
        return name in self._at

    def __getitem__(self, name: str) -> tuple[int, int]:
        """Where the array begins, and the bytes of a row."""
        return self._at[name], self._widths[name]


# most batches are as small as many before them
_layout = lru_cache(4096)(Layout)


def _aligned(size: int) -> int:
    return (size + _ALIGNMENT - 1) & -_ALIGNMENT


class BatchRequest(NamedTuple):
    """To the engine: `call` for the rows in `slot`."""

    id: int
    slot: int
    rows: int
    items: int
    call: Call

    @property
    def layout(self) -> Layout:
        return _layout(self.call, self.rows, self.items)

    def encode(self) -> bytes:
        """As one frame."""
        return _frame(_REQUEST.pack(*self[:-1]) + _text(self.call))

    @classmethod
    def decode(cls, body: bytes) -> "BatchRequest":
        """From a frame without its length."""
        number, slot, rows, items = _REQUEST.unpack_from(body)
        return cls(number, slot, rows, items, _call(body[_REQUEST.size :]))


_REQUEST = struct.Struct("<QQQQ")


@lru_cache(4096)
def _text(message: tuple[Any, ...]) -> bytes:
    return json.dumps(message).encode()


@lru_cache(4096)
def _call(text: bytes) -> Call:
    return Call(*json.loads(text))


class BatchResult(NamedTuple):
    """From the engine: the result is in the slot.

    Attributes:
        id: of the request.
        compute_ns: the time that the operator took.
        fallback_rows: how many rows needed bisection.
        nonconverged_rows: of how many the residual is above the solver's tolerance.
        algorithm: what computed it.
        roots: whether there are iterations and residuals.
        gradients: which of k and tau have one.
        refusals: why items were refused, by their index in the batch.
        failure: why the whole batch failed, if it did.
    """

    id: int
    compute_ns: int
    fallback_rows: int = 0
    nonconverged_rows: int = 0
    algorithm: str = ""
    roots: bool = False
    gradients: tuple[str, ...] = ()
    refusals: Mapping[int, str] = MappingProxyType({})
    failure: str | None = None

    def encode(self) -> bytes:
        """As one frame."""
        *numbers, algorithm, roots, gradients, refusals, failure = self
        text = _text((algorithm, roots, gradients, tuple(refusals.items()), failure))
        return _frame(_RESULT.pack(*numbers) + text)

    @classmethod
    def decode(cls, body: bytes) -> "BatchResult":
        """From a frame without its length."""
        return cls(*_RESULT.unpack_from(body), *_rest_of_result(body[_RESULT.size :]))


_RESULT = struct.Struct("<QQQQ")


@lru_cache(4096)
def _rest_of_result(text: bytes) -> tuple[Any, ...]:
    algorithm, roots, gradients, refusals, failure = json.loads(text)
    return algorithm, roots, tuple(gradients), MappingProxyType(dict(refusals)), failure


@dataclass(frozen=True)
class OperatorInfo:
    """A row of the engine's registry, with what the API process must know to check items."""

    name: str
    kind: Literal["relaxation", "design", "estimator"]
    summary: str
    reference: str
    properties: Mapping[str, str]
    options: Mapping[str, bool | int | float | str]
    needs_k: bool
    one_k: bool
    ranked: bool
    needs_loss: bool
    relaxed: bool  # its draws are no masks, unless its option `hard` says so
    roots: bool = False  # whether rows may have roots to be found
    design: str | None = None  # by which it draws masks: itself, or an estimator's law


@dataclass(frozen=True)
class Hello:
    """The engine's first message: what it has and where it runs."""

    operators: tuple[OperatorInfo, ...]
    device: str
    pid: int

    def encode(self) -> bytes:
        """As one frame."""
        rows = [vars(row) for row in self.operators]
        return _frame(json.dumps([rows, self.device, self.pid]).encode())

    @classmethod
    def decode(cls, body: bytes) -> "Hello":
        """From a frame without its length."""
        rows, device, pid = json.loads(body)
        return cls(tuple(OperatorInfo(**row) for row in rows), device, pid)


def _frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "little") + body
