"""Engines: several of them, one that dies, one that hangs, and what callers and health see."""

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from calls import Callers, quick, slow
from grpc_health.v1 import health_pb2
from processes import Server, alive, cpu_s, descendants, wait_until

from khot_proto.v1 import khot_service_pb2 as pb
from khot_proto.v1.khot_service_pb2_grpc import KHotServiceStub
from khot_server.supervisor import busy

SUPPORT = Path(__file__).parents[1] / "support"
KHOT, JOBS = "khot.v1.KHotService", "khot.v1.JobService"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def wait_for_engines(server: Server, count: int) -> list[int]:
    """Until so many are there and serve."""
    wait_until(lambda: server.metric("khot_engine_up") == count, f"{count} engines")
    return server.engines()


@pytest.fixture
def two(start: Callable[..., Server]) -> Server:
    """A server with two engines on the CPU."""
    server = start("--engines-per-device", "2")
    wait_for_engines(server, 2)
    return server


def threads(pid: int) -> str | None:
    """How many it was told to use."""
    pairs = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if pair).get("OMP_NUM_THREADS")


# several


def test_two_engines_share_the_work_and_the_cores(two):
    before = {pid: cpu_s(pid) for pid in two.engines()}
    calls = [two.khot.Sample.future(slow(4000 + i), timeout=90) for i in range(2)]

    def both_work() -> bool:
        return all(cpu_s(pid) > at + 0.2 for pid, at in before.items())

    wait_until(both_work, "both to compute")
    assert [call.result().results[0].status.code for call in calls] == [0, 0]
    mine = os.environ.get("OMP_NUM_THREADS")
    share = str(max(1, len(os.sched_getaffinity(0)) // 2))
    assert {threads(pid) for pid in before} == {mine or share}
    assert threads(two.pids()["runner"]) == mine, "training has them all"


@pytest.mark.slow
def test_one_of_two_devices_that_is_not_there_ends_the_service_with_the_reason(tmp_path):
    command = [sys.executable, "-m", "khot_server", "--state-dir", str(tmp_path / "state")]
    free = ("--address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0")
    done = subprocess.run(
        [*command, *free, "--device", "cpu,cuda:99"],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 1
    assert "device must be one that torch can use here; got 'cuda:99'" in done.stderr


# death


def test_the_death_of_one_engine_fails_its_calls_alone(two):
    """The other goes on, health does not change, and a third takes the place."""
    victim, other = two.engines()
    health = two.health.Watch(health_pb2.HealthCheckRequest())
    assert next(health).status == SERVING
    callers = Callers(two.address, 6)
    callers.wait_for("OK", 100)
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: not alive(victim), "its end")
    callers.wait_for("OK", 100)
    assert other in wait_for_engines(two, 2)
    callers.wait_for("OK", 100)
    codes = callers.stop()
    assert set(codes) <= {"OK", "UNAVAILABLE"}
    assert codes["UNAVAILABLE"] <= 6, "no more than were with the victim"
    assert two.is_serving()
    assert two.metric("khot_engine_losses_total") == 1
    two.process.send_signal(signal.SIGTERM)
    assert next(health).status == NOT_SERVING, "the first change"
    assert two.process.wait(60) == 0


def test_a_stopped_engine_is_replaced_and_its_calls_fail(start):
    server = start().wait_until_serving()
    (stopped,) = server.engines()
    callers = Callers(server.address, 2)
    callers.wait_for("OK", 20)
    os.kill(stopped, signal.SIGSTOP)
    callers.wait_for("UNAVAILABLE")
    server.wait_for_line(rf"engine_hung .*pid={stopped}")
    callers.wait_for("OK", 20)
    assert set(callers.stop()) == {"OK", "UNAVAILABLE"}
    assert not alive(stopped) and server.engines() != [stopped]


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)]
)
def test_a_spare_takes_the_place_of_an_engine_that_is_lost(start, number):
    server = start("--spare-engine", "true").wait_until_serving()
    wait_until(lambda: len(server.engines()) == 2, "the spare")
    lost, spare = server.engines()  # the spare is made when the other serves
    callers = Callers(server.address, 2)
    callers.wait_for("OK", 20)
    os.kill(lost, number)
    callers.wait_for("UNAVAILABLE")
    callers.wait_for("OK", 20)
    assert set(callers.stop()) == {"OK", "UNAVAILABLE"}
    before = cpu_s(spare)
    assert server.khot.Sample(slow(2000), timeout=90).results[0].status.code == 0
    assert cpu_s(spare) > before + 0.2, "it computed that"
    wait_until(lambda: len(set(server.engines()) - {lost}) == 2, "the next spare")
    pids = [pid for pid, _ in descendants(server.process.pid)]
    assert server.stop() == 0
    assert not any(alive(pid) for pid in pids)


@pytest.mark.slow
def test_an_engine_is_replaced_although_the_spare_died_before_it(start):
    server = start("--spare-engine", "true").wait_until_serving()
    wait_until(lambda: len(server.engines()) == 2, "the spare")
    lost, spare = server.engines()
    os.kill(spare, signal.SIGKILL)
    wait_until(lambda: not alive(spare), "its end")
    os.kill(lost, signal.SIGKILL)
    wait_until(lambda: server.metric("khot_engine_losses_total") == 1, "the loss")
    wait_for_engines(server, 1)
    assert server.khot.Relax(quick(), timeout=30).results[0].status.code == 0
    assert server.stop() == 0


@pytest.mark.slow
def test_an_engine_that_is_stopped_for_a_moment_is_left_alone(start):
    server = start("--engine-silence-s", "60").wait_until_serving()
    (engine,) = server.engines()
    os.kill(engine, signal.SIGSTOP)
    call = server.khot.Relax.future(quick(), timeout=60)
    wait_until(lambda: server.in_flight("Relax") == 1, "the call")
    os.kill(engine, signal.SIGCONT)
    assert call.result().results[0].status.code == 0
    assert server.engines() == [engine]


def test_an_engine_that_computes_for_long_is_not_taken_for_a_hung_one(start):
    server = start("--engine-silence-s", "0.5").wait_until_serving()
    engines = server.engines()
    result = server.khot.Sample(slow(3000), timeout=90).results[0]
    assert result.status.code == 0
    assert server.engines() == engines


def test_who_is_busy_runs_or_would_if_he_could():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            wait_until(lambda: busy(process.pid), "it to run")
            process.send_signal(signal.SIGSTOP)
            wait_until(lambda: not busy(process.pid), "it to stop")
            process.send_signal(signal.SIGCONT)
            wait_until(lambda: busy(process.pid), "it to go on")
        finally:
            process.kill()
    with subprocess.Popen(["sleep", "60"]) as process:
        wait_until(lambda: not busy(process.pid), "it to sleep")
        process.kill()


@pytest.mark.slow
def test_sigkill_of_the_api_process_under_load(start):
    """All is whole again at the same address."""
    server = start().wait_until_serving()
    old = server.pids()
    callers = Callers(server.address, 4)
    callers.wait_for("OK", 100)
    os.kill(old["api"], signal.SIGKILL)
    callers.wait_for("UNAVAILABLE")
    callers.wait_for("OK", 100)
    assert set(callers.stop()) == {"OK", "UNAVAILABLE"}
    new = server.pids()
    assert new["api"] != old["api"] and new["engine"] != old["engine"]
    assert new["runner"] == old["runner"]
    assert server.stop() == 0


@pytest.mark.parametrize("victim", ["api", "supervisor"])
def test_a_kill_in_the_middle_of_a_batch_leaves_no_orphan(start, victim):
    server = start().wait_until_serving()
    (engine,) = server.engines()
    before = cpu_s(engine)
    call = server.khot.Sample.future(slow(60_000), timeout=90)
    wait_until(lambda: cpu_s(engine) > before + 0.2, "the engine to compute")
    pids = [pid for pid, _ in descendants(server.process.pid)]
    if victim == "api":
        os.kill(server.pids()["api"], signal.SIGKILL)
        wait_until(lambda: not alive(engine), "its end", seconds=10)
    else:
        server.process.kill()
        server.process.wait()
        wait_until(lambda: not any(alive(pid) for pid in pids), "the end of all", seconds=10)
    assert call.exception().code() == grpc.StatusCode.UNAVAILABLE


# health of each service


def test_jobs_are_served_without_an_engine(start):
    server = start("--engine-silence-s", "60").wait_until_serving()
    watches = {
        name: server.health.Watch(health_pb2.HealthCheckRequest(service=name))
        for name in ("", KHOT, JOBS)
    }
    assert [next(watch).status for watch in watches.values()] == [SERVING] * 3
    os.kill(server.engines()[0], signal.SIGKILL)
    for name in ("", KHOT):
        assert [next(watches[name]).status for _ in range(2)] == [NOT_SERVING, SERVING]
    assert server.is_serving(JOBS)
    server.process.send_signal(signal.SIGTERM)
    assert [next(watch).status for watch in watches.values()] == [NOT_SERVING] * 3
    assert server.process.wait(60) == 0


# connections


GARBAGE = {
    "nothing": b"",
    "noise": random.Random(0).randbytes(4096),
    "http/1": b"GET / HTTP/1.1\r\nHost: khot\r\n\r\n",
    "tls": bytes.fromhex("16030100c8010000c40303") + bytes(196),
    "half a preface": b"PRI * HTTP/2.0\r\n\r\n",
    "a preface alone": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "half a frame": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000040 01 04 00000001 82"),
    "a huge frame": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("ffffff 00 00 00000001"),
    "data of no stream": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + bytes.fromhex("000000 04 00 00000000 000004 00 01 00000063 00000000"),
}


def test_garbage_on_the_port_changes_nothing(server):
    api = server.pids()["api"]
    host, _, port = server.address.rpartition(":")
    for data in GARBAGE.values():
        for patient in (False, True):
            with socket.create_connection((host, int(port)), timeout=30) as peer:
                peer.sendall(data)
                if patient:  # until the server has answered, or hung up
                    peer.shutdown(socket.SHUT_WR)
                    peer.recv(1 << 16)
    assert server.khot.Relax(quick(), timeout=30).results[0].status.code == 0
    assert server.pids()["api"] == api


@pytest.mark.slow
def test_the_calls_of_a_peer_that_is_gone_without_a_word_are_cancelled(start):
    server = start("--keepalive-s", "1").wait_until_serving()
    ours = server.khot.Sample.future(slow(60_000), timeout=90)
    script = (
        "import grpc, calls; from khot_proto.v1.khot_service_pb2_grpc import KHotServiceStub;"
        f"channel = grpc.insecure_channel('{server.address}');"
        "KHotServiceStub(channel).Sample(calls.slow(60_000), timeout=90)"
    )
    path = os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": path},
        stderr=subprocess.DEVNULL,
    ) as peer:
        try:
            wait_until(lambda: server.in_flight("Sample") == 2, "both calls")
            peer.send_signal(signal.SIGSTOP)
            wait_until(lambda: server.in_flight("Sample") == 1, "the end of one")
        finally:
            peer.kill()
    assert not ours.done(), "a peer that answers keeps its calls"
    ours.cancel()


@pytest.mark.slow
def test_calls_above_the_limit_of_a_connection_wait_at_the_caller(start):
    server = start("--max-connection-calls", "1").wait_until_serving()
    server.channel.close()
    with (
        grpc.insecure_channel(server.address) as full,
        grpc.insecure_channel(server.address, [("grpc.use_local_subchannel_pool", 1)]) as other,
    ):
        operators = KHotServiceStub(full).ListOperators
        operators(pb.ListOperatorsRequest(), timeout=30)  # now it knows the limit
        first = KHotServiceStub(full).Sample.future(slow(60_000), timeout=90)
        wait_until(lambda: server.in_flight("Sample") == 1, "the first call")
        second = operators.future(pb.ListOperatorsRequest(), timeout=90)
        KHotServiceStub(other).ListOperators(pb.ListOperatorsRequest(), timeout=30)
        assert not second.done()
        first.cancel()
        assert second.result().operators
