"""JobService over the wire: stored once, watched without loss, refused with the field's path."""

import subprocess
import sys
import uuid

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from khot_proto.v1 import job_service_pb2 as pb


def spec(**fields) -> pb.JobSpec:
    return pb.JobSpec(
        feature_selection=pb.FeatureSelection(
            **{"dataset": "digits", "k": 10, "epochs": 1} | fields
        )
    )


def submit(server, request_id: str | None = None, **fields) -> pb.Job:
    request_id = request_id or uuid.uuid4().hex
    request = pb.SubmitJobRequest(request_id=request_id, spec=spec(**fields))
    return server.jobs.SubmitJob(request, timeout=30).job


def watched(server, job: str, after: int = 0) -> list[pb.JobEvent]:
    request = pb.WatchJobRequest(job_id=job, after_sequence=after)
    return [answer.event for answer in server.jobs.WatchJob(request, timeout=60)]


def details(error: grpc.RpcError) -> dict[str, object]:
    status = status_pb2.Status.FromString(
        dict(error.trailing_metadata())["grpc-status-details-bin"]
    )
    found = {}
    for kind in (
        error_details_pb2.ErrorInfo,
        error_details_pb2.BadRequest,
        error_details_pb2.ResourceInfo,
    ):
        for detail in status.details:
            message = kind()
            if detail.Unpack(message):
                found[kind.DESCRIPTOR.name] = message
    return found


def test_a_job_runs_to_its_result(server):
    job = submit(server, epochs=2, seed=3)
    assert job.state == pb.JOB_STATE_QUEUED and job.spec == spec(epochs=2, seed=3)
    events = watched(server, job.id)
    states = [e.state_changed.state for e in events if e.HasField("state_changed")]
    assert states == [pb.JOB_STATE_QUEUED, pb.JOB_STATE_RUNNING, pb.JOB_STATE_SUCCEEDED]
    steps = [e.progress.step for e in events if e.HasField("progress")]
    assert steps == sorted(set(steps)) and "loss" in events[2].progress.metrics
    ended = server.jobs.GetJob(pb.GetJobRequest(job_id=job.id), timeout=30).job
    result = ended.result.feature_selection
    assert ended.state == pb.JOB_STATE_SUCCEEDED and ended.attempts == 1
    assert len(set(result.features)) == 10 and len(result.scores) == 64
    assert list(result.feature_shape) == [8, 8]
    assert 0 < result.test_accuracy <= 1 and result.test_loss > 0
    assert ended.create_time.ToDatetime() <= ended.update_time.ToDatetime()


def test_the_same_seed_gives_the_same_result(server):
    jobs = [submit(server, seed=5), submit(server, seed=5), submit(server, seed=6)]
    for job in jobs:
        watched(server, job.id)
    results = [
        server.jobs.GetJob(pb.GetJobRequest(job_id=job.id), timeout=30).job.result for job in jobs
    ]
    assert results[0] == results[1] != results[2]


def test_events_come_once_and_in_order_from_any_number_on(server):
    job = submit(server)
    events = watched(server, job.id)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    for after in range(len(events) + 1):
        assert watched(server, job.id, after) == events[after:]


def test_a_watch_always_ends_with_the_end(server):
    """Also if the job ends between the reading of its events and of its state."""
    for _ in range(5):
        last = watched(server, submit(server).id)[-1]
        assert last.state_changed.state == pb.JOB_STATE_SUCCEEDED


def test_a_repeated_request_is_the_same_job(server):
    first = submit(server, "once")
    assert submit(server, "once").id == first.id
    with pytest.raises(grpc.RpcError, match="got 'once' with another spec") as caught:
        submit(server, "once", k=11)
    assert caught.value.code() == grpc.StatusCode.ALREADY_EXISTS
    assert details(caught.value)["ResourceInfo"].resource_name == "once"


@pytest.mark.parametrize("method", ["GetJob", "WatchJob"])
def test_an_unknown_job_is_not_found(server, method):
    asks = {
        "GetJob": lambda: server.jobs.GetJob(pb.GetJobRequest(job_id="nope"), timeout=30),
        "WatchJob": lambda: watched(server, "nope"),
    }
    with pytest.raises(grpc.RpcError, match="got 'nope'") as caught:
        asks[method]()
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert details(caught.value)["ResourceInfo"].resource_type == "job"


BAD = {
    "an unknown data set": ({"dataset": "cats"}, "spec.feature_selection.dataset", "got 'cats'"),
    "no data set": ({"dataset": ""}, "spec.feature_selection.dataset", "must be one of digits"),
    "k = 0": ({"k": 0}, "spec.feature_selection.k", r"must be in \[1, 63\]; got 0"),
    "k = n": ({"k": 64}, "spec.feature_selection.k", r"must be in \[1, 63\]; got 64"),
    "no epochs": ({"epochs": 0}, "spec.feature_selection.epochs", "must be in"),
    "a seed too large": ({"seed": 2**63}, "spec.feature_selection.seed", "must be in"),
}


@pytest.mark.parametrize(("fields", "field", "message"), BAD.values(), ids=BAD)
def test_a_bad_spec_is_refused_with_its_field(server, fields, field, message):
    with pytest.raises(grpc.RpcError, match=message) as caught:
        submit(server, **fields)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert details(caught.value)["BadRequest"].field_violations[0].field == field


def test_no_kind_and_no_request_id_are_refused(server):
    with pytest.raises(grpc.RpcError, match="spec.kind: must be feature_selection; got none"):
        server.jobs.SubmitJob(pb.SubmitJobRequest(request_id="x"), timeout=30)
    for request_id, length in (("", 0), ("x" * 65, 65)):
        request = pb.SubmitJobRequest(request_id=request_id, spec=spec())
        with pytest.raises(grpc.RpcError, match=f"1 to 64 characters; got {length}"):
            server.jobs.SubmitJob(request, timeout=30)


def test_a_negative_sequence_is_refused(server):
    with pytest.raises(grpc.RpcError, match="after_sequence: must not be negative; got -1"):
        watched(server, "any", -1)


def test_one_tenant_does_not_see_the_jobs_of_another(start, tmp_path):
    tokens, entries = {}, ""
    for tenant in ("a", "b"):
        command = [sys.executable, "-m", "khot_server", "new-token", "--tenant", tenant]
        made = subprocess.run(command, capture_output=True, text=True, check=True)
        tokens[tenant] = (("authorization", f"Bearer {made.stderr.strip()}"),)
        entries += made.stdout
    (tmp_path / "tokens.toml").write_text(entries)
    server = start("--tokens", str(tmp_path / "tokens.toml")).wait_until_serving()
    request = pb.SubmitJobRequest(request_id="mine", spec=spec(epochs=1000))
    ids = [
        server.jobs.SubmitJob(request, metadata=tokens[tenant], timeout=30).job.id
        for tenant in ("a", "b")
    ]
    assert ids[0] != ids[1], "request ids are each tenant's own"
    get = pb.GetJobRequest(job_id=ids[0])
    assert server.jobs.GetJob(get, metadata=tokens["a"], timeout=30).job.id == ids[0]
    with pytest.raises(grpc.RpcError) as caught:
        server.jobs.GetJob(get, metadata=tokens["b"], timeout=30)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def test_a_tenant_may_have_so_many_jobs_and_no_more(start):
    server = start("--max-tenant-jobs", "2").wait_until_serving()
    first = submit(server, "one", epochs=1000)
    submit(server, "two", epochs=1000)
    with pytest.raises(grpc.RpcError, match="may have at most 2 without an end") as caught:
        submit(server, "three")
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details(caught.value)["ErrorInfo"].reason == "QUOTA_EXCEEDED"
    assert submit(server, "one", epochs=1000).id == first.id, "a repeated request is no new job"
