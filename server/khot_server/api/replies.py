"""From what an engine left in shared memory to the bytes of a reply, copied once on the way.

A result is written field by field (`khot_proto.wire`): around the tensors there is little,
and the memory of the slot itself is the last part, joined with all others. Only what must
outlive its slot, the chunks of a large item and all but the last item of a request, is
copied before.
"""

from functools import lru_cache
from itertools import accumulate, pairwise

from khot_proto.v1 import khot_service_pb2 as pb
from khot_proto.v1.tensor_pb2 import DataType, Tensor
from khot_proto.wire import DATA, Buffer, field, key
from khot_server.api.items import Asked
from khot_server.batching.work import Entry, Outcome
from khot_server.errors import InvalidArgument, ServiceError, item_status
from khot_server.messages import unit_dtype

_RELAX, _SAMPLE = pb.RelaxResult, pb.SampleResult
_FORM_FIELDS = {
    "bits": pb.Mask.BITS_FIELD_NUMBER,
    "indices": pb.Mask.INDICES_FIELD_NUMBER,
    "dense": pb.Mask.DENSE_FIELD_NUMBER,
}
_DRAWN = ("soft", "bits", "dense", "counts", "units")
_UNITS = {"uint16": DataType.DATA_TYPE_UINT16, "int32": DataType.DATA_TYPE_INT32}


class ItemReply:
    """The result of one item, as its entries come back."""

    def __init__(self, path: str, asked: Asked, entries: int) -> None:
        self._path, self._asked = path, asked
        self._left = entries
        self._chunked = entries > 1
        self._chunks: dict[int, dict[str, list[Buffer]]] = {}
        self._timing = [0, 0, 0, 0]
        self._algorithm = ""
        self._refusal: str | None = None
        self._found: dict[str, list[Buffer]] = {}

    def add(self, entry: Entry, outcome: Outcome) -> bool:
        """Take what the entry found; return whether it was the last."""
        self._left -= 1
        if outcome.refusal is not None:
            self._refusal = outcome.refusal
            return not self._left
        found = {name: self._of_draws(name, outcome) for name in self._wanted(outcome)}
        if self._chunked:
            found = {name: [bytes(piece) for piece in data] for name, data in found.items()}
        self._chunks[entry.first] = self._found = found
        timing = self._timing
        if not entry.first:
            timing[0] = outcome.queue_ns
        timing[1] += outcome.batch_ns
        timing[2] += outcome.compute_ns
        timing[3] = max(timing[3], outcome.batch_rows)
        self._algorithm = outcome.algorithm
        return not self._left

    def parts(self) -> list[Buffer]:
        """The result message. Its last parts may be memory of the slot: join them at once."""
        if self._refusal is not None:
            status = item_status(InvalidArgument(self._path, f"{self._path}: {self._refusal}"))
            return field(_RELAX.STATUS_FIELD_NUMBER, [status.SerializeToString()])
        asked, call = self._asked, self._asked.item.call
        result = _RELAX if asked.seed is None else _SAMPLE
        timing = pb.Timing(
            queue_ns=self._timing[0],
            batch_ns=self._timing[1],
            compute_ns=self._timing[2],
            batch_rows=self._timing[3],
        )
        parts: list[Buffer] = [
            *field(result.TIMING_FIELD_NUMBER, [timing.SerializeToString()]),
            _algorithm_field(result.ALGORITHM_FIELD_NUMBER, self._algorithm),
        ]
        if asked.seed is not None:
            parts.append(pb.SampleResult(seed=asked.seed).SerializeToString())
        if call.pulled:
            parts += field(result.GRADIENTS_FIELD_NUMBER, self._gradients())
        if "iterations" in self._found:
            diagnostics = pb.Diagnostics(
                iterations=memoryview(self._joined("iterations")).cast("i"),
                residual=memoryview(self._joined("residual")).cast("d"),
            )
            parts += field(result.DIAGNOSTICS_FIELD_NUMBER, [diagnostics.SerializeToString()])
        if call.pi:
            parts += self._tensor(pb.SampleResult.PI_FIELD_NUMBER, "pi", asked.shape)
        return parts + self._value()

    def _value(self) -> list[Buffer]:
        asked, call = self._asked, self._asked.item.call
        shape = asked.draws + asked.shape
        if call.form is None:
            return []
        if call.form == "soft":
            if asked.seed is not None:
                return self._tensor(_SAMPLE.RELAXED_FIELD_NUMBER, "soft", shape)
            return self._tensor(_RELAX.SOFT_FIELD_NUMBER, "soft", shape + asked.ranks)
        number = _FORM_FIELDS[call.form]
        if call.form == "bits":
            form = field(number, self._in_order("bits"))
        elif call.form == "dense":
            form = self._tensor(number, "dense", shape)
        else:
            counts = memoryview(self._joined("counts")).cast("i")
            kind = _UNITS[unit_dtype(call.n).name]
            units = self._tensor(pb.Indices.UNITS_FIELD_NUMBER, "units", (sum(counts),), dtype=kind)
            head = pb.Indices(counts=counts).SerializeToString()
            form = field(number, [head, *units])
        return field(_SAMPLE.MASK_FIELD_NUMBER, [_mask_head(shape), *form])

    def _gradients(self) -> list[Buffer]:
        gradients = pb.Gradients()
        for name, values in (("gradient_k", gradients.k), ("gradient_tau", gradients.tau)):
            if name in self._found:
                values.extend(memoryview(self._joined(name)).cast("d"))
        number = pb.Gradients.SCORES_FIELD_NUMBER
        scores = self._tensor(number, "gradient", self._asked.shape)
        return [gradients.SerializeToString(), *scores]

    def _wanted(self, outcome: Outcome) -> list[str]:
        call = self._asked.item.call
        names = []
        if call.form == "indices":
            names += ["counts", "units"]
        elif call.form is not None and call.columns:
            names.append(call.form)
        if call.pi:
            names.append("pi")
        if call.pulled:
            names += ["gradient", *(f"gradient_{name}" for name in outcome.gradients)]
        if call.diagnostics and outcome.roots:
            names += ["iterations", "residual"]
        return names

    def _of_draws(self, name: str, outcome: Outcome) -> list[Buffer]:
        """A piece for each draw: those of a chunk do not lie together in the item."""
        data, call = outcome.read(name), self._asked.item.call
        draws = call.samples if self._chunked and call.samples else 1
        if name not in _DRAWN or (draws == 1 and name != "units"):
            return [data]
        if name == "units":
            counts = outcome.read("counts").cast("i")
            each, width = len(counts) // draws, unit_dtype(call.n).itemsize
            sizes = [sum(counts[i * each : (i + 1) * each]) * width for i in range(draws)]
        else:
            sizes = [len(data) // draws] * draws
        ends = list(accumulate(sizes, initial=0))
        return [data[start:end] for start, end in pairwise(ends)]

    def _in_order(self, name: str) -> list[Buffer]:
        """All pieces: draw by draw, and of each draw chunk by chunk."""
        if name not in self._found:  # of no size
            return []
        if not self._chunked:
            return self._found[name]
        chunks = [pieces[name] for _, pieces in sorted(self._chunks.items())]
        return [piece for draw in zip(*chunks, strict=True) for piece in draw]

    def _joined(self, name: str) -> bytes:
        return b"".join(self._in_order(name))

    def _tensor(
        self, number: int, name: str, shape: tuple[int, ...], dtype: int | None = None
    ) -> list[Buffer]:
        dtype = self._asked.dtype if dtype is None else dtype
        pieces = self._in_order(name)
        return [_tensor_head(number, dtype, shape, sum(map(len, pieces))), *pieces]


class RefusedReply:
    """The result of an item that was refused before it was queued."""

    def __init__(self, error: ServiceError) -> None:
        self._error = error

    def parts(self) -> list[Buffer]:
        """The result message."""
        status = item_status(self._error).SerializeToString()
        return field(_RELAX.STATUS_FIELD_NUMBER, [status])


@lru_cache(4096)
def _tensor_head(number: int, dtype: int, shape: tuple[int, ...], size: int) -> bytes:
    """All of field `number`, a tensor, before its `size` bytes of data."""
    tensor = Tensor(dtype=DataType.Name(dtype), shape=shape).SerializeToString()
    tensor += key(DATA, size)
    return key(number, len(tensor) + size) + tensor


@lru_cache(4096)
def _mask_head(shape: tuple[int, ...]) -> bytes:
    return pb.Mask(shape=shape).SerializeToString()


@lru_cache(256)
def _algorithm_field(number: int, text: str) -> bytes:
    return b"".join(field(number, [text.encode()]))


assert _RELAX.STATUS_FIELD_NUMBER == _SAMPLE.STATUS_FIELD_NUMBER
