"""The server starts, answers, drains and stops, as a process of its own."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "khot_server", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def server() -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = start("--address", "127.0.0.1:0")
    address = re.fullmatch(r"khot-server: listening on (\S+)\n", process.stdout.readline())[1]
    yield process, address
    process.kill()
    process.communicate()


def test_health_and_reflection(server):
    _, address = server
    with grpc.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        answer = health.Check(health_pb2.HealthCheckRequest(), timeout=10)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        (listed,) = stub.ServerReflectionInfo(iter([ask]), timeout=10)
        names = {service.name for service in listed.list_services_response.service}
        assert "grpc.health.v1.Health" in names


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_exits_0(server, number):
    process, address = server
    with grpc.insecure_channel(address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        process.send_signal(number)
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out.splitlines() == ["khot-server: draining", "khot-server: stopped"]


def test_a_taken_address_is_refused():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        process = start("--address", address)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"khot-server: address must be a free host:port; got '{address}'" in err
