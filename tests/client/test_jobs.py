"""Jobs: a real one from submission to result, and watches over lost connections.

A connection cannot be made to break at a given event, so those tests serve the
generated JobService themselves, by a script: what each watch sends before it breaks.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import numpy as np
import pytest

from khot_client import (
    AlreadyExists,
    Client,
    DeadlineExceeded,
    FailureKind,
    FeatureSelection,
    InvalidRequest,
    JobFailed,
    JobState,
    NotFound,
    Progress,
    ServerError,
    StateChanged,
    Unavailable,
)
from khot_proto.v1 import job_service_pb2 as pb
from khot_proto.v1.job_service_pb2_grpc import JobServiceServicer, add_JobServiceServicer_to_server

SPEC = FeatureSelection(dataset="digits", k=5, epochs=2, seed=1)


def test_a_job_from_submission_to_result(client):
    job = client.submit(SPEC)
    events = list(job.watch())
    assert [event.sequence for event in events] == sorted({event.sequence for event in events})
    states = [event.state for event in events if isinstance(event, StateChanged)]
    assert states[0] is JobState.QUEUED and states[-1] is JobState.SUCCEEDED
    last = [event for event in events if isinstance(event, Progress)][-1]
    assert last.step == last.total_steps > 0 and {"loss", "test_accuracy"} <= set(last.metrics)

    result = job.wait()
    assert result.features.shape == (5,) and (np.diff(result.features) > 0).all()
    assert set(result.features) == set(np.argsort(-result.scores)[:5])
    assert result.feature_shape == (8, 8) and result.scores.shape == (64,)
    assert 0.2 < result.test_accuracy <= 1
    assert "features=int64[5], scores=float64[64]" in repr(result)

    status = client.job(job.id).status()
    assert status.state.ended and status.attempts == 1 and status.failure is None
    assert status.spec == SPEC and status.update_time >= status.create_time

    middle = events[len(events) // 2].sequence
    assert list(job.watch(middle)) == [event for event in events if event.sequence > middle]


def test_the_same_request_id_is_the_same_job(client):
    first = client.submit(SPEC, request_id="test-same")
    assert client.submit(SPEC, request_id="test-same").id == first.id
    with pytest.raises(AlreadyExists, match="Use a new request id"):
        client.submit(FeatureSelection(k=6), request_id="test-same")


def test_waiting_can_end_before_the_job(client):
    job = client.submit(FeatureSelection(epochs=1))
    with pytest.raises(DeadlineExceeded, match=f"job {job.id}: must end within 0.01 s; got no end"):
        job.wait(0.01)
    assert job.status().state in JobState


def test_an_unknown_job_is_not_found(client):
    for call in (client.job("nope").status, client.job("nope").wait):
        with pytest.raises(NotFound, match="Check the id"):
            call()
    with pytest.raises(NotFound, match="Check the id"):
        next(client.job("nope").watch())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (FeatureSelection(k=0), r"spec.feature_selection.k: must be in \[1, 63\]; got 0"),
        (FeatureSelection("mars"), "must be one of digits; got 'mars'"),
        (FeatureSelection(k="ten"), "FeatureSelection: fields must be of the types"),
        (FeatureSelection(seed=-1), "FeatureSelection: fields must be of the types"),
        ("digits", "spec: must be a FeatureSelection; got str"),
    ],
)
def test_bad_specifications_are_refused(client, spec, message):
    with pytest.raises(InvalidRequest, match=message) as caught:
        client.submit(spec)
    assert caught.value.field


# from here on, a server by a script

DROP = object()


def event(sequence: int) -> pb.WatchJobResponse:
    progress = pb.Progress(step=sequence, total_steps=9, metrics={"loss": 1.0})
    return pb.WatchJobResponse(event=pb.JobEvent(sequence=sequence, progress=progress))


class Scripted(JobServiceServicer):
    """Each watch sends the next list of the script; after DROP the connection is lost."""

    def __init__(self, script: list[list[object]], job: pb.Job) -> None:
        self.script, self.job = iter(script), job
        self.asked: list[int] = []

    def WatchJob(self, request, context) -> Iterator[pb.WatchJobResponse]:  # noqa: N802
        self.asked.append(request.after_sequence)
        for step in next(self.script, [DROP]):
            if step is DROP:
                context.abort(grpc.StatusCode.UNAVAILABLE, "connection lost")
            yield event(step)

    def GetJob(self, request, context) -> pb.GetJobResponse:  # noqa: N802
        return pb.GetJobResponse(job=self.job)


@contextmanager
def scripted(*script: list[object], job: pb.Job | None = None):
    servicer = Scripted(list(script), job or pb.Job(state=pb.JOB_STATE_RUNNING))
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        add_JobServiceServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            with Client(f"127.0.0.1:{port}") as client:
                yield client.job("it"), servicer, server
        finally:
            server.stop(None).wait()


def test_a_watch_goes_on_where_the_connection_was_lost():
    with scripted([1, 2, DROP], [DROP], [3, DROP], [4, 5]) as (job, servicer, _):
        assert [event.sequence for event in job.watch()] == [1, 2, 3, 4, 5]
    assert servicer.asked == [0, 2, 2, 3]


def test_a_watch_begins_where_it_is_asked_to():
    with scripted([DROP], [8]) as (job, servicer, _):
        assert [event.sequence for event in job.watch(7)] == [8]
    assert servicer.asked == [7, 7]


def test_a_watch_gives_up_when_no_server_answers():
    with scripted([1, DROP]) as (job, _, server):
        events = job.watch(reconnect_s=0.3)
        assert next(events).sequence == 1
        server.stop(None).wait()
        with pytest.raises(Unavailable, match="must be a khot server that answers"):
            next(events)


def test_a_watch_that_is_left_ends_its_call():
    with scripted([1, 2, 3]) as (job, _, _):
        events = job.watch()
        next(events)
        events.close()
        assert list(events) == []


@pytest.mark.parametrize(
    ("job", "kind", "message"),
    [
        (
            pb.Job(
                state=pb.JOB_STATE_FAILED,
                failure_kind=pb.FAILURE_KIND_DIVERGED,
                failure_message="loss: must be finite; got nan at step 3",
            ),
            FailureKind.DIVERGED,
            "job it: loss: must be finite; got nan at step 3",
        ),
        (pb.Job(state=pb.JOB_STATE_CANCELLED), "CANCELLED", "job it: was cancelled"),
    ],
    ids=["failed", "cancelled"],
)
def test_waiting_for_a_job_without_a_result_raises(job, kind, message):
    with scripted([], job=job) as (handle, _, _):
        with pytest.raises(JobFailed, match=message) as caught:
            handle.wait()
        assert caught.value.kind == kind


@pytest.mark.parametrize("job", [pb.Job(state=77), pb.Job(state=2, failure_kind=77)], ids=str)
def test_what_a_later_version_says_is_an_error_of_ours(job):
    with scripted(job=job) as (handle, _, _), pytest.raises(ServerError, match="reply: "):
        handle.status()
