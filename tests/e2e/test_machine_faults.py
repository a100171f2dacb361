"""Disks, files, locks, clocks and memory that fail: jobs recover, or say why they cannot."""

import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import grpc
import pytest
from faults import Clock, full, little_memory, small_disk
from jobs import details, ended, get, selection, state, submit, vae, wait_for_progress, watched
from processes import Server, wait_until

from khot_proto.v1 import job_service_pb2 as pb
from khot_server.jobs.store import DATABASE_NAME

# Some seconds of training, with a checkpoint every few steps.
SPEC = selection(epochs=60, patience=0)
FLAGS = ("--checkpoint-s", "0", "--job-backoff-s", "0.1", "--warm-attempts", "true")


@pytest.fixture
def start():
    started = []

    def make(state_dir, *flags, **environment):
        started.append(Server(state_dir, *FLAGS, *flags, **environment))
        return started[-1].wait_until_serving()

    yield make
    for server in started:
        server.end()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("undisturbed") / "state", *FLAGS).wait_until_serving()
    try:
        return ended(server, submit(server, SPEC).id).result
    finally:
        server.end()


def attempts(server, job_id):
    return server.jobs.ListAttempts(pb.ListAttemptsRequest(job_id=job_id), timeout=30).attempts


@pytest.mark.slow
def test_a_disk_that_is_full_for_a_while_costs_no_job(start, tmp_path, undisturbed):
    with small_disk(tmp_path / "disk", 24 << 20) as disk:
        server = start(disk / "state")
        job = submit(server, SPEC)
        wait_for_progress(server, job.id)
        with full(disk):

            def refused():
                try:
                    submit(server, SPEC)
                except grpc.RpcError as error:
                    return error
                return None

            wait_until(refused, "a submit to be refused")
            error = refused()
            assert error.code() == grpc.StatusCode.UNAVAILABLE
            assert details(error)["ErrorInfo"].reason == "STORE_UNAVAILABLE"
            assert "disk with room" in error.details()
            wait_until(lambda: server.pids().get("attempt") is None, "the attempt to fail")
        wait_until(lambda: state(server, job.id) in ("SUCCEEDED", "FAILED"), "the end", 100)
        assert get(server, job.id).result == undisturbed
        assert attempts(server, job.id)[0].outcome == "LOST"
        server.end()


def test_a_state_directory_that_cannot_be_written_is_said_at_the_start(tmp_path):
    with small_disk(tmp_path / "disk", 1 << 20, read_only=True) as disk:
        command = [sys.executable, "-m", "khot_server", "--state-dir", str(disk / "state")]
        command += ["--address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "state-dir must be a directory that can be written; got" in done.stdout + done.stderr


def test_a_damaged_checkpoint_gives_way_to_the_one_before(start, tmp_path, undisturbed):
    server = start(tmp_path / "state")
    job = submit(server, SPEC)
    wait_until(
        lambda: get(server, job.id).progress.step > 100, "enough of the training for checkpoints"
    )
    server.jobs.PauseJob(pb.PauseJobRequest(job_id=job.id), timeout=30)
    wait_until(lambda: state(server, job.id) == "PAUSED", "the pause")
    before, newest = sorted((tmp_path / "state" / "jobs" / job.id).glob("attempt-*"))
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    server.jobs.ResumeJob(pb.ResumeJobRequest(job_id=job.id), timeout=30)
    assert ended(server, job.id).result == undisturbed
    first, second = attempts(server, job.id)
    assert 0 < second.first_step < first.last_step
    assert second.first_step == int(before.stem.rpartition("-")[2])
    log = server.jobs.GetLogs(pb.GetLogsRequest(job_id=job.id, attempt=2), timeout=30).text
    assert "do not match their digest; going on from the one before" in log


def test_a_database_that_another_locks_for_a_while_is_waited_for(start, tmp_path, undisturbed):
    server = start(tmp_path / "state")
    job = submit(server, SPEC)
    wait_for_progress(server, job.id)
    other = sqlite3.connect(tmp_path / "state" / DATABASE_NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    late = server.jobs.SubmitJob.future(pb.SubmitJobRequest(request_id="late", spec=SPEC))
    with pytest.raises(grpc.FutureTimeoutError):
        late.result(timeout=1)
    other.execute("ROLLBACK")
    other.close()
    assert late.result(timeout=30).job.state == pb.JOB_STATE_QUEUED
    assert ended(server, job.id).result == undisturbed
    assert len(attempts(server, job.id)) == 1


@pytest.mark.slow
def test_a_database_that_is_locked_for_long_refuses_and_loses_nothing(start, tmp_path, undisturbed):
    server = start(tmp_path / "state")
    job = submit(server, SPEC)
    wait_for_progress(server, job.id)
    other = sqlite3.connect(tmp_path / "state" / DATABASE_NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(grpc.RpcError, match="locked by nobody for long") as caught:
        submit(server, SPEC)
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    other.execute("ROLLBACK")
    other.close()
    assert ended(server, job.id).result == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [3600, -3600])
def test_a_clock_that_is_stepped_by_an_hour_costs_no_job(start, tmp_path, undisturbed, seconds):
    clock = Clock(tmp_path / "clock")
    server = start(tmp_path / "state", **clock.environment)
    job = submit(server, SPEC)
    wait_for_progress(server, job.id)
    clock.step(seconds)
    waiting = submit(server, selection())
    assert ended(server, job.id).result == undisturbed
    events = watched(server, waiting.id)
    assert get(server, waiting.id).state == pb.JOB_STATE_SUCCEEDED
    told = events[-1].time.ToDatetime(tzinfo=UTC) - datetime.now(UTC)
    assert abs(told - timedelta(seconds=seconds)) < timedelta(minutes=5), "it was stepped"
    assert all(len(attempts(server, each.id)) <= 2 for each in (job, waiting))


@pytest.mark.slow
def test_a_job_that_the_system_ends_for_want_of_memory_fails_alone_and_says_so(tmp_path):
    with little_memory(2 << 30):
        server = Server(tmp_path / "state", *FLAGS).wait_until_serving()
        try:
            wide = vae()
            wide.vae.encoder.widths[:] = [16384, 16384]  # weights of a gibibyte, and twice for Adam
            job = ended(server, submit(server, wide).id)
            assert job.state == pb.JOB_STATE_FAILED
            assert job.failure_kind == pb.FAILURE_KIND_OUT_OF_MEMORY
            assert "must fit into the machine's memory; got an attempt killed by signal 9" in (
                job.failure_message
            )
            assert job.attempts == 1, "to try it again would end the same way"
            assert ended(server, submit(server, selection()).id).state == pb.JOB_STATE_SUCCEEDED
            assert server.is_serving("khot.v1.KHotService"), "and nobody else has paid for it"
        finally:
            server.end()
