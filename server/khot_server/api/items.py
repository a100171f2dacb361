"""From an item of a request to rows for the batcher: its form is checked here, its values are
the library's to judge.

An item that cannot be meant so raises InvalidArgument with the path of the field.
"""

import json
import math
import secrets
import struct
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from khot_proto.v1 import khot_service_pb2 as pb
from khot_proto.v1.tensor_pb2 import DataType, Tensor
from khot_server.batching.work import Buffer, Item
from khot_server.errors import InvalidArgument
from khot_server.messages import Call, Form, OperatorInfo

_FLOATS: dict[int, tuple[str, int]] = {
    DataType.DATA_TYPE_FLOAT16: ("float16", 2),
    DataType.DATA_TYPE_FLOAT32: ("float32", 4),
    DataType.DATA_TYPE_FLOAT64: ("float64", 8),
}
_FORMS: dict[int, Form] = {
    pb.MASK_FORMAT_UNSPECIFIED: "bits",
    pb.MASK_FORMAT_BITS: "bits",
    pb.MASK_FORMAT_INDICES: "indices",
    pb.MASK_FORMAT_DENSE: "dense",
}
_METHODS = {"relaxation": "Relax", "design": "Sample", "estimator": "Sample"}


class Asked(NamedTuple):
    """An item, and what its result needs that its rows do not.

    Attributes:
        item: for the batcher.
        dtype: of the scores, by its number on the wire.
        shape: of the scores.
        draws: num_samples as a shape: empty, or of one number.
        ranks: the same of the columns of a ranked relaxation.
        seed: of a draw; None for a relaxation.
    """

    item: Item
    dtype: int
    shape: tuple[int, ...]
    draws: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    seed: int | None = None


class Reader:
    """Reads the items of one request.

    Args:
        operators: those there are.
        views: the bytes of its tensors, if they were cut out of it.
        max_bytes: that the result of an item may have.
    """

    def __init__(
        self,
        operators: Mapping[str, OperatorInfo],
        views: Sequence[memoryview] | None,
        max_bytes: int,
    ) -> None:
        self._operators, self._views, self._max_bytes = operators, views, max_bytes

    def relax(self, field: str, item: pb.RelaxItem, *, value: bool) -> Asked:
        """An item of Relax, or, without its value, of RelaxVjp."""
        operator = self._operator(field, item.operator, ("relaxation",))
        dtype, shape, scores = self._scores(f"{field}.scores", item.scores)
        rows, n = _rows(shape), shape[-1]
        name, size = _FLOATS[dtype]
        k, arrays = _numbers(field, item, operator, rows)
        ranks = None
        if operator.ranked:
            if not (isinstance(k, float) and k.is_integer() and 0 <= k <= n):
                must = f"must be a whole number in [0, {n}] for {operator.name}"
                raise InvalidArgument(f"{field}.k", f"{field}.k: {must}; got {k}")
            ranks = int(k)
        columns = () if ranks is None else (ranks,)
        arrays["scores"] = scores
        pulled = item.HasField("cotangent")
        if pulled:
            path, wanted = f"{field}.cotangent", shape + columns
            cotangent = self._like(path, item.cotangent, dtype, wanted)
            if ranks != 0:  # else there is nothing of it in a batch
                arrays["cotangent"] = cotangent
        elif not value:
            raise InvalidArgument(
                f"{field}.cotangent", f"{field}.cotangent: must be given for RelaxVjp; got none"
            )
        call = Call(
            operator.name,
            _options(field, item, operator),
            n,
            name,
            k,
            ranks=ranks,
            form="soft" if value else None,
            pulled="cotangent" if pulled else None,
            diagnostics=item.diagnostics,
        )
        self._check_size(field, rows * n * size * (call.columns * value + pulled))
        work = Item(call, rows, arrays)
        return Asked(work, dtype, shape, ranks=columns)

    def sample(self, field: str, item: pb.SampleItem, *, value: bool) -> Asked:
        """An item of Sample, or, without its value, of SampleVjp."""
        kinds = ("design", "estimator") if value else ("estimator",)
        operator = self._operator(field, item.operator, kinds)
        dtype, shape, scores = self._scores(f"{field}.scores", item.scores)
        rows, n = _rows(shape), shape[-1]
        name, size = _FLOATS[dtype]
        k, arrays = _numbers(field, item, operator, rows)
        arrays["scores"] = scores
        samples = item.num_samples if item.HasField("num_samples") else None
        if samples is not None and not 0 < samples < 1 << 32:
            must = f"must be in [1, {(1 << 32) - 1}]"
            path = f"{field}.num_samples"
            raise InvalidArgument(path, f"{path}: {must}; got {samples}")
        draws = () if samples is None else (samples,)
        seed = item.seed if item.HasField("seed") else None
        if not value and seed is None:
            path = f"{field}.seed"
            must = "must be the one of the draw, which is made again"
            raise InvalidArgument(path, f"{path}: {must}; got none")
        options = _options(field, item, operator)
        form = self._form(field, item, operator, options)
        if item.include_pi and operator.kind != "design":
            path = f"{field}.include_pi"
            must = "must be false for an estimator, whose law has probabilities of its own"
            raise InvalidArgument(path, f"{path}: {must}; got true")
        pulled, baseline = self._pulled(field, item, operator, dtype, draws + shape, arrays)
        if pulled is None and not value:
            must = f"must have {'losses' if operator.needs_loss else 'a cotangent'} for SampleVjp"
            raise InvalidArgument(field, f"{field}: {must}; got none")
        call = Call(
            operator.name,
            options,
            n,
            name,
            k,
            samples,
            form=form if value else None,
            pi=item.include_pi,
            pulled=pulled,
            baseline=baseline,
            diagnostics=item.diagnostics,
        )
        width = size if form in ("soft", "dense") else 4 if form == "indices" else 0.125
        # without the value the draws are made all the same: at least as bits they must fit
        drawn = math.prod(draws) * n * (width if value else 0.125)
        self._check_size(field, int(rows * (drawn + n * size * (call.pi + bool(pulled)))))
        seed = secrets.randbits(64) if seed is None else seed
        work = Item(call, rows, arrays, seed)
        return Asked(work, dtype, shape, draws, (), seed)

    def _operator(self, field: str, name: str, kinds: tuple[str, ...]) -> OperatorInfo:
        found = self._operators.get(name)
        if found is not None and found.kind in kinds:
            return found
        known = [row.name for row in self._operators.values() if row.kind in kinds]
        hint = f", which is for {_METHODS[found.kind]}" if found else ""
        path = f"{field}.operator"
        raise InvalidArgument(
            path, f"{path}: must be one of {', '.join(known)}; got {name!r}{hint}"
        )

    def _scores(self, field: str, tensor: Tensor) -> tuple[int, tuple[int, ...], Buffer]:
        dtype, shape = tensor.dtype, tuple(tensor.shape)
        if dtype not in _FLOATS:
            must = "must be float16, float32 or float64"
            raise InvalidArgument(field, f"{field}: {must}; got {_dtype_name(dtype)}")
        if len(shape) not in (1, 2) or any(length < 1 for length in shape):
            must = "must have shape (n) or (rows, n), neither of them 0"
            raise InvalidArgument(field, f"{field}: {must}; got {shape}")
        return dtype, shape, self._data(field, tensor, dtype, shape)

    def _like(self, field: str, tensor: Tensor, dtype: int, shape: tuple[int, ...]) -> Buffer:
        """The bytes of a tensor that must be of this dtype and shape."""
        got = tuple(tensor.shape)
        if tensor.dtype != dtype or got != shape:
            must = f"must be {_FLOATS[dtype][0]} of shape {shape}"
            kind = _dtype_name(tensor.dtype)
            raise InvalidArgument(field, f"{field}: {must}; got {kind} of shape {got}")
        return self._data(field, tensor, dtype, shape)

    def _data(self, field: str, tensor: Tensor, dtype: int, shape: tuple[int, ...]) -> Buffer:
        data: Buffer = tensor.data  # once: every access makes a copy
        if self._views is not None:
            data = self._views[int.from_bytes(data, "little")] if data else b""
        wanted = math.prod(shape) * _FLOATS[dtype][1]
        if len(data) != wanted:
            must = f"must have {wanted} bytes of data for {_FLOATS[dtype][0]} of shape {shape}"
            raise InvalidArgument(field, f"{field}: {must}; got {len(data)}")
        return data

    def _form(self, field: str, item: pb.SampleItem, operator: OperatorInfo, options: str) -> Form:
        form = _FORMS.get(item.format)
        if form is None:
            path = f"{field}.format"
            raise InvalidArgument(path, f"{path}: must be a MaskFormat; got number {item.format}")
        hard = json.loads(options).get("hard", not operator.relaxed) if operator.relaxed else True
        return form if hard else "soft"

    def _pulled(
        self,
        field: str,
        item: pb.SampleItem,
        operator: OperatorInfo,
        dtype: int,
        shape: tuple[int, ...],
        arrays: dict[str, Buffer],
    ) -> tuple[Any, Any]:
        """What the gradients are for, and the baseline; their bytes go to the arrays."""
        given = [name for name in ("cotangent", "losses") if item.HasField(name)]
        if not given:
            return None, None
        if operator.kind != "estimator":
            path = f"{field}.{given[0]}"
            must = "must be absent for a design, which has no gradient"
            raise InvalidArgument(path, f"{path}: {must}; got {operator.name!r}")
        wanted = "losses" if operator.needs_loss else "cotangent"
        if given != [wanted]:
            must = f"must have {wanted} alone for {operator.name}"
            raise InvalidArgument(field, f"{field}: {must}; got {' and '.join(given)}")
        if wanted == "cotangent":
            path = f"{field}.cotangent"
            arrays["cotangent"] = self._like(path, item.cotangent, dtype, shape)
            return "cotangent", None
        path, losses = f"{field}.losses", item.losses
        arrays["losses"] = self._like(f"{path}.values", losses.values, dtype, shape[:-1])
        baseline = losses.WhichOneof("baseline")
        if baseline == "given":
            arrays["baseline"] = self._like(f"{path}.given", losses.given, dtype, shape[:-1])
        elif baseline == "leave_one_out" and not losses.leave_one_out:
            baseline = None
        return "losses", baseline

    def _check_size(self, field: str, size: int) -> None:
        if size > self._max_bytes:
            must = f"must have a result of at most {self._max_bytes} bytes"
            raise InvalidArgument(field, f"{field}: {must}; got one of {size}")


def _rows(shape: tuple[int, ...]) -> int:
    return shape[0] if len(shape) > 1 else 1


def _dtype_name(number: int) -> str:
    if number not in DataType.values():
        return f"number {number}"
    return DataType.Name(number).removeprefix("DATA_TYPE_").lower() if number else "none"


def _numbers(
    field: str, item: pb.RelaxItem | pb.SampleItem, operator: OperatorInfo, rows: int
) -> tuple[Any, dict[str, Buffer]]:
    """The k of the call, and the bytes of those of the rows, and of their tau."""
    arrays: dict[str, Buffer] = {}
    given: Sequence[float] = item.k
    k: Any = "rows"
    if not given and not operator.needs_k:
        k = None
        if operator.kind == "design" and item.tau:
            path = f"{field}.tau"
            must = "must be absent where the scores are probabilities, as there is no k"
            raise InvalidArgument(path, f"{path}: {must}; got one")
    else:
        packed = _per_row(f"{field}.k", given, rows)
        if operator.one_k:
            if len(set(given)) > 1:
                path = f"{field}.k"
                must = f"must be one number for all rows of {operator.name}"
                raise InvalidArgument(path, f"{path}: {must}; got several")
            k = given[0]
        else:
            arrays["k"] = packed
    arrays["tau"] = _per_row(f"{field}.tau", item.tau or (1.0,), rows)
    return k, arrays


def _per_row(field: str, values: Sequence[float], rows: int) -> bytes:
    """One float64 a row, from one, or one a row."""
    if len(values) == rows:
        return array("d", values).tobytes() if rows > 1 else struct.pack("<d", values[0])
    if len(values) != 1:
        must = f"must be one number, or one for each of {rows} rows"
        raise InvalidArgument(field, f"{field}: {must}; got {len(values)}")
    return struct.pack("<d", values[0]) * rows


def _options(field: str, item: pb.RelaxItem | pb.SampleItem, operator: OperatorInfo) -> str:
    """The options as JSON with sorted names, each of the type of its default."""
    if not item.HasField("options"):
        return "{}"
    options = {}
    for name, value in sorted(item.options.fields.items()):
        path = f"{field}.options.{name}"
        if name not in operator.options:
            known = ", ".join(operator.options) or "none"
            must = f"must be an option of {operator.name}, of which there are: {known}"
            raise InvalidArgument(path, f"{path}: {must}; got another")
        options[name] = _typed(path, value, operator.options[name])
    return json.dumps(options)


def _typed(path: str, value: Any, default: object) -> object:
    kind = value.WhichOneof("kind")
    got: Any = getattr(value, kind) if kind else None
    if isinstance(default, bool):
        good, must = kind == "bool_value", "true or false"
    elif isinstance(default, str):
        good, must = kind == "string_value", "a string"
    elif isinstance(default, int):
        good, must = kind == "number_value" and float(got).is_integer(), "a whole number"
        got = int(got) if good else got
    else:
        good, must = kind == "number_value", "a number"
    if not good:
        shown = got if kind in ("bool_value", "string_value", "number_value") else kind
        raise InvalidArgument(path, f"{path}: must be {must}; got {shown!r}")
    return got
