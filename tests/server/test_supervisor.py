"""The process tree: how it starts, what happens when X dies, and how it stops."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import grpc
import numpy as np
import pytest
import trustme
from grpc_health.v1 import health_pb2
from processes import Server, descendants, wait_until

from khot_proto import to_tensor
from khot_proto.v1 import job_service_pb2 as jobs_pb
from khot_proto.v1 import khot_service_pb2 as pb
from khot_proto.v1.job_service_pb2_grpc import JobServiceStub
from khot_proto.v1.khot_service_pb2_grpc import KHotServiceStub

PROCESSES = ("api", "engine", "runner")


def request(rows: int = 1, n: int = 10) -> pb.RelaxRequest:
    x = np.random.default_rng(0).normal(size=(rows, n)).astype(np.float32)
    return pb.RelaxRequest(
        items=[pb.RelaxItem(operator="sigmoid_topk", scores=to_tensor(x), k=[3])]
    )


def submit(server: Server, epochs: int, request_id: str = "r") -> str:
    spec = jobs_pb.JobSpec(
        feature_selection=jobs_pb.FeatureSelection(dataset="digits", k=10, epochs=epochs)
    )
    message = jobs_pb.SubmitJobRequest(request_id=request_id, spec=spec)
    return server.jobs.SubmitJob(message, timeout=30).job.id


def events(server: Server, job: str, after: int = 0):
    watch = jobs_pb.WatchJobRequest(job_id=job, after_sequence=after)
    return (answer.event for answer in server.jobs.WatchJob(watch, timeout=100))


def state(server: Server, job: str) -> str:
    got = server.jobs.GetJob(jobs_pb.GetJobRequest(job_id=job), timeout=30).job
    return jobs_pb.JobState.Name(got.state).removeprefix("JOB_STATE_")


def wait_for_progress(server: Server, job: str) -> None:
    next(event for event in events(server, job) if event.HasField("progress"))


def alive(pid: int) -> bool:
    """Whether the process runs; one that waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_serving(server: Server) -> bool:
    try:
        answer = server.health.Check(health_pb2.HealthCheckRequest(), timeout=10)
    except grpc.RpcError:
        return False
    return answer.status == health_pb2.HealthCheckResponse.SERVING


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


# starting


def test_settings_are_printed_and_the_tree_is_there(server):
    assert "khot-server: device = cpu" in server.lines
    assert set(PROCESSES) <= set(server.pids())


def test_the_api_process_has_loaded_neither_torch_nor_khot(server):
    maps = Path(f"/proc/{server.pids()['api']}/maps").read_text()
    assert "grpc" in maps and "torch" not in maps and "libkhot" not in maps
    assert "libtorch" in Path(f"/proc/{server.pids()['engine']}/maps").read_text()


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A service that is expected to end by itself."""
    free = ("--address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0")
    return subprocess.run(
        [sys.executable, "-m", "khot_server", *free, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_cannot_start_ends_the_service_with_the_reason(tmp_path):
    (tmp_path / "file").touch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        state = ("--state-dir", str(tmp_path / "state"))
        for arguments, reason in (
            ((*state, "--address", address), f"address must be a free host:port; got '{address}'"),
            ((*state, "--metrics-address", address), "metrics-address must be a free host:port"),
            (("--state-dir", str(tmp_path / "file")), "state-dir must be a directory"),
            ((*state, "--tokens", str(tmp_path / "file")), "must hold [[tokens]]"),
            ((*state, "--device", "cuda:99"), "device must be one that torch can use here; got"),
        ):
            done = started(*arguments)
            assert done.returncode == 1, reason
            assert reason in done.stderr and "Traceback" not in done.stderr


def test_bad_settings_are_said_and_nothing_starts():
    done = started("--address", "0.0.0.0:1")
    assert done.returncode == 2 and "tokens must be given" in done.stderr


# metrics


def metric(server: Server, pattern: str) -> float:
    with urllib.request.urlopen(f"{server.metrics_url}/metrics", timeout=10) as page:
        text = page.read().decode()
    found = re.search(rf"^{pattern} (\S+)$", text, re.MULTILINE)
    assert found, text
    return float(found[1])


def test_calls_and_root_finding_are_counted(server):
    before = metric(server, r'khot_requests_total\{code="OK",method="Relax"\}')
    rows = metric(server, r'khot_root_iterations_count\{source="serving"\}')
    server.khot.Relax(request(rows=7), timeout=30)
    assert metric(server, r'khot_requests_total\{code="OK",method="Relax"\}') == before + 1
    assert metric(server, r'khot_root_iterations_count\{source="serving"\}') == rows + 7
    assert metric(server, "khot_engine_up") == 1
    assert metric(server, r'khot_jobs\{state="PAUSED"\}') == 0


def test_training_reports_its_root_finding_too(server):
    job = submit(server, epochs=1, request_id="metrics")
    *_, last = events(server, job)
    assert last.state_changed.state == jobs_pb.JOB_STATE_SUCCEEDED
    count = r'khot_root_iterations_count\{source="training"\}'
    wait_until(lambda: metric(server, count) > 1000, "the tail to have read the events")
    wait_until(lambda: metric(server, r'khot_jobs\{state="SUCCEEDED"\}') >= 1, "the jobs gauge")


# what happens when X dies


@pytest.mark.parametrize("victim", [*PROCESSES, "attempt"])
def test_sigkill_of_one_process_is_survived(start, victim):
    """The service is whole again, the job goes on, and nothing is left of the dead."""
    before = shared_memory()
    server = start("--lease-s", "3", "--heartbeat-s", "0.5").wait_until_serving()
    job = submit(server, epochs=40)
    wait_for_progress(server, job)
    old = server.pids()
    os.kill(old[victim], signal.SIGKILL)
    wait_until(lambda: not alive(old[victim]), "the victim's end")
    if victim == "runner":
        wait_until(lambda: not alive(old["attempt"]), "the attempt's end")
    wait_until(lambda: set(PROCESSES) <= set(server.pids()), "all processes")
    wait_until(lambda: is_serving(server), "the service to serve again, at the same address")
    assert server.khot.Relax(request(), timeout=30).results[0].status.code == 0
    *_, last = events(server, job)
    assert last.state_changed.state == jobs_pb.JOB_STATE_SUCCEEDED
    assert shared_memory() <= before
    assert server.stop() == 0


def test_a_dead_engine_fails_only_its_own_requests(start):
    server = start().wait_until_serving()
    engine = server.pids()["engine"]
    os.kill(engine, signal.SIGSTOP)
    # two batches fill the slots of the engine that will die; the third waits for the next one
    large = [server.khot.Relax.future(request(1, 1000 + i), timeout=60) for i in range(2)]
    in_flight = r'khot_requests_in_flight\{method="Relax"\}'
    wait_until(lambda: metric(server, in_flight) == 2, "both calls")
    waiting = server.khot.Relax.future(request(1, 2000), timeout=60)
    wait_until(lambda: metric(server, "khot_queue_items") == 1, "the third call")
    os.kill(engine, signal.SIGKILL)
    for future in large:
        assert future.exception().code() == grpc.StatusCode.UNAVAILABLE
        assert "got one that died" in future.exception().details()
    assert waiting.result().results[0].status.code == 0
    assert metric(server, "khot_engine_losses_total") == 1


def test_sigkill_of_the_supervisor_leaves_no_orphan(start):
    before = shared_memory()
    server = start().wait_until_serving()
    job = submit(server, epochs=1000)
    wait_for_progress(server, job)
    pids = [pid for pid, _ in descendants(server.process.pid)]
    assert len(pids) >= 4
    server.process.kill()
    server.process.wait()
    for pid in pids:
        wait_until(lambda pid=pid: not alive(pid), f"the end of {pid}")
    assert shared_memory() <= before


def test_what_was_acknowledged_outlives_the_service(start):
    short = ("--lease-s", "1", "--heartbeat-s", "0.2")
    first = start(*short).wait_until_serving()
    job = submit(first, epochs=3)
    first.process.kill()
    first.process.wait()
    second = start(*short).wait_until_serving()
    assert submit(second, epochs=3) == job, "the same request_id is the same job"
    *_, last = events(second, job)
    assert last.state_changed.state == jobs_pb.JOB_STATE_SUCCEEDED


# stopping


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_requeues_and_exits_0(start, number):
    server = start().wait_until_serving()
    job = submit(server, epochs=1000)
    wait_for_progress(server, job)
    pids = [pid for pid, _ in descendants(server.process.pid)]
    health = server.health.Watch(health_pb2.HealthCheckRequest())
    assert next(health).status == health_pb2.HealthCheckResponse.SERVING
    seen: list[object] = []
    watcher = threading.Thread(target=watch_to_the_end, args=(server, job, seen))
    watcher.start()
    wait_until(lambda: seen, "the first event of the watch")  # so that it is in flight
    server.process.send_signal(number)
    assert next(health).status == health_pb2.HealthCheckResponse.NOT_SERVING
    health.cancel()
    watcher.join(60)
    assert seen[-1] == grpc.StatusCode.UNAVAILABLE
    assert server.process.wait(60) == 0
    assert not any(alive(pid) for pid in pids)
    again = start().wait_until_serving()
    wait_for_progress(again, job)
    got = again.jobs.GetJob(jobs_pb.GetJobRequest(job_id=job), timeout=30).job
    history = [event.state_changed.state for event in until_running_twice(again, job)]
    assert jobs_pb.JOB_STATE_QUEUED in history[1:], "requeued"
    assert got.state == jobs_pb.JOB_STATE_RUNNING


def test_callers_of_a_server_that_stops_are_told_to_go_elsewhere(start):
    """Each calls until it is refused; none sees anything but that."""
    server = start().wait_until_serving()
    ends: list[grpc.StatusCode] = []
    called = threading.Semaphore(0)

    def caller() -> None:
        with grpc.insecure_channel(server.address) as channel:
            stub = KHotServiceStub(channel)
            try:
                while True:
                    stub.Relax(request(), timeout=30)
                    called.release()
            except grpc.RpcError as error:
                ends.append(error.code())

    callers = [threading.Thread(target=caller) for _ in range(8)]
    for thread in callers:
        thread.start()
    for _ in range(100):
        assert called.acquire(timeout=30)
    server.process.send_signal(signal.SIGTERM)
    for thread in callers:
        thread.join(60)
    assert ends == [grpc.StatusCode.UNAVAILABLE] * 8
    assert server.process.wait(60) == 0


def until_running_twice(server: Server, job: str):
    running = 0
    for event in events(server, job):
        if event.HasField("state_changed"):
            yield event
            running += event.state_changed.state == jobs_pb.JOB_STATE_RUNNING
            if running == 2:
                return


def watch_to_the_end(server: Server, job: str, seen: list[object]) -> None:
    try:
        for event in events(server, job):
            seen.append(event.sequence)
    except grpc.RpcError as error:
        seen.append(error.code())


# identity and TLS


def test_tokens_and_tls(start, tmp_path):
    made = subprocess.run(
        [sys.executable, "-m", "khot_server", "new-token", "--tenant", "a", "--scope", "sample"],
        capture_output=True,
        text=True,
        check=True,
    )
    token, entry = made.stderr.strip(), made.stdout
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(entry)
    authority = trustme.CA()
    authority.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(
        tmp_path / "server.pem"
    )
    pem = str(tmp_path / "server.pem")
    server = start("--tokens", str(tokens), "--tls-cert", pem, "--tls-key", pem)
    root = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    with grpc.secure_channel(server.address, root) as channel:
        khot, jobs = KHotServiceStub(channel), JobServiceStub(channel)
        with pytest.raises(grpc.RpcError, match="must be a bearer token; got none") as caught:
            khot.Relax(request(), timeout=30)
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
        bearer = (("authorization", f"Bearer {token}"),)
        wrong = (("authorization", "Bearer khot_wrong"),)
        with pytest.raises(grpc.RpcError, match="got an unknown one"):
            khot.Relax(request(), metadata=wrong, timeout=30)
        with pytest.raises(grpc.RpcError, match="must have the scope jobs") as caught:
            jobs.GetJob(jobs_pb.GetJobRequest(job_id="x"), metadata=bearer, timeout=30)
        assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED
        with pytest.raises(grpc.RpcError, match="must have the scope jobs"):
            list(jobs.WatchJob(jobs_pb.WatchJobRequest(job_id="x"), metadata=bearer, timeout=30))

        def served() -> bool:
            try:
                return bool(khot.Relax(request(), metadata=bearer, timeout=30).results)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
                return False

        wait_until(served, "the engine")
    assert server.stop() == 0
