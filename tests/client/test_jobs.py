"""Jobs: a real one from submission to result, and watches over lost connections.

A connection cannot be made to break at a given event, so those tests serve the
generated JobService themselves, by a script: what each watch sends before it breaks.
"""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from uuid import uuid4

import grpc
import numpy as np
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from processes import wait_until

from khot_client import (
    AlreadyExists,
    DeadlineExceeded,
    FailureKind,
    FeatureSelection,
    InvalidRequest,
    JobFailed,
    JobState,
    NotFound,
    Progress,
    RequestError,
    ServerError,
    StateChanged,
    Unavailable,
    Vae,
    channel,
    job_calls,
)
from khot_proto.v1 import job_service_pb2 as pb
from khot_proto.v1 import job_spec_pb2 as spec_pb
from khot_proto.v1.job_service_pb2_grpc import JobServiceServicer, add_JobServiceServicer_to_server

SPEC = FeatureSelection(dataset="digits", k=5, epochs=2, seed=1, references=False)


def test_a_job_from_submission_to_result(face):
    job = face.submit(SPEC)
    events = list(job.watch())
    assert [event.sequence for event in events] == sorted({event.sequence for event in events})
    states = [event.state for event in events if isinstance(event, StateChanged)]
    assert states[0] is JobState.QUEUED and states[-1] is JobState.SUCCEEDED
    last = [event for event in events if isinstance(event, Progress)][-1]
    assert last.step == last.total_steps > 0 and {"loss", "validation_accuracy"} <= set(
        last.metrics
    )

    result = job.wait()
    assert result.features.shape == (5,) and (np.diff(result.features) > 0).all()
    assert set(result.features) == set(np.argsort(-result.scores)[:5])
    assert result.feature_shape == (8, 8) and result.scores.shape == (64,)
    assert 0.2 < result.test["accuracy"] <= 1 and result.references == {}
    assert result.inclusion_probabilities.sum() == pytest.approx(5)
    assert "features=int64[5]" in repr(result) and "scores=float64[64]" in repr(result)
    x = np.arange(128.0).reshape(2, 64)
    assert (result.transform(x) == x[:, result.features]).all()
    with pytest.raises(InvalidRequest, match="x: must have the 64 features of the job"):
        result.transform(x.T)

    status = face.job(job.id).status()
    assert status.state.ended and status.attempts == 1 and status.failure is None
    assert status.spec.k == SPEC.k and status.spec.references is False
    assert status.update_time >= status.create_time

    middle = events[len(events) // 2].sequence
    assert list(job.watch(middle)) == [event for event in events if event.sequence > middle]


def test_the_same_request_id_is_the_same_job(face):
    same = uuid4().hex
    first = face.submit(SPEC, request_id=same)
    assert face.submit(SPEC, request_id=same).id == first.id
    with pytest.raises(AlreadyExists, match="Use a new request id"):
        face.submit(FeatureSelection(k=6), request_id=same)


def test_waiting_can_end_before_the_job(face):
    job = face.submit(FeatureSelection(k=10, epochs=1))
    with pytest.raises(DeadlineExceeded, match=f"job {job.id}: must end within 0.01 s; got no end"):
        job.wait(0.01)
    assert job.status().state in JobState


def test_an_unknown_job_is_not_found(face):
    for call in (face.job("nope").status, face.job("nope").wait):
        with pytest.raises(NotFound, match="Check the id"):
            call()
    with pytest.raises(NotFound, match="Check the id"):
        next(face.job("nope").watch())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (FeatureSelection(k=0), r"spec.feature_selection.k: must be in \[1, "),
        (FeatureSelection(k=64), "spec.feature_selection.k: "),
        (FeatureSelection(), "spec.feature_selection.k: must be given, or a penalty"),
        (FeatureSelection(k="ten"), "FeatureSelection.k: must be of the type"),
        (FeatureSelection(seed=-1), "FeatureSelection.seed: must be of the type"),
        (FeatureSelection(k=1, missing="x"), "missing must be one of refuse, impute; got 'x'"),
        (Vae(prior="exact"), "spec.vae.prior: must not be exact unless the estimator is"),
        ("digits", "spec: must be a FeatureSelection or Vae or SparseRegression; got str"),
    ],
)
def test_bad_specifications_are_refused(face, spec, message):
    with pytest.raises(InvalidRequest, match=message) as caught:
        face.submit(spec)
    assert caught.value.field


def test_a_job_is_stopped_resumed_ended_tried_again_and_deleted(face):
    slow = FeatureSelection(k=5, epochs=10_000, patience=0, references=False)
    job = face.submit(slow, labels={"team": "a"}, priority=3, max_run_s=600.0)
    status = job.status()
    assert (status.labels, status.priority, status.max_run_s) == ({"team": "a"}, 3, 600.0)
    with pytest.raises(RequestError, match="must have ended.*Call wait"):
        job.result()
    begun = (event for event in job.watch() if isinstance(event, Progress))
    assert next(begun).total_steps > 0
    begun.close()
    assert job.status().progress.step > 0
    assert job.pause().state in (JobState.PAUSING, JobState.PAUSED)
    wait_until(lambda: job.status().state is JobState.PAUSED, "the job to be paused")
    assert job.resume().state in (JobState.QUEUED, JobState.RUNNING)
    assert job.cancel().state in (JobState.CANCELLING, JobState.CANCELLED)
    with pytest.raises(JobFailed, match="was cancelled"):
        job.wait()
    with pytest.raises(JobFailed, match="was cancelled"):
        job.result()
    job.retry()
    job.cancel()
    wait_until(lambda: job.status().state.ended, "the job to end")
    attempts = job.attempts()
    assert [attempt.number for attempt in attempts] == list(range(1, len(attempts) + 1))
    assert attempts[0].outcome == "STOPPED" and attempts[0].last_step > 0
    job.delete()
    with pytest.raises(NotFound, match="Check the id"):
        job.status()


def test_measurements_and_logs_of_a_job(face):
    job = face.submit(SPEC)
    text = "".join(job.logs(follow=True))
    assert job.result().features.shape == (5,)
    assert text == "".join(job.logs()) == "".join(job.logs(attempt=1))
    series = job.metrics()
    steps, values = series["loss"]
    assert (np.diff(steps) > 0).all() and np.isfinite(values).all() and len(steps) == len(values)
    assert set(job.metrics("loss")) == {"loss"} and "Series(steps=int64[" in repr(series["loss"])
    assert (job.metrics("loss", after_step=int(steps[0]))["loss"].steps > steps[0]).all()


def test_jobs_are_listed_by_what_they_are(face):
    mine = {"test": uuid4().hex}
    ids = [face.submit(SPEC, labels=mine).id for _ in range(3)]
    assert [job.id for job in face.jobs(labels=mine)] == ids[::-1], "the latest first"
    assert len(list(face.jobs(labels=mine, limit=2))) == 2
    assert list(face.jobs(labels=mine, kind="vae")) == []
    for job_id in ids:
        face.job(job_id).wait()
    done = list(face.jobs(states=["succeeded"], labels=mine))
    assert {job.id for job in done} == {*ids} and all(job.result is None for job in done)
    with pytest.raises(InvalidRequest, match="states: must be among QUEUED, .*; got 'done'"):
        list(face.jobs(states=["done"]))


def test_a_list_goes_over_pages(face, monkeypatch):
    monkeypatch.setattr(job_calls, "PAGE", 2)
    mine = {"pages": uuid4().hex}
    ids = [face.submit(SPEC, labels=mine).id for _ in range(5)]
    assert [job.id for job in face.jobs(labels=mine)] == ids[::-1]


def test_a_group_has_a_table_of_its_results(face):
    group = face.submit_group(SPEC, seeds=[1, 2], grid={"k": [3, 5]}, labels={"a": "b"})
    done = group.wait()
    assert done.ended and done.states == {JobState.SUCCEEDED: 4}
    assert [row.values for row in done.rows] == [{"k": 3}, {"k": 5}]
    spread = done.rows[1].test["accuracy"]
    assert spread.best >= spread.mean > 0 and spread.best_job in [job.id for job in done.jobs]
    assert 0 <= done.rows[0].agreement <= 1
    assert [job.id for job in group.jobs()] == [job.id for job in done.jobs]
    assert {job.id for job in face.jobs(group=group.id)} == {job.id for job in done.jobs}
    assert face.group(group.id).cancel().ended
    with pytest.raises(InvalidRequest, match="seeds and grid: must be whole numbers"):
        face.submit_group(SPEC, seeds=["one"])


@pytest.mark.parametrize(
    ("grid", "specs"),
    [
        ({"k": [3, 5]}, [(3, None), (5, None)]),
        ({"penalty": [0.5, 1.0]}, [(None, 0.5), (None, 1.0)]),
    ],
    ids=["k", "penalty"],
)
def test_a_grid_may_say_what_its_spec_does_not(face, grid, specs):
    group = face.submit_group(FeatureSelection(epochs=1, references=False), grid=grid)
    assert [(job.spec.k, job.spec.penalty) for job in group.cancel().jobs] == specs


@pytest.mark.parametrize(
    ("spec", "grid", "message"),
    [
        (FeatureSelection(), {"tau": [1.0]}, "k: must be given, or a penalty"),
        (SPEC, {"k": []}, "grid.k: must have a value; got none"),
        (SPEC, {"kk": [1]}, "grid: must be a field of feature_selection"),
        (SPEC, {"k": ["ten"]}, "FeatureSelection.k: must be of the type that it is declared with"),
        (SPEC, {"k": 3}, "seeds and grid: must be whole numbers, and lists of values by field"),
        (SPEC, {"tau": {0.5}}, "seeds and grid: must be whole numbers, and lists of values"),
        (
            "digits",
            {"k": [3]},
            "spec: must be a FeatureSelection or Vae or SparseRegression; got str",
        ),
    ],
)
def test_a_group_that_cannot_be_meant_is_refused(face, spec, grid, message):
    with pytest.raises(InvalidRequest, match=message):
        face.submit_group(spec, grid=grid)


def test_waiting_for_a_group_can_end_before_it(face):
    group = face.submit_group(FeatureSelection(k=5, epochs=10_000, patience=0), seeds=[1])
    with pytest.raises(DeadlineExceeded, match="must end within 0.05 s; got no end yet"):
        group.wait(0.05)
    group.cancel()


def test_a_spec_can_be_checked_without_a_job(face):
    mine = {"only": uuid4().hex}
    checked = face.validate(SPEC, labels=mine)
    assert checked.id == "" and checked.spec.k == 5
    assert list(face.jobs(labels=mine)) == []
    with pytest.raises(InvalidRequest, match="spec.feature_selection.k"):
        face.validate(FeatureSelection(k=0))


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"labels": {"a": 1}}, "must be of the types they are declared with"),
        ({"priority": 101}, r"options.priority: must be in \[-100, 100\]"),
        ({"max_run_s": -1.0}, "options.max_run_time: must be positive"),
        ({"max_run_s": float("nan")}, "must be of the types they are declared with"),
    ],
)
def test_bad_wishes_are_refused(face, wishes, message):
    with pytest.raises(InvalidRequest, match=message):
        face.submit(SPEC, **wishes)


def test_an_unknown_data_set_is_not_found(face):
    with pytest.raises(NotFound, match="got 'mars'"):
        face.submit(FeatureSelection("mars", k=1))


# from here on, a server by a script

DROP, HOLD = object(), object()
KNOWN = spec_pb.JobSpec(feature_selection=spec_pb.FeatureSelection(k=1))


def event(sequence: int) -> pb.WatchJobResponse:
    progress = pb.Progress(step=sequence, total_steps=9, metrics={"loss": 1.0})
    return pb.WatchJobResponse(event=pb.JobEvent(sequence=sequence, progress=progress))


class Scripted(JobServiceServicer):
    """Each watch sends the next list of the script.

    At DROP the connection is lost; at HOLD nothing happens any more.
    """

    def __init__(self, script: list[list[object]], job: pb.Job) -> None:
        self.script, self.job = iter(script), job
        self.asked: list[int] = []

    def WatchJob(self, request, context) -> Iterator[pb.WatchJobResponse]:  # noqa: N802
        self.asked.append(request.after_sequence)
        for step in next(self.script, [DROP]):
            if step is DROP:
                context.abort(grpc.StatusCode.UNAVAILABLE, "connection lost")
            if step is HOLD:
                over = threading.Event()
                context.add_callback(over.set)
                over.wait(30)
                return
            yield event(step)

    def GetJob(self, request, context) -> pb.GetJobResponse:  # noqa: N802
        return pb.GetJobResponse(job=self.job)


@pytest.fixture
def scripted(faces):
    """Serves a script, to each client in turn."""
    return lambda *script, job=None: _scripted(faces, *script, job=job)


@contextmanager
def _scripted(faces, *script: list[object], job: pb.Job | None = None):
    servicer = Scripted(list(script), job or pb.Job(spec=KNOWN, state=pb.JOB_STATE_RUNNING))
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        add_JobServiceServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield faces(f"127.0.0.1:{port}").job("it"), servicer, server
        finally:
            server.stop(None).wait()


@contextmanager
def relayed(address: str) -> Iterator[tuple[str, threading.Event]]:
    """Another way to a server, and what makes it swallow all that is sent on it."""
    swallowing = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    ends = [listener]

    def hand_on(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if not swallowing.is_set():
                    target.sendall(data)

    def accept() -> None:
        with suppress(OSError):
            while True:
                host, port = address.split(":")
                here, there = listener.accept()[0], socket.create_connection((host, int(port)))
                ends.extend((here, there))
                for pair in ((here, there), (there, here)):
                    threading.Thread(target=hand_on, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}", swallowing
    finally:
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def test_a_watch_goes_on_where_the_connection_was_lost(scripted):
    with scripted([1, 2, DROP], [DROP], [3, DROP], [4, 5]) as (job, servicer, _):
        assert [event.sequence for event in job.watch()] == [1, 2, 3, 4, 5]
    assert servicer.asked == [0, 2, 2, 3]


def test_a_watch_begins_where_it_is_asked_to(scripted):
    with scripted([DROP], [8]) as (job, servicer, _):
        assert [event.sequence for event in job.watch(7)] == [8]
    assert servicer.asked == [7, 7]


def test_a_watch_gives_up_when_no_server_answers(scripted):
    with scripted([1, DROP]) as (job, _, server):
        events = job.watch(reconnect_s=0.3)
        assert next(events).sequence == 1
        server.stop(None).wait()
        with pytest.raises(Unavailable, match="must be a khot server that answers"):
            next(events)


def test_a_watch_of_a_server_that_fell_silent_does_not_last_for_ever(faces, monkeypatch):
    """As when its machine is gone: nothing says that the connection is over."""
    monkeypatch.setattr(channel, "ASKED_AFTER_S", 0.3)
    monkeypatch.setattr(channel, "ANSWERED_WITHIN_S", 0.3)
    with (
        _scripted(faces, [1, HOLD]) as (job, _, _),
        relayed(job._connection.address) as (address, swallowing),
    ):
        events = faces(address).job("it").watch(reconnect_s=0.0)
        assert next(events).sequence == 1
        swallowing.set()
        with pytest.raises(Unavailable, match="must be a khot server that answers; got .*ping"):
            next(events)


def test_a_watch_that_is_left_ends_its_call(scripted):
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
                spec=KNOWN,
                state=pb.JOB_STATE_FAILED,
                failure_kind=pb.FAILURE_KIND_DIVERGED,
                failure_message="loss: must be finite; got nan at step 3",
            ),
            FailureKind.DIVERGED,
            "job it: loss: must be finite; got nan at step 3",
        ),
        (pb.Job(spec=KNOWN, state=pb.JOB_STATE_CANCELLED), "CANCELLED", "job it: was cancelled"),
    ],
    ids=["failed", "cancelled"],
)
def test_waiting_for_a_job_without_a_result_raises(scripted, job, kind, message):
    with scripted([], job=job) as (handle, _, _):
        with pytest.raises(JobFailed, match=message) as caught:
            handle.wait()
        assert caught.value.kind == kind


@pytest.mark.parametrize(
    "job",
    [
        pb.Job(spec=KNOWN, state=77),
        pb.Job(spec=KNOWN, state=2, failure_kind=77),
        pb.Job(state=2),
        pb.Job(spec=KNOWN, state=6, result=spec_pb.JobResult()),
        pb.Job(spec=KNOWN, state=2, create_time=Timestamp(seconds=2**60)),
    ],
    ids=["state", "failure", "spec", "result", "time"],
)
def test_what_a_later_version_says_is_an_error_of_ours(scripted, job):
    with scripted(job=job) as (handle, _, _), pytest.raises(ServerError, match="reply: "):
        handle.status()
