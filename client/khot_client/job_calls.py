"""The calls of JobService and ArtifactService, as data."""

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.duration_pb2 import Duration

from khot_client import job_messages as messages
from khot_client.calls import Call
from khot_client.job_values import Artifact, Attempt, Event, GroupStatus, JobStatus, Series
from khot_client.messages import invalid
from khot_client.specs import Spec
from khot_proto.v1 import artifact_service_pb2 as artifact_pb
from khot_proto.v1 import job_service_pb2 as pb

PAGE = 100

Page = tuple[list[JobStatus], str]


@dataclass(frozen=True)
class Wishes:
    """How a job is to be run; no part of what it computes."""

    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    max_run_s: float | None = None

    def message(self) -> pb.JobOptions:
        """The message.

        Raises:
            InvalidRequest: a value is of the wrong type.
        """
        try:
            message = pb.JobOptions(labels=self.labels, priority=self.priority)
            if self.max_run_s is not None:
                message.max_run_time.CopyFrom(Duration(nanos=0))
                message.max_run_time.FromNanoseconds(round(self.max_run_s * 1e9))
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            must = "must be of the types they are declared with"
            raise invalid("labels, priority and max_run_s", must, error) from None
        return message


def submit(
    spec: Spec, wishes: Wishes, request_id: str | None, *, validate_only: bool = False
) -> Call[JobStatus]:
    """Store a job, or only see whether it could be."""
    request = pb.SubmitJobRequest(
        request_id=uuid.uuid4().hex if request_id is None else request_id,
        spec=messages.spec_message(spec),
        validate_only=validate_only,
        options=wishes.message(),
    )
    return Call("SubmitJob", request, _job)


def submit_group(
    spec: Spec,
    seeds: Iterable[int],
    grid: Mapping[str, Sequence[Any]],
    wishes: Wishes,
    request_id: str | None,
) -> Call[GroupStatus]:
    """Store several jobs."""
    try:
        axes = [
            pb.Axis(field=name, values=[json.dumps(value) for value in values])
            for name, values in grid.items()
        ]
        # What the jobs have in common need not be whole, as without k and penalty, but what is
        # sent must be: it is the first of them.
        first = {name: values[0] for name, values in grid.items() if values}
        request = pb.SubmitGroupRequest(
            request_id=uuid.uuid4().hex if request_id is None else request_id,
            spec=messages.spec_message(spec, first),
            seeds=seeds,
            grid=axes,
            options=wishes.message(),
        )
    except (TypeError, ValueError, KeyError) as error:
        must = "must be whole numbers, and lists of values by field"
        raise invalid("seeds and grid", must, error) from None
    return Call("SubmitGroup", request, _group)


def get(job_id: str) -> Call[JobStatus]:
    return Call("GetJob", pb.GetJobRequest(job_id=job_id), _job)


def page(
    states: Iterable[str], kind: str, labels: Mapping[str, str], group: str, token: str, size: int
) -> Call[Page]:
    """A page of jobs, and the token of the next."""
    request = pb.ListJobsRequest(
        states=[messages.state_number(state) for state in states],  # type: ignore[misc]
        kind=kind,
        labels=labels,
        group_id=group,
        page_size=size,
        page_token=token,
    )
    return Call("ListJobs", request, _page)


def watch(job_id: str, after_sequence: int) -> Call[Event]:
    request = pb.WatchJobRequest(job_id=job_id, after_sequence=after_sequence)
    return Call("WatchJob", request, lambda response: messages.event(response.event))


def cancel(job_id: str) -> Call[JobStatus]:
    return Call("CancelJob", pb.CancelJobRequest(job_id=job_id), _job)


def pause(job_id: str) -> Call[JobStatus]:
    return Call("PauseJob", pb.PauseJobRequest(job_id=job_id), _job)


def resume(job_id: str) -> Call[JobStatus]:
    return Call("ResumeJob", pb.ResumeJobRequest(job_id=job_id), _job)


def retry(job_id: str) -> Call[JobStatus]:
    return Call("RetryJob", pb.RetryJobRequest(job_id=job_id), _job)


def delete(job_id: str) -> Call[None]:
    return Call("DeleteJob", pb.DeleteJobRequest(job_id=job_id), _nothing)


def attempts(job_id: str) -> Call[list[Attempt]]:
    request = pb.ListAttemptsRequest(job_id=job_id)
    return Call(
        "ListAttempts", request, lambda response: list(map(messages.attempt, response.attempts))
    )


def metrics(job_id: str, names: Iterable[str], after_step: int) -> Call[dict[str, Series]]:
    request = pb.GetMetricsRequest(job_id=job_id, names=names, after_step=after_step)
    return Call("GetMetrics", request, messages.series)


def logs(job_id: str, attempt: int, offset: int) -> Call[pb.GetLogsResponse]:
    request = pb.GetLogsRequest(job_id=job_id, attempt=attempt, offset=offset)
    return Call("GetLogs", request, _as_it_is)


def get_group(group_id: str) -> Call[GroupStatus]:
    return Call("GetGroup", pb.GetGroupRequest(group_id=group_id), _group)


def cancel_group(group_id: str) -> Call[GroupStatus]:
    return Call("CancelGroup", pb.CancelGroupRequest(group_id=group_id), _group)


def artifacts(job_id: str) -> Call[list[Artifact]]:
    request = artifact_pb.ListArtifactsRequest(job_id=job_id)
    return Call(
        "ListArtifacts", request, lambda response: list(map(messages.artifact, response.artifacts))
    )


def download(job_id: str, name: str, offset: int) -> Call[bytes]:
    """The bytes of a file; the first answer, which describes it, has none."""
    request = artifact_pb.DownloadArtifactRequest(job_id=job_id, name=name, offset=offset)
    return Call("DownloadArtifact", request, lambda response: response.data)


def _job(response: Any) -> JobStatus:
    return messages.job_status(response.job)


def _group(response: Any) -> GroupStatus:
    return messages.group_status(response.group)


def _page(response: Any) -> Page:
    return list(map(messages.job_status, response.jobs)), response.next_page_token


def _nothing(_: Any) -> None:
    return None


def _as_it_is(response: Any) -> Any:
    return response
