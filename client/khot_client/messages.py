"""Items of KHotService <-> what users of the client see: frozen, typed, with arrays.

Items are written here, so that every way of calling shares it. What the values must
be is the server's to judge; here is refused only what could not be sent.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct
from numpy.typing import ArrayLike, NDArray

from khot_client.errors import InvalidRequest, KhotError, from_status
from khot_client.packing import mask
from khot_client.values import (
    Diagnostics,
    Gradients,
    Operator,
    Relaxed,
    RelaxItem,
    Sample,
    SampleItem,
    ServerInfo,
)
from khot_proto import from_tensor, write_tensor
from khot_proto.v1 import khot_service_pb2 as pb

LEAVE_ONE_OUT = "leave_one_out"
_FORMATS = {
    "bits": pb.MASK_FORMAT_BITS,
    "indices": pb.MASK_FORMAT_INDICES,
    "dense": pb.MASK_FORMAT_DENSE,
}
_PRIORITIES = {"interactive": pb.PRIORITY_INTERACTIVE, "bulk": pb.PRIORITY_BULK}
# Indices have two bytes up to this n, and four above: where they are smaller than bits.
_SHORT, _SHORT_SHARE, _LONG_SHARE = 1 << 16, 16, 32


def write_relax_item(message: pb.RelaxItem, item: RelaxItem) -> None:
    """Write the item into an empty message.

    Raises:
        InvalidRequest: it holds what is no number, or not of the type of its field.
    """
    try:
        _write_rows(message, item)
    except (TypeError, ValueError) as error:
        raise _wrong_types(message, error) from None


def write_sample_item(message: pb.SampleItem, item: SampleItem) -> None:
    """The same for draws; with a seed in any case, so that it may be sent again."""
    try:
        x = _write_rows(message, item)
        seed = secrets.randbits(64) if item.seed is None else item.seed
        _set(message, "seed", "must be a whole number in [0, 2**64)", seed)
        if item.num_samples is not None:
            _set(message, "num_samples", "must be a whole number", item.num_samples)
        if item.format is None:
            message.format = _smallest(x.shape[-1] if x.ndim else 0, message.k)
        else:
            message.format = _named(_FORMATS, "format", item.format)
        if item.include_pi:
            message.include_pi = True
        if item.losses is not None:
            _write_losses(message.losses, item, x)
    except (TypeError, ValueError) as error:
        raise _wrong_types(message, error) from None


def priority_number(priority: str | None) -> pb.Priority:
    """The number of a priority by its name.

    Raises:
        InvalidRequest: there is none of that name.
    """
    return pb.PRIORITY_UNSPECIFIED if not priority else _named(_PRIORITIES, "priority", priority)


def relaxed(item: RelaxItem, result: pb.RelaxResult) -> Relaxed | KhotError:
    """The outcome of one item."""
    if result.HasField("status") and result.status.code:
        return _item_error(result.status)
    return Relaxed(
        from_tensor(result.soft),
        *_timing(result.timing),
        _gradients(item, result.gradients) if result.HasField("gradients") else None,
        _diagnostics(result.diagnostics) if result.HasField("diagnostics") else None,
        result.algorithm,
    )


def sample(item: SampleItem, result: pb.SampleResult) -> Sample | KhotError:
    """The outcome of one item."""
    if result.HasField("status") and result.status.code:
        return _item_error(result.status)
    return Sample(
        from_tensor(result.relaxed) if result.HasField("relaxed") else mask(result.mask),
        result.seed,
        *_timing(result.timing),
        from_tensor(result.pi) if result.HasField("pi") else None,
        _gradients(item, result.gradients) if result.HasField("gradients") else None,
        _diagnostics(result.diagnostics) if result.HasField("diagnostics") else None,
        result.algorithm,
    )


def gradients(
    item: RelaxItem | SampleItem, result: pb.RelaxResult | pb.SampleResult
) -> Gradients | KhotError:
    """The outcome of one item of which the gradients alone were wanted."""
    if result.HasField("status") and result.status.code:
        return _item_error(result.status)
    return _gradients(item, result.gradients)


def operators(response: pb.ListOperatorsResponse) -> list[Operator]:
    """The rows of the server's registry."""
    return [
        Operator(
            row.name,
            pb.OperatorKind.Name(row.kind).removeprefix("OPERATOR_KIND_").lower(),
            row.summary,
            row.reference,
            dict(sorted(row.properties.items())),
            _plain(row.options),
        )
        for row in response.operators
    ]


def server_info(response: pb.ListOperatorsResponse) -> ServerInfo:
    """What the server is."""
    limits = {limit.name: value for limit, value in response.limits.ListFields()}
    return ServerInfo(response.version, tuple(response.devices), limits)


def invalid(field: str, must: str, got: object) -> InvalidRequest:
    """The refusal of a part of a request."""
    message = f"{field}: {must}; got {got}"
    return InvalidRequest(message, code="INVALID_ARGUMENT", field=field)


def _write_rows(
    message: pb.RelaxItem | pb.SampleItem, item: RelaxItem | SampleItem
) -> NDArray[Any]:
    """What both kinds of items have; returns the scores."""
    _set(message, "operator", "must be a name", item.operator)
    x = _floats("x", item.x)
    write_tensor(message.scores, x)
    if item.k is not None:
        message.k.extend(_per_row("k", item.k))
    if item.tau is not None:
        message.tau.extend(_per_row("tau", item.tau))
    if item.options:
        message.options.update(dict(item.options))
    if item.g is not None:
        write_tensor(message.cotangent, _floats("g", item.g).astype(x.dtype, copy=False))
    if item.diagnostics:
        message.diagnostics = True
    return x


def _set(message: Any, field: str, must: str, value: object) -> None:
    try:
        setattr(message, field, value)
    except (TypeError, ValueError):  # of another type, or out of the field's range
        raise invalid(field, must, repr(value)) from None


def _write_losses(message: pb.Losses, item: SampleItem, x: NDArray[Any]) -> None:
    losses = _floats("losses", item.losses)
    write_tensor(message.values, losses.astype(x.dtype, copy=False))
    if isinstance(item.baseline, str):
        if item.baseline != LEAVE_ONE_OUT:
            must = f"must be {LEAVE_ONE_OUT!r}, or an array"
            raise invalid("baseline", must, repr(item.baseline))
        message.leave_one_out = True
    elif item.baseline is not None:
        baseline = np.broadcast_to(_floats("baseline", item.baseline), losses.shape)
        write_tensor(message.given, baseline.astype(x.dtype, copy=False))


def _floats(name: str, values: ArrayLike | None) -> NDArray[Any]:
    """Floating-point numbers travel as they are, whole ones as float64."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged, or a tensor with a gradient
        raise invalid(name, "must be an array of numbers", str(error).rstrip(".")) from None
    dtype = array.dtype
    if dtype.kind == "f" and dtype.itemsize <= 8:
        return array
    if dtype.kind in "biu":
        return array.astype(np.float64)
    raise invalid(name, "must be float16, float32, float64 or whole numbers", dtype.name)


def _per_row(name: str, values: Any) -> Sequence[float]:
    if isinstance(values, float | int):
        return (values,)
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise invalid(name, "must be a number, or one a row", type(values).__name__) from None
    if array.ndim > 1:
        raise invalid(name, "must be a number, or one a row", f"shape {array.shape}")
    numbers: list[float] = np.atleast_1d(array).tolist()
    return numbers


def _smallest(n: int, k: Sequence[float]) -> pb.MaskFormat:
    """How a mask takes the fewest bytes."""
    share = _SHORT_SHARE if n <= _SHORT else _LONG_SHARE
    few = len(k) > 0 and max(k) * share < n
    return pb.MASK_FORMAT_INDICES if few else pb.MASK_FORMAT_BITS


def _named(known: Mapping[str, Any], field: str, name: object) -> Any:
    if name not in known:
        raise invalid(field, f"must be one of {', '.join(known)}", repr(name))
    return known[str(name)]


def _wrong_types(message: Any, error: Exception) -> InvalidRequest:
    must = "fields must be of the types they are declared with"
    return invalid(message.DESCRIPTOR.name, must, error)


def _item_error(status: pb.ItemStatus) -> KhotError:
    return from_status(status.code, status.message, status.details)


def _timing(timing: pb.Timing) -> tuple[float, float, int]:
    return timing.queue_ns / 1e9, timing.compute_ns / 1e9, timing.batch_rows


def _gradients(item: RelaxItem | SampleItem, message: pb.Gradients) -> Gradients:
    return Gradients(
        from_tensor(message.scores), _like(item.k, message.k), _like(item.tau, message.tau)
    )


def _like(given: ArrayLike | None, rows: Sequence[float]) -> NDArray[np.float64] | None:
    """One a row, as they came; their sum where one number served all rows."""
    if not rows:
        return None
    found = np.array(rows, np.float64)
    shape = np.shape(given) if given is not None else ()
    if shape in ((), (1,)):
        found = np.array(found.sum()).reshape(shape)
    found.flags.writeable = False
    return found


def _diagnostics(message: pb.Diagnostics) -> Diagnostics:
    iterations = np.array(message.iterations, np.int32)
    residual = np.array(message.residual, np.float64)
    for array in (iterations, residual):
        array.flags.writeable = False
    return Diagnostics(iterations, residual)


def _plain(options: Struct) -> dict[str, Any]:
    values: dict[str, Any] = MessageToDict(options)
    whole = {name: int(value) for name, value in values.items() if _is_whole(value)}
    return dict(sorted((values | whole).items()))


def _is_whole(value: object) -> bool:
    """A number without a fraction: the wire has no whole ones."""
    return isinstance(value, float) and value.is_integer()
