"""Messages about jobs <-> what users of the client see."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from numpy.typing import NDArray

from khot_client.errors import ServerError
from khot_client.job_values import (
    Artifact,
    Attempt,
    Event,
    Failure,
    FailureKind,
    GroupRow,
    GroupStatus,
    JobState,
    JobStatus,
    Progress,
    Series,
    Spread,
    StateChanged,
)
from khot_client.messages import invalid
from khot_client.specs import (
    FeatureSelection,
    FeatureSelectionResult,
    Result,
    SparseRegression,
    SparseRegressionResult,
    Spec,
    Vae,
    VaeResult,
)
from khot_proto.plain import from_plain, to_plain
from khot_proto.v1 import artifact_service_pb2 as artifact_pb
from khot_proto.v1 import job_service_pb2 as pb
from khot_proto.v1 import job_spec_pb2 as spec_pb

KINDS: dict[str, type[Spec]] = {cls.kind: cls for cls in (FeatureSelection, Vae, SparseRegression)}


def spec_message(spec: Spec | object, instead: Mapping[str, Any] = {}) -> spec_pb.JobSpec:
    """The message for a job's specification.

    Args:
        spec: it.
        instead: values in place of its own; what is no field of it is left out.

    Raises:
        InvalidRequest: a field is of the wrong type, or no specification was given.
    """
    if not isinstance(spec, Spec):
        known = " or ".join(cls.__name__ for cls in KINDS.values())
        raise invalid("spec", f"must be a {known}", type(spec).__name__)
    message = spec_pb.JobSpec()
    for name, value in vars(spec).items():
        try:
            from_plain(getattr(message, spec.kind), {name: instead.get(name, value)})
        except (TypeError, ValueError) as error:
            must = "must be of the type that it is declared with, and in its range"
            raise invalid(f"{type(spec).__name__}.{name}", must, error) from None
    return message


def job_status(job: pb.Job) -> JobStatus:
    """The job as it was when the server answered.

    Raises:
        ValueError: a later version says something that this one does not know.
    """
    failure = None
    if job.failure_kind:
        failure = Failure(_failure_kind(job.failure_kind), job.failure_message)
    return JobStatus(
        id=job.id,
        spec=_spec(job.spec),
        state=_state(job.state),
        attempts=job.attempts,
        create_time=_time(job.create_time),
        update_time=_time(job.update_time),
        failure=failure,
        result=_result(job.result) if job.HasField("result") else None,
        labels=dict(sorted(job.options.labels.items())),
        priority=job.options.priority,
        max_run_s=_seconds(job.options.max_run_time) or None,
        group=job.group_id,
        progress=_progress(0, _time(job.update_time), job.progress)
        if job.HasField("progress")
        else None,
    )


def event(message: pb.JobEvent) -> Event:
    """An event of a known kind.

    Raises:
        ServerError: a kind that this version does not know.
        ValueError: a state that this version does not know.
    """
    sequence, time = message.sequence, _time(message.time)
    match message.WhichOneof("kind"):
        case "state_changed":
            changed = message.state_changed
            return StateChanged(sequence, time, _state(changed.state), changed.message)
        case "progress":
            return _progress(sequence, time, message.progress)
    raise ServerError("event: must be of a kind that this client knows; got another")


def attempt(message: pb.Attempt) -> Attempt:
    """One attempt at a job."""
    return Attempt(
        number=message.number,
        runner=message.runner,
        outcome=message.outcome,
        message=message.message,
        start_time=_time(message.start_time),
        end_time=_time(message.end_time) if message.HasField("end_time") else None,
        first_step=message.first_step,
        last_step=message.last_step,
    )


def series(response: pb.GetMetricsResponse) -> dict[str, Series]:
    """The measurements by name."""
    return {
        row.name: Series(_array(row.steps, np.int64), _array(row.values)) for row in response.series
    }


def artifact(message: artifact_pb.Artifact) -> Artifact:
    """A file that a job left."""
    return Artifact(message.name, message.size_bytes, message.sha256, message.media_type)


def group_status(group: pb.JobGroup) -> GroupStatus:
    """The group as it was when the server answered.

    Raises:
        ValueError: a later version says something that this one does not know.
    """
    return GroupStatus(
        id=group.id,
        jobs=tuple(map(job_status, group.jobs)),
        states={JobState(name): count for name, count in sorted(group.states.items())},
        rows=tuple(map(_row, group.rows)),
        create_time=_time(group.create_time),
    )


def state_number(state: str) -> int:
    """The number of a state by its name, in letters of either size.

    Raises:
        InvalidRequest: there is none of that name.
    """
    if state.upper() not in JobState.__members__:
        raise invalid("states", f"must be among {', '.join(JobState)}", repr(state))
    return pb.JobState.Value(f"JOB_STATE_{state.upper()}")


def _row(row: pb.GroupRow) -> GroupRow:
    test = {
        name: Spread(spread.mean, spread.deviation, spread.best, spread.best_job_id)
        for name, spread in sorted(row.test.items())
    }
    return GroupRow(
        values={name: json.loads(value) for name, value in sorted(row.values.items())},
        jobs=row.jobs,
        succeeded=row.succeeded,
        test=test,
        agreement=row.agreement if row.HasField("agreement") else None,
    )


def _progress(sequence: int, time: datetime, told: pb.Progress) -> Progress:
    return Progress(
        sequence,
        time,
        told.step,
        told.total_steps,
        _sorted(told.metrics),
        epoch=told.epoch,
        stage=told.stage,
        steps_per_s=told.steps_per_s,
        remaining_s=_seconds(told.remaining),
    )


def _spec(message: spec_pb.JobSpec) -> Spec:
    kind = message.WhichOneof("kind")
    if kind is None:
        raise ValueError("spec: must be of a kind that this client knows; got another")
    cls = KINDS[kind]
    known = {name: v for name, v in to_plain(getattr(message, kind)).items() if hasattr(cls, name)}
    return cls(**known)


def _result(message: spec_pb.JobResult) -> Result:
    warnings = tuple(message.warnings)
    match message.WhichOneof("kind"):
        case "feature_selection":
            found = message.feature_selection
            return FeatureSelectionResult(
                features=_array(found.features, np.int64),
                names=tuple(found.names),
                scores=_array(found.scores),
                inclusion_probabilities=_array(found.inclusion_probabilities),
                test=_sorted(found.test),
                validation=_sorted(found.validation),
                references=_references(found.references),
                stability=found.stability,
                feature_shape=tuple(found.feature_shape),
                classes=tuple(found.classes),
                epochs_run=found.epochs_run,
                warnings=warnings,
            )
        case "sparse_regression":
            model = message.sparse_regression
            return SparseRegressionResult(
                features=_array(model.features, np.int64),
                names=tuple(model.names),
                coefficients=_array(model.coefficients),
                intercept=model.intercept,
                target=model.target,
                scores=_array(model.scores),
                inclusion_probabilities=_array(model.inclusion_probabilities),
                test=_sorted(model.test),
                validation=_sorted(model.validation),
                references=_references(model.references),
                stability=model.stability,
                epochs_run=model.epochs_run,
                warnings=warnings,
            )
        case "vae":
            reached = message.vae
            return VaeResult(
                test=_sorted(reached.test),
                validation=_sorted(reached.validation),
                usage=_array(reached.usage, shape=tuple(reached.usage_shape)),
                epochs_run=reached.epochs_run,
                warnings=warnings,
            )
    raise ValueError("result: must be of a kind that this client knows; got another")


def _sorted(metrics: Mapping[str, float]) -> dict[str, float]:
    """By name: a map comes in any order."""
    return dict(sorted(metrics.items()))


def _references(references: Mapping[str, spec_pb.Metrics]) -> dict[str, dict[str, float]]:
    return {name: _sorted(metrics.values) for name, metrics in sorted(references.items())}


def _array(
    values: Sequence[Any], dtype: type[Any] = np.float64, shape: tuple[int, ...] = (-1,)
) -> NDArray[Any]:
    array = np.array(values, dtype).reshape(shape)
    array.flags.writeable = False
    return array


def _state(number: pb.JobState) -> JobState:
    return JobState(pb.JobState.Name(number).removeprefix("JOB_STATE_"))


def _failure_kind(number: pb.FailureKind) -> FailureKind:
    return FailureKind(pb.FailureKind.Name(number).removeprefix("FAILURE_KIND_"))


def _time(message: Timestamp) -> datetime:
    return message.ToDatetime(tzinfo=UTC)


def _seconds(message: Duration) -> float:
    return message.ToNanoseconds() / 1e9
