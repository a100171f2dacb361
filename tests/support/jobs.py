"""Jobs over the wire, as tests ask for them."""

import uuid

import grpc
from google.rpc import error_details_pb2, status_pb2
from processes import Server

from khot_proto.v1 import job_service_pb2 as pb
from khot_proto.v1 import job_spec_pb2 as spec_pb

DETAILS = (
    error_details_pb2.ErrorInfo,
    error_details_pb2.BadRequest,
    error_details_pb2.ResourceInfo,
    error_details_pb2.PreconditionFailure,
    error_details_pb2.RetryInfo,
)


def selection(**fields) -> spec_pb.JobSpec:
    """A small feature selection; None leaves a field out."""
    small = {"dataset": "digits", "k": 10, "epochs": 1, "references": False} | fields
    given = {name: value for name, value in small.items() if value is not None}
    return spec_pb.JobSpec(feature_selection=spec_pb.FeatureSelection(**given))


def vae(**fields) -> spec_pb.JobSpec:
    """A small VAE."""
    small = {"dataset": "digits", "latents": 2, "n": 6, "k": 2, "epochs": 1} | fields
    spec = spec_pb.Vae(**small)
    for layers in (spec.encoder, spec.decoder):
        layers.widths.append(16)
    return spec_pb.JobSpec(vae=spec)


def regression(**fields) -> spec_pb.JobSpec:
    """A sparse regression on the equation of Kuramoto and Sivashinsky."""
    spec = {"dataset": "kuramoto-sivashinsky", "k": 3, "intercept": False} | fields
    return spec_pb.JobSpec(sparse_regression=spec_pb.SparseRegression(**spec))


def submit(
    server: Server, spec: spec_pb.JobSpec, request_id: str | None = None, **options
) -> pb.Job:
    request = pb.SubmitJobRequest(
        request_id=request_id or uuid.uuid4().hex, spec=spec, options=pb.JobOptions(**options)
    )
    return server.jobs.SubmitJob(request, timeout=30).job


def get(server: Server, job_id: str) -> pb.Job:
    return server.jobs.GetJob(pb.GetJobRequest(job_id=job_id), timeout=30).job


def state(server: Server, job_id: str) -> str:
    return pb.JobState.Name(get(server, job_id).state).removeprefix("JOB_STATE_")


def watched(
    server: Server, job_id: str, after: int = 0, *, timeout_s: float = 100
) -> list[pb.JobEvent]:
    """All events of a job until it has ended."""
    request = pb.WatchJobRequest(job_id=job_id, after_sequence=after)
    return [answer.event for answer in server.jobs.WatchJob(request, timeout=timeout_s)]


def wait_for_progress(server: Server, job_id: str) -> None:
    """Return once the job trains."""
    request = pb.WatchJobRequest(job_id=job_id)
    call = server.jobs.WatchJob(request, timeout=100)
    next(answer for answer in call if answer.event.HasField("progress"))
    call.cancel()


def ended(server: Server, job_id: str, *, timeout_s: float = 100) -> pb.Job:
    """The job, once it has ended."""
    watched(server, job_id, timeout_s=timeout_s)
    return get(server, job_id)


def details(error: grpc.RpcError) -> dict[str, object]:
    """The details of a status, by the name of their kind."""
    packed = dict(error.trailing_metadata())["grpc-status-details-bin"]
    found = {}
    for detail in status_pb2.Status.FromString(packed).details:
        for kind in DETAILS:
            message = kind()
            if detail.Unpack(message):
                found[kind.DESCRIPTOR.name] = message
    return found
