"""Jobs, specs and events of the store <-> the messages of job_service.proto."""

from google.protobuf.timestamp_pb2 import Timestamp

from khot_proto.v1 import job_service_pb2 as pb
from khot_server.errors import InvalidArgument
from khot_server.jobs.spec import FeatureSelectionSpec, Result, Spec, SpecError
from khot_server.jobs.store import Event, Job


def spec_from_message(message: pb.JobSpec) -> Spec:
    """The specification, checked.

    Raises:
        InvalidArgument: it names no kind, or a field is not as it must be.
    """
    if message.WhichOneof("kind") != "feature_selection":
        raise InvalidArgument("spec.kind", "spec.kind: must be feature_selection; got none")
    wanted = message.feature_selection
    optional = {name: getattr(wanted, name) for name in ("epochs", "seed") if wanted.HasField(name)}
    try:
        return FeatureSelectionSpec(wanted.dataset, wanted.k, **optional)
    except SpecError as error:
        raise InvalidArgument(f"spec.{error.field}", f"spec.{error}") from None


def job_message(job: Job) -> pb.Job:
    """The job as a caller sees it."""
    spec = pb.FeatureSelection(
        dataset=job.spec.dataset, k=job.spec.k, epochs=job.spec.epochs, seed=job.spec.seed
    )
    message = pb.Job(
        id=job.id,
        spec=pb.JobSpec(feature_selection=spec),
        state=f"JOB_STATE_{job.state}",
        failure_message=job.failure_message,
        attempts=job.attempts,
        failure_kind=f"FAILURE_KIND_{job.failure_kind or 'UNSPECIFIED'}",
    )
    message.create_time.FromDatetime(job.create_time)
    message.update_time.FromDatetime(job.update_time)
    if job.result is not None:
        message.result.CopyFrom(_result_message(job.result))
    return message


def _result_message(result: Result) -> pb.JobResult:
    return pb.JobResult(
        feature_selection=pb.FeatureSelectionResult(
            features=result.features,
            scores=result.scores,
            test_loss=result.test_loss,
            test_accuracy=result.test_accuracy,
            feature_shape=result.feature_shape,
        )
    )


def event_message(event: Event) -> pb.JobEvent:
    """The event as a watcher sees it."""
    time = Timestamp()
    time.FromDatetime(event.time)
    if event.state is not None:
        changed = pb.StateChanged(state=f"JOB_STATE_{event.state}", message=event.message)
        return pb.JobEvent(sequence=event.sequence, time=time, state_changed=changed)
    progress = pb.Progress(step=event.step, total_steps=event.total_steps, metrics=event.metrics)
    return pb.JobEvent(sequence=event.sequence, time=time, progress=progress)
