"""Messages of the wire <-> what users of the client see: frozen, typed, with arrays.

Requests are built here, so that every way of calling shares it. What the values must
be is the server's to judge; here is refused only what could not be sent.
"""

import secrets
from collections.abc import Mapping
from datetime import UTC
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from khot_client.errors import InvalidRequest, KhotError, ServerError, from_status
from khot_client.packing import unpack
from khot_client.values import (
    Event,
    Failure,
    FailureKind,
    FeatureSelection,
    FeatureSelectionResult,
    JobState,
    JobStatus,
    Operator,
    Progress,
    Relaxed,
    RelaxItem,
    Sample,
    SampleItem,
    StateChanged,
)
from khot_proto import from_tensor, to_tensor
from khot_proto.v1 import job_service_pb2 as job_pb
from khot_proto.v1 import khot_service_pb2 as pb
from khot_proto.v1.tensor_pb2 import Tensor

Message = TypeVar("Message", pb.RelaxItem, pb.SampleItem, job_pb.FeatureSelection)


def relax_item(item: RelaxItem) -> pb.RelaxItem:
    """The message for one item.

    Raises:
        InvalidRequest: it holds what is no number.
    """
    return _build(pb.RelaxItem, _rows(item))


def sample_item(item: SampleItem) -> pb.SampleItem:
    """The message for one item, with a seed in any case, so that it may be sent again.

    Raises:
        InvalidRequest: it holds what is no number.
    """
    seed = secrets.randbits(64) if item.seed is None else item.seed
    return _build(pb.SampleItem, {**_rows(item), "seed": seed})


def spec_message(spec: FeatureSelection) -> job_pb.JobSpec:
    """The message for a job's specification.

    Raises:
        InvalidRequest: a field is of the wrong type, or no specification was given.
    """
    if not isinstance(spec, FeatureSelection):
        raise _invalid("spec", "must be a FeatureSelection", type(spec).__name__)
    message = _build(job_pb.FeatureSelection, vars(spec))
    return job_pb.JobSpec(feature_selection=message)


def relaxed(result: pb.RelaxResult) -> Relaxed | KhotError:
    """The outcome of one item."""
    if result.status.code:
        return _item_error(result.status)
    return Relaxed(from_tensor(result.soft), *_timing(result.timing))


def sample(result: pb.SampleResult) -> Sample | KhotError:
    """The outcome of one item."""
    if result.status.code:
        return _item_error(result.status)
    mask = unpack(result.mask.shape, result.mask.bits)
    return Sample(mask, result.seed, *_timing(result.timing))


def operator(row: pb.Operator) -> Operator:
    """A row of the server's registry."""
    kind = pb.OperatorKind.Name(row.kind).removeprefix("OPERATOR_KIND_").lower()
    return Operator(row.name, kind, row.summary, row.reference, dict(row.properties))


def job_status(job: job_pb.Job) -> JobStatus:
    """The job as it was when the server answered."""
    failure = None
    if job.failure_kind:
        failure = Failure(_failure_kind(job.failure_kind), job.failure_message)
    spec = job.spec.feature_selection
    return JobStatus(
        id=job.id,
        spec=FeatureSelection(
            spec.dataset,
            spec.k,
            spec.epochs if spec.HasField("epochs") else None,
            spec.seed if spec.HasField("seed") else None,
        ),
        state=_state(job.state),
        attempts=job.attempts,
        create_time=job.create_time.ToDatetime(tzinfo=UTC),
        update_time=job.update_time.ToDatetime(tzinfo=UTC),
        failure=failure,
        result=_result(job.result) if job.HasField("result") else None,
    )


def event(message: job_pb.JobEvent) -> Event:
    """An event of a known kind.

    Raises:
        ServerError: a kind that this version does not know.
    """
    time = message.time.ToDatetime(tzinfo=UTC)
    match message.WhichOneof("kind"):
        case "state_changed":
            changed = message.state_changed
            return StateChanged(message.sequence, time, _state(changed.state), changed.message)
        case "progress":
            progress = message.progress
            metrics = dict(progress.metrics)
            return Progress(message.sequence, time, progress.step, progress.total_steps, metrics)
    raise ServerError("event: must be of a kind that this client knows; got another")


def _rows(item: RelaxItem | SampleItem) -> dict[str, Any]:
    return {
        "operator": item.operator,
        "scores": _scores(item.x),
        "k": _per_row("k", item.k),
        "tau": _per_row("tau", item.tau),
    }


def _scores(x: ArrayLike) -> Tensor:
    """Floating-point numbers travel as they are, whole ones as float64."""
    try:
        array = np.asarray(x)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged, or a tensor with a gradient
        raise _invalid("x", "must be an array of numbers", str(error).rstrip(".")) from None
    if array.dtype.kind in "biu":
        array = array.astype(np.float64)
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise _invalid("x", "must be float16, float32, float64 or whole numbers", array.dtype.name)
    return to_tensor(array)


def _per_row(name: str, values: ArrayLike) -> Any:
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise _invalid(name, "must be a number, or one a row", type(values).__name__) from None
    if array.ndim > 1:
        raise _invalid(name, "must be a number, or one a row", f"shape {array.shape}")
    return np.atleast_1d(array).tolist()


def _build(message_type: type[Message], values: Mapping[str, Any]) -> Message:
    try:
        return message_type(**values)
    except (TypeError, ValueError) as error:  # not the type of the field, or out of its range
        who = message_type.DESCRIPTOR.name
        raise _invalid(who, "fields must be of the types they are declared with", error) from None


def _invalid(field: str, must: str, got: object) -> InvalidRequest:
    message = f"{field}: {must}; got {got}"
    return InvalidRequest(message, code="INVALID_ARGUMENT", field=field)


def _item_error(status: pb.ItemStatus) -> KhotError:
    return from_status(status.code, status.message, status.details)


def _timing(timing: pb.Timing) -> tuple[float, float, int]:
    return timing.queue_ns / 1e9, timing.compute_ns / 1e9, timing.batch_rows


def _state(number: job_pb.JobState) -> JobState:
    return JobState(job_pb.JobState.Name(number).removeprefix("JOB_STATE_"))


def _failure_kind(number: job_pb.FailureKind) -> FailureKind:
    return FailureKind(job_pb.FailureKind.Name(number).removeprefix("FAILURE_KIND_"))


def _result(message: job_pb.JobResult) -> FeatureSelectionResult:
    found = message.feature_selection
    features, scores = np.array(found.features, np.int64), np.array(found.scores)
    features.flags.writeable = scores.flags.writeable = False
    shape = tuple(found.feature_shape)
    return FeatureSelectionResult(features, scores, found.test_loss, found.test_accuracy, shape)
