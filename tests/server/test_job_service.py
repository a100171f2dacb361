"""JobService over the wire: stored once, watched without loss, refused with the field's path."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from jobs import details, get, regression, selection, submit, vae, wait_for_progress, watched
from jobs import ended as when_ended

from khot_proto.v1 import job_service_pb2 as pb

LONG = {"epochs": 5000, "patience": 0}  # longer than any test waits


# Submitting and watching.


def test_a_feature_selection_runs_to_its_result(server):
    asked = selection(epochs=3, seed=3, references=True)
    job = submit(server, asked)
    given = job.spec.feature_selection
    assert job.state == pb.JOB_STATE_QUEUED and (given.k, given.epochs, given.seed) == (10, 3, 3)
    events = watched(server, job.id)
    states = [e.state_changed.state for e in events if e.HasField("state_changed")]
    assert states == [pb.JOB_STATE_QUEUED, pb.JOB_STATE_RUNNING, pb.JOB_STATE_SUCCEEDED]
    told = [e.progress for e in events if e.HasField("progress")]
    steps = [progress.step for progress in told]
    assert steps == sorted(set(steps)) and steps[-1] == told[-1].total_steps
    assert told[0].stage == "selection" and told[0].epoch == 1 and "loss" in told[0].metrics
    assert {progress.stage for progress in told} > {"selection"}, "and the references"
    job = get(server, job.id)
    result = job.result.feature_selection
    assert job.state == pb.JOB_STATE_SUCCEEDED and job.attempts == 1
    assert job.progress.step == steps[-1]
    assert len(set(result.features)) == 10 and len(result.scores) == 64
    assert list(result.names) == [f"pixel_{i // 8}_{i % 8}" for i in result.features]
    assert list(result.feature_shape) == [8, 8] and list(result.classes) == list("0123456789")
    assert sum(result.inclusion_probabilities) == pytest.approx(10)
    assert 0 < result.test["accuracy"] <= 1 and result.test["loss"] > 0
    assert set(result.references) == {"all", "random"}
    assert 0 <= result.stability <= 1 and result.epochs_run <= 3
    assert any("constant" in warning for warning in job.result.warnings), "digits has such pixels"
    assert job.create_time.ToDatetime() <= job.update_time.ToDatetime()


def test_a_vae_runs_to_its_result(server):
    job = when_ended(server, submit(server, vae(estimator="simple", prior="PRIOR_EXACT")).id)
    result = job.result.vae
    assert job.state == pb.JOB_STATE_SUCCEEDED
    assert result.test["elbo"] == pytest.approx(
        -(result.test["reconstruction"] + result.test["prior"])
    )
    assert list(result.usage_shape) == [2, 6] and sum(result.usage) == pytest.approx(4, abs=1e-4)


@pytest.mark.parametrize("estimator", ["", "simple", "pi_st", "gumbel_sigmoid", "score_function"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_equation_of_kuramoto_and_sivashinsky_is_found(server, estimator, seed):
    fields = {"estimator": estimator} if estimator else {}
    job = when_ended(server, submit(server, regression(seed=seed, split_seed=seed, **fields)).id)
    assert job.state == pb.JOB_STATE_SUCCEEDED, job.failure_message
    result = job.result.sparse_regression
    assert list(result.names) == ["v_xx", "v_xxxx", "v*v_x"] and result.target == "v_t"
    assert list(result.coefficients) == pytest.approx([-1, -1, -1], rel=0.01)
    assert result.intercept == 0 and len(result.scores) == 19
    assert sum(result.inclusion_probabilities) == pytest.approx(3, abs=1e-3)
    assert result.test["rmse"] < 1e-3 and result.test["r2"] > 0.9999
    assert set(result.references) == {"all", "greedy"}
    assert result.references["greedy"].values["rmse"] > 0.1, "which greed does not find"
    assert 0 < result.stability <= 1 and result.epochs_run == 20


def test_the_same_seed_gives_the_same_result(server):
    jobs = [submit(server, selection(seed=seed)) for seed in (5, 5, 6)]
    results = [when_ended(server, job.id).result for job in jobs]
    assert results[0] == results[1] != results[2]


def test_events_come_once_and_in_order_from_any_number_on(server):
    job = submit(server, selection())
    events = watched(server, job.id)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    for after in range(len(events) + 1):
        assert watched(server, job.id, after) == events[after:]


def test_a_watch_always_ends_with_the_end(server):
    """Also if the job ends between the reading of its events and of its state."""
    for _ in range(5):
        last = watched(server, submit(server, selection()).id)[-1]
        assert last.state_changed.state == pb.JOB_STATE_SUCCEEDED


def test_a_repeated_request_is_the_same_job(server):
    first = submit(server, selection(), "once", priority=1)
    assert submit(server, selection(), "once", priority=1).id == first.id
    for spec, priority in ((selection(k=11), 1), (selection(), 2)):
        with pytest.raises(grpc.RpcError, match="got 'once' with another spec or opt") as caught:
            submit(server, spec, "once", priority=priority)
        assert caught.value.code() == grpc.StatusCode.ALREADY_EXISTS
        assert details(caught.value)["ResourceInfo"].resource_name == "once"


def test_the_same_request_fifty_times_at_once_makes_one_job(server):
    with ThreadPoolExecutor(50) as pool:
        made = list(pool.map(lambda _: submit(server, selection(), "fifty").id, range(50)))
    assert len(set(made)) == 1


def test_what_is_only_validated_is_checked_and_not_stored(server):
    def validate(spec):
        request = pb.SubmitJobRequest(spec=spec, validate_only=True)
        return server.jobs.SubmitJob(request, timeout=30).job

    before = server.jobs.ListJobs(pb.ListJobsRequest(), timeout=30).jobs
    job = validate(selection(k=3))
    assert (job.id, job.spec.feature_selection.k) == ("", 3)
    with pytest.raises(grpc.RpcError, match=r"spec.feature_selection.k: .*; got 64"):
        validate(selection(k=64))
    after = server.jobs.ListJobs(pb.ListJobsRequest(), timeout=30).jobs
    assert [j.id for j in before] == [j.id for j in after]


ASKS = {
    "GetJob": pb.GetJobRequest,
    "WatchJob": pb.WatchJobRequest,
    "CancelJob": pb.CancelJobRequest,
    "PauseJob": pb.PauseJobRequest,
    "ResumeJob": pb.ResumeJobRequest,
    "RetryJob": pb.RetryJobRequest,
    "DeleteJob": pb.DeleteJobRequest,
    "ListAttempts": pb.ListAttemptsRequest,
    "GetMetrics": pb.GetMetricsRequest,
    "GetLogs": pb.GetLogsRequest,
}


@pytest.mark.parametrize("method", ASKS)
def test_an_unknown_job_is_not_found(server, method):
    def ask():
        answer = getattr(server.jobs, method)(ASKS[method](job_id="nope"), timeout=30)
        return list(answer) if method == "WatchJob" else answer

    with pytest.raises(grpc.RpcError, match="got 'nope'") as caught:
        ask()
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert details(caught.value)["ResourceInfo"].resource_type == "job"


BAD = {
    "no data set": (selection(dataset=""), "feature_selection.dataset", "name or id of a data set"),
    "k = 0": (selection(k=0), "feature_selection.k", "must be in .*; got 0"),
    "k = n": (selection(k=64), "feature_selection.k", "; got 64"),
    "neither k nor penalty": (selection(k=None), "feature_selection.k", "got none of them"),
    "both": (selection(penalty=0.1), "feature_selection.k", "got both"),
    "an estimator": (selection(estimator="magic"), "feature_selection.estimator", "'magic'"),
    "no epochs": (selection(epochs=0), "feature_selection.epochs", "must be in"),
    "a seed too large": (selection(seed=2**63), "feature_selection.seed", "must be in"),
    "NaN": (selection(tau=float("nan")), "feature_selection.tau", "must be finite; got nan"),
    "a target": (selection(target="price"), "feature_selection.target", "got 'price'"),
    "an exact prior": (vae(prior="PRIOR_EXACT"), "vae.prior", "got exact with gumbel_sigmoid"),
    "k of a vae": (vae(k=6), "vae.k", "must be less than n = 6; got 6"),
}


@pytest.mark.parametrize(("spec", "field", "message"), BAD.values(), ids=BAD)
def test_a_bad_spec_is_refused_with_its_field(server, spec, field, message):
    with pytest.raises(grpc.RpcError, match=message) as caught:
        submit(server, spec)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert details(caught.value)["BadRequest"].field_violations[0].field == f"spec.{field}"


BAD_OPTIONS = {
    "priority": ({"priority": 101}, r"options.priority: must be in \[-100, 100\]; got 101"),
    "labels": ({"labels": {"": "x"}}, "options.labels: .*; got a longer one, or an empty key"),
    "many": ({"labels": {str(i): "" for i in range(33)}}, "options.labels: .*; got 33 labels"),
    "time": ({"max_run_time": {"seconds": -1}}, "max_run_time: must be positive; got -1 s"),
}


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_bad_options_are_refused(server, options, message):
    with pytest.raises(grpc.RpcError, match=message) as caught:
        submit(server, selection(), **options)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_an_unknown_data_set_is_not_found(server):
    with pytest.raises(grpc.RpcError, match="got 'cats'") as caught:
        submit(server, selection(dataset="cats"))
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert details(caught.value)["ResourceInfo"].resource_type == "dataset"


def test_no_kind_and_no_request_id_are_refused(server):
    with pytest.raises(grpc.RpcError, match="spec.kind: must be one of feature_selection, vae"):
        server.jobs.SubmitJob(pb.SubmitJobRequest(request_id="x"), timeout=30)
    for request_id, length in (("", 0), ("x" * 65, 65)):
        request = pb.SubmitJobRequest(request_id=request_id, spec=selection())
        with pytest.raises(grpc.RpcError, match=f"1 to 64 characters; got {length}"):
            server.jobs.SubmitJob(request, timeout=30)


def test_a_negative_sequence_is_refused(server):
    with pytest.raises(grpc.RpcError, match="after_sequence: must not be negative; got -1"):
        watched(server, "any", -1)


# Wishes about a job that runs.


def test_a_running_job_is_cancelled_at_a_checkpoint_and_tried_again_from_there(server):
    job = submit(server, selection(**LONG))
    wait_for_progress(server, job.id)
    server.jobs.CancelJob(pb.CancelJobRequest(job_id=job.id), timeout=30)
    assert when_ended(server, job.id).state == pb.JOB_STATE_CANCELLED
    again = server.jobs.RetryJob(pb.RetryJobRequest(job_id=job.id), timeout=30).job
    assert again.state == pb.JOB_STATE_QUEUED
    server.jobs.CancelJob(pb.CancelJobRequest(job_id=job.id), timeout=30)
    when_ended(server, job.id)
    attempts = server.jobs.ListAttempts(pb.ListAttemptsRequest(job_id=job.id), timeout=30).attempts
    assert attempts[0].outcome == "STOPPED" and attempts[0].last_step > 0
    if len(attempts) > 1:  # it had begun before it was cancelled again
        assert attempts[1].first_step == attempts[0].last_step


def test_a_running_job_is_paused_and_resumed_where_it_was(server):
    job = submit(server, selection(epochs=60, patience=0))
    wait_for_progress(server, job.id)
    server.jobs.PauseJob(pb.PauseJobRequest(job_id=job.id), timeout=30)
    request = pb.WatchJobRequest(job_id=job.id)
    for answer in server.jobs.WatchJob(request, timeout=60):
        if answer.event.state_changed.state == pb.JOB_STATE_PAUSED:
            break
    assert server.jobs.ResumeJob(pb.ResumeJobRequest(job_id=job.id), timeout=30).job.state in (
        pb.JOB_STATE_QUEUED,
        pb.JOB_STATE_RUNNING,
    )
    assert when_ended(server, job.id).state == pb.JOB_STATE_SUCCEEDED
    attempts = server.jobs.ListAttempts(pb.ListAttemptsRequest(job_id=job.id), timeout=30).attempts
    assert [attempt.outcome for attempt in attempts] == ["STOPPED", "SUCCEEDED"]
    assert attempts[1].first_step == attempts[0].last_step > 0
    whole = when_ended(server, submit(server, selection(epochs=60, patience=0)).id)
    assert get(server, job.id).result == whole.result, "the very bits of an undisturbed run"


def test_a_job_that_runs_too_long_has_failed(server):
    job = submit(server, selection(**LONG), max_run_time={"nanos": 300_000_000})
    job = when_ended(server, job.id)
    assert (job.state, job.failure_kind) == (pb.JOB_STATE_FAILED, pb.FAILURE_KIND_DEADLINE)
    assert "longer than it may" in job.failure_message


def test_a_wish_that_the_state_does_not_allow_is_refused(server):
    job = when_ended(server, submit(server, selection()).id)
    for method in ("CancelJob", "PauseJob", "ResumeJob", "RetryJob"):
        with pytest.raises(grpc.RpcError, match=f"job {job.id}: .*; got ") as caught:
            getattr(server.jobs, method)(ASKS[method](job_id=job.id), timeout=30)
        assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        violation = details(caught.value)["PreconditionFailure"].violations[0]
        assert violation.subject == f"jobs/{job.id}"


def test_a_deleted_job_is_gone_with_its_files(start, tmp_path):
    server = start("--warm-attempts", "true").wait_until_serving()
    job = submit(server, selection(**LONG), "mine")
    with pytest.raises(grpc.RpcError, match="to be deleted; got (QUEUED|RUNNING)"):
        server.jobs.DeleteJob(pb.DeleteJobRequest(job_id=job.id), timeout=30)
    wait_for_progress(server, job.id)
    server.jobs.CancelJob(pb.CancelJobRequest(job_id=job.id), timeout=30)
    when_ended(server, job.id)
    folder = tmp_path / "state" / "jobs" / job.id
    assert list(folder.glob("*.safetensors")), "a checkpoint was left"
    server.jobs.DeleteJob(pb.DeleteJobRequest(job_id=job.id), timeout=30)
    assert not folder.exists()
    with pytest.raises(grpc.RpcError, match="must be a job of"):
        get(server, job.id)
    assert submit(server, selection(), "mine").id != job.id


# What became of it.


def test_metrics_are_series_with_one_value_for_each_step(server):
    job = when_ended(server, submit(server, selection(epochs=3, patience=0)).id)
    found = server.jobs.GetMetrics(pb.GetMetricsRequest(job_id=job.id), timeout=30).series
    series = {each.name: each for each in found}
    loss = series["loss"]
    assert list(loss.steps) == sorted(set(loss.steps)) and len(loss.steps) == len(loss.values)
    assert loss.steps[-1] == job.progress.total_steps
    assert all(
        step - before <= 10 for before, step in zip(loss.steps, loss.steps[1:], strict=False)
    )
    assert len(series["validation_accuracy"].steps) == 3
    asked = pb.GetMetricsRequest(job_id=job.id, names=["loss"], after_step=loss.steps[2])
    (part,) = server.jobs.GetMetrics(asked, timeout=30).series
    assert list(part.steps) == list(loss.steps)[3:]


def test_the_log_of_an_attempt_is_read_from_any_offset(server):
    job = when_ended(server, submit(server, selection(epochs=2, patience=0)).id)

    def read(**asked):
        return server.jobs.GetLogs(pb.GetLogsRequest(job_id=job.id, **asked), timeout=30)

    whole = read()
    assert whole.attempt == 1 and whole.text.count("selection: epoch") == 2
    assert read(offset=whole.next_offset).text == ""
    assert read(attempt=1, offset=10).text == whole.text[10:]
    with pytest.raises(grpc.RpcError, match=r"attempt: must be in \[0, 1\].*; got 2"):
        read(attempt=2)


def test_lists_are_filtered_and_in_pages(server):
    labels = {"suite": "lists"}
    ids = [submit(server, selection(seed=i), labels=labels).id for i in range(3)]
    ids.append(submit(server, vae(), labels=labels | {"last": "yes"}).id)

    def listed(**asked):
        found, token = [], ""
        while True:
            request = pb.ListJobsRequest(page_token=token, **{"labels": labels} | asked)
            page = server.jobs.ListJobs(request, timeout=30)
            found += [job.id for job in page.jobs]
            token = page.next_page_token
            if not token:
                return found

    assert listed() == listed(page_size=1) == ids[::-1]
    assert listed(kind="vae") == listed(labels={"last": ""}) == [ids[3]]
    for job_id in ids:
        watched(server, job_id)
    assert listed(states=[pb.JOB_STATE_QUEUED]) == []
    assert listed(states=[pb.JOB_STATE_SUCCEEDED, pb.JOB_STATE_FAILED]) == ids[::-1]
    for asked, message in (
        ({"page_size": 1001}, r"page_size: must be in \[0, 1000\]; got 1001"),
        ({"page_token": "x"}, "page_token: must be one of the page before; got 'x'"),
        ({"states": [77]}, "states: must be of JobState; got 77"),
    ):
        with pytest.raises(grpc.RpcError, match=message):
            server.jobs.ListJobs(pb.ListJobsRequest(**asked), timeout=30)


# Groups.


def test_a_group_has_a_table_over_its_seeds(server):
    request = pb.SubmitGroupRequest(
        request_id="grid",
        spec=selection(),
        seeds=[1, 2],
        grid=[pb.Axis(field="k", values=["5", "20"])],
        options=pb.JobOptions(labels={"suite": "groups"}),
    )
    group = server.jobs.SubmitGroup(request, timeout=30).group
    assert server.jobs.SubmitGroup(request, timeout=30).group.id == group.id
    given = [job.spec.feature_selection for job in group.jobs]
    assert [(spec.k, spec.seed) for spec in given] == [(5, 1), (5, 2), (20, 1), (20, 2)]
    for job in group.jobs:
        watched(server, job.id)
    group = server.jobs.GetGroup(pb.GetGroupRequest(group_id=group.id), timeout=30).group
    assert dict(group.states) == {"SUCCEEDED": 4}
    assert [dict(row.values) for row in group.rows] == [{"k": "5"}, {"k": "20"}]
    row = group.rows[0]
    values = [get(server, job.id).result.feature_selection.test["loss"] for job in group.jobs[:2]]
    assert (row.jobs, row.succeeded) == (2, 2)
    assert row.test["loss"].mean == pytest.approx(sum(values) / 2)
    assert row.test["loss"].best == min(values)
    assert 0 <= row.agreement <= 1
    listed = server.jobs.ListJobs(pb.ListJobsRequest(group_id=group.id), timeout=30).jobs
    assert len(listed) == 4 and not any(job.HasField("result") for job in listed)


def test_a_group_is_cancelled_whole(server):
    request = pb.SubmitGroupRequest(request_id="c", spec=selection(**LONG), seeds=[1, 2, 3])
    group = server.jobs.SubmitGroup(request, timeout=30).group
    server.jobs.CancelGroup(pb.CancelGroupRequest(group_id=group.id), timeout=30)
    assert {when_ended(server, job.id).state for job in group.jobs} == {pb.JOB_STATE_CANCELLED}


BAD_GROUPS = {
    "field": ({"grid": [pb.Axis(field="kk", values=["1"])]}, "grid: must be a field of"),
    "twice": ({"grid": [pb.Axis(field="k", values=["1"])] * 2}, "grid: must have each field once"),
    "one of them": ({"grid": [pb.Axis(field="k", values=["5", "64"])]}, "; got 64"),
    "many": ({"seeds": range(101)}, "grid: must make at most 100 jobs; got 101"),
}


@pytest.mark.parametrize(("asked", "message"), BAD_GROUPS.values(), ids=BAD_GROUPS)
def test_a_bad_group_is_refused_whole(server, asked, message):
    before = server.jobs.ListJobs(pb.ListJobsRequest(page_size=1), timeout=30).jobs[:1]
    request = pb.SubmitGroupRequest(request_id="bad", spec=selection(), **asked)
    with pytest.raises(grpc.RpcError, match=message) as caught:
        server.jobs.SubmitGroup(request, timeout=30)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    after = server.jobs.ListJobs(pb.ListJobsRequest(page_size=1), timeout=30).jobs[:1]
    assert [job.id for job in before] == [job.id for job in after]


# Tenants.


def test_one_tenant_does_not_see_the_jobs_of_another(start, tmp_path):
    tokens, entries = {}, ""
    for tenant in ("a", "b"):
        command = [sys.executable, "-m", "khot_server", "new-token", "--tenant", tenant]
        made = subprocess.run(command, capture_output=True, text=True, check=True)
        tokens[tenant] = (("authorization", f"Bearer {made.stderr.strip()}"),)
        entries += made.stdout
    (tmp_path / "tokens.toml").write_text(entries)
    server = start("--tokens", str(tmp_path / "tokens.toml")).wait_until_serving()
    request = pb.SubmitJobRequest(request_id="mine", spec=selection(**LONG))
    ids = [
        server.jobs.SubmitJob(request, metadata=tokens[tenant], timeout=30).job.id
        for tenant in ("a", "b")
    ]
    assert ids[0] != ids[1], "request ids are each tenant's own"
    asked = pb.GetJobRequest(job_id=ids[0])
    assert server.jobs.GetJob(asked, metadata=tokens["a"], timeout=30).job.id == ids[0]
    with pytest.raises(grpc.RpcError) as caught:
        server.jobs.GetJob(asked, metadata=tokens["b"], timeout=30)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    listed = server.jobs.ListJobs(pb.ListJobsRequest(), metadata=tokens["b"], timeout=30).jobs
    assert [job.id for job in listed] == [ids[1]]


def test_a_tenant_may_have_so_many_jobs_and_no_more(start):
    server = start("--max-tenant-jobs", "2").wait_until_serving()
    first = submit(server, selection(**LONG), "one")
    submit(server, selection(**LONG), "two")
    with pytest.raises(grpc.RpcError, match="may have at most 2 without an end") as caught:
        submit(server, selection(), "three")
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details(caught.value)["ErrorInfo"].reason == "QUOTA_EXCEEDED"
    again = submit(server, selection(**LONG), "one")
    assert again.id == first.id, "a repeated request is no new job"
