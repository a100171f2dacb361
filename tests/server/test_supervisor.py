"""The process tree: how it starts, what happens when X dies, and how it stops."""

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import jobs
import pytest
from calls import Callers, quick, slow
from grpc_health.v1 import health_pb2
from jobs import wait_for_progress
from processes import Server, alive, descendants, wait_until

from khot_proto.v1 import job_service_pb2 as jobs_pb
from khot_server.config import Settings
from khot_server.jobs.store import DATABASE_NAME, JobStore
from khot_server.supervisor import with_ports

PROCESSES = ("api", "engine", "runner")


def submit(server: Server, epochs: int, request_id: str = "r") -> str:
    return jobs.submit(server, jobs.selection(epochs=epochs, patience=0), request_id).id


def events(server: Server, job: str, after: int = 0):
    watch = jobs_pb.WatchJobRequest(job_id=job, after_sequence=after)
    return (answer.event for answer in server.jobs.WatchJob(watch, timeout=100))


def shared_memory() -> set[str]:
    """What is there by name, but for libfaketime's, which tests that run beside this one use."""
    names = (path.name for path in Path("/dev/shm").iterdir())
    return {name for name in names if "faketime" not in name}


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


def test_a_state_of_a_later_version_ends_it_with_the_reason(tmp_path):
    JobStore(tmp_path / DATABASE_NAME).close()
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE_NAME)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    done = started("--state-dir", str(tmp_path))
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "job store: database must be of this version of khot or an older one" in done.stderr


def test_bad_settings_are_said_and_nothing_starts():
    done = started("--address", "0.0.0.0:1")
    assert done.returncode == 2 and "tokens must be given" in done.stderr


# metrics


def test_calls_and_root_finding_are_counted(server):
    before = server.metric(r'khot_requests_total\{code="OK",method="Relax"\}')
    solved = r'khot_root_iterations_count\{operator="sigmoid_topk",source="serving"\}'
    rows = server.metric(solved)
    server.khot.Relax(quick(rows=7), timeout=30)
    assert server.metric(r'khot_requests_total\{code="OK",method="Relax"\}') == before + 1
    assert server.metric(solved) == rows + 7
    assert server.metric("khot_engine_up") == 1
    assert server.metric(r'khot_jobs\{kind="vae",state="PAUSED"\}') == 0


def test_training_reports_its_root_finding_too(server):
    job = submit(server, epochs=1, request_id="metrics")
    *_, last = events(server, job)
    assert last.state_changed.state == jobs_pb.JOB_STATE_SUCCEEDED
    count = r'khot_root_iterations_count\{operator="gumbel_sigmoid",source="training"\}'
    wait_until(lambda: server.metric(count) >= 2, "the tail to have read the events")
    ended = r'khot_jobs\{kind="feature_selection",state="SUCCEEDED"\}'
    wait_until(lambda: server.metric(ended) >= 1, "the jobs gauge")


# what happens when X dies


# of the runner and the attempt without a service around them: jobs/test_runner_processes.py
@pytest.mark.parametrize(
    "victim",
    [
        "api",
        "engine",
        pytest.param("runner", marks=pytest.mark.slow),
        pytest.param("attempt", marks=pytest.mark.slow),
    ],
)
def test_sigkill_of_one_process_is_survived(start, victim):
    """The service is whole again, the job goes on, and nothing is left of the dead."""
    before = shared_memory()
    server = start("--lease-s", "3", "--heartbeat-s", "0.5").wait_until_serving()
    job = submit(server, epochs=20)
    wait_for_progress(server, job)
    old = server.pids()
    os.kill(old[victim], signal.SIGKILL)
    wait_until(lambda: not alive(old[victim]), "the victim's end")
    if victim == "runner":
        wait_until(lambda: not alive(old["attempt"]), "the attempt's end")
    wait_until(lambda: set(PROCESSES) <= set(server.pids()), "all processes")
    wait_until(server.is_serving, "the service to serve again, at the same address")
    assert server.khot.Relax(quick(), timeout=30).results[0].status.code == 0
    *_, last = events(server, job)
    assert last.state_changed.state == jobs_pb.JOB_STATE_SUCCEEDED
    assert shared_memory() <= before
    assert server.stop() == 0


def test_a_dead_engine_fails_only_its_own_requests(start):
    server = start("--engine-silence-s", "60").wait_until_serving()
    engine = server.pids()["engine"]
    os.kill(engine, signal.SIGSTOP)
    # two large batches fill the slots of the engine that will die; the third waits for the next one
    large = [server.khot.Relax.future(quick(1, 40_000 + i), timeout=60) for i in range(2)]
    wait_until(lambda: server.in_flight("Relax") == 2, "both calls")
    waiting = server.khot.Relax.future(quick(1, 2000), timeout=60)
    wait_until(lambda: server.metric("khot_queue_items") == 1, "the third call")
    os.kill(engine, signal.SIGKILL)
    for future in large:
        assert future.exception().code() == grpc.StatusCode.UNAVAILABLE
        assert "got one that died" in future.exception().details()
    assert waiting.result().results[0].status.code == 0
    assert server.metric("khot_engine_losses_total") == 1


@pytest.mark.slow
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


@pytest.mark.slow  # e2e/test_durability.py kills them in every run
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


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
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
    with pytest.raises(grpc.RpcError, match="got its end"):
        next(health)
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
    callers = Callers(server.address, 8, refused=True)
    callers.wait_for("OK", 100)
    server.process.send_signal(signal.SIGTERM)
    codes = callers.join()
    assert set(codes) == {"OK", "UNAVAILABLE"} and codes["UNAVAILABLE"] == 8
    assert server.process.wait(60) == 0


def test_sigterm_under_load_loses_nothing_that_was_accepted(start):
    server = start("--drain-s", "60").wait_until_serving()
    callers = Callers(server.address, 4, refused=True)
    callers.wait_for("OK", 20)
    accepted = [server.khot.Sample.future(slow(1000 + i), timeout=90) for i in range(4)]
    wait_until(lambda: server.in_flight("Sample") == 4, "all to be accepted")
    server.process.send_signal(signal.SIGTERM)
    codes = callers.join()
    assert set(codes) == {"OK", "UNAVAILABLE"} and codes["UNAVAILABLE"] == 4
    assert [call.result().results[0].status.code for call in accepted] == [0] * 4
    assert server.process.wait(60) == 0


def test_what_takes_longer_than_the_drain_is_told_to_go_elsewhere(start):
    server = start("--drain-s", "0.5").wait_until_serving()
    call = server.khot.Sample.future(slow(60_000), timeout=90)
    wait_until(lambda: server.in_flight("Sample") == 1, "the call")
    server.process.send_signal(signal.SIGTERM)
    assert call.exception().code() == grpc.StatusCode.UNAVAILABLE
    assert server.process.wait(60) == 0


@pytest.mark.slow
def test_an_engine_that_dies_in_the_drain_is_replaced_for_what_still_waits(start):
    server = start("--drain-s", "60").wait_until_serving()
    # two large batches for the engine that will die, and a call behind them
    doomed = [server.khot.Sample.future(slow(40_000 + i), timeout=90) for i in range(2)]
    wait_until(lambda: server.in_flight("Sample") == 2, "both calls")
    waiting = server.khot.Relax.future(quick(), timeout=90)
    wait_until(lambda: server.metric("khot_queue_items") == 1, "the third call")
    (engine,) = server.engines()
    server.process.send_signal(signal.SIGTERM)
    server.wait_for_line("draining")
    os.kill(engine, signal.SIGKILL)
    assert [call.exception().code() for call in doomed] == [grpc.StatusCode.UNAVAILABLE] * 2
    assert waiting.result().results[0].status.code == 0
    assert server.process.wait(60) == 0


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_second_signal_stops_at_once_and_leaves_nothing(start, number):
    before = shared_memory()
    server = start("--drain-s", "100").wait_until_serving()
    wait_for_progress(server, submit(server, epochs=1000))
    call = server.khot.Sample.future(slow(60_000), timeout=100)
    wait_until(lambda: server.in_flight("Sample") == 1, "the call")
    pids = [pid for pid, _ in descendants(server.process.pid)]
    server.process.send_signal(signal.SIGTERM)
    server.wait_for_line("draining")
    server.process.send_signal(number)
    assert server.process.wait(60) == 1
    assert call.exception().code() == grpc.StatusCode.UNAVAILABLE
    wait_until(lambda: not any(alive(pid) for pid in pids), "the end of all")
    assert shared_memory() <= before


def test_sigterm_to_every_process_is_a_drain_too(start):
    """As some service managers send it."""
    server = start("--drain-s", "60").wait_until_serving()
    call = server.khot.Sample.future(slow(2000), timeout=90)
    wait_until(lambda: server.in_flight("Sample") == 1, "the call")
    os.killpg(server.process.pid, signal.SIGTERM)
    assert call.result().results[0].status.code == 0
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


def test_a_port_that_was_chosen_is_nobody_elses_and_can_be_listened_on(tmp_path):
    settings, held = with_ports(Settings(state_dir=tmp_path, address="127.0.0.1:0"))
    port = int(settings.address.rpartition(":")[2])
    with held[0]:
        with pytest.raises(OSError, match="in use"), socket.socket() as other:
            other.bind(("127.0.0.1", port))
        with socket.create_server(("127.0.0.1", port)) as listener:
            socket.create_connection(listener.getsockname()).close()
            listener.accept()[0].close()
