"""The health check: what a container's engine runs."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import trustme
from grpc_health.v1 import health, health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckResponse as Response
from processes import THEIRS, Server

from khot_server import healthcheck


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in THEIRS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def answering():
    """A function: serve this status, with TLS or without; return the address."""
    stops = []

    def answering(status: int, issued: trustme.LeafCert | None = None) -> str:
        server = grpc.server(ThreadPoolExecutor(2))
        servicer = health.HealthServicer()
        servicer.set("", status)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        if issued is None:
            port = server.add_insecure_port("127.0.0.1:0")
        else:
            pair = issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes()
            port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
        server.start()
        stops.append(server.stop)
        return f"127.0.0.1:{port}"

    yield answering
    for stop in stops:
        stop(None).wait()


@pytest.mark.parametrize("status", ["SERVING", "NOT_SERVING", "UNKNOWN"])
def test_healthy_is_what_says_serving(answering, status):
    heard = healthcheck.check(["--address", answering(Response.ServingStatus.Value(status))])
    assert heard == (status == "SERVING", f"healthcheck: {status}")


def test_nobody_there_is_not_healthy():
    healthy, said = healthcheck.check(["--address", "127.0.0.1:1"])
    assert not healthy and said.startswith("healthcheck: must be answered; got UNAVAILABLE: ")


def test_settings_that_do_not_fit_are_told(monkeypatch):
    monkeypatch.setenv("KHOT_ADDRESS", "0.0.0.0:50551")
    healthy, said = healthcheck.check([])
    assert not healthy and said.startswith("khot-server: tokens must be given where address")


def flags(folder, issued: trustme.LeafCert) -> list[str]:
    pem = folder / "server.pem"
    issued.private_key_and_cert_chain_pem.write_to_path(pem)
    return ["--tls-cert", str(pem), "--tls-key", str(pem)]


NAMES = (("khot.example.org",), ("*.example.org",), ("10.0.0.7",), ("10.0.0.7", "khot"))


@pytest.mark.parametrize("names", NAMES, ids=" ".join)
def test_a_server_with_tls_is_known_by_its_certificate(answering, tmp_path, names):
    authority = trustme.CA()
    issued = authority.issue_cert(*names)
    at = ["--address", answering(Response.SERVING, issued)]
    assert healthcheck.check([*at, *flags(tmp_path, issued)]) == (True, "healthcheck: SERVING")
    other = authority.issue_cert(*names)
    healthy, said = healthcheck.check([*at, *flags(tmp_path, other)])
    assert not healthy and "CERTIFICATE_VERIFY_FAILED" in said


@pytest.mark.parametrize(
    ("address", "from_here"),
    [
        ("0.0.0.0:1", "127.0.0.1:1"),
        ("[::]:1", "[::1]:1"),
        ("10.0.0.7:1", "10.0.0.7:1"),
        ("localhost:1", "localhost:1"),
    ],
)
def test_everywhere_is_here(address, from_here):
    assert healthcheck.near(address) == from_here


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One that hears from everywhere, as in a container."""
    flags = ("--address", "0.0.0.0:0", "--anonymous", "true")
    server = Server(tmp_path_factory.mktemp("state"), *flags)
    try:
        yield server.wait_until_serving()
        assert server.stop() == 0, server.lines
    finally:
        server.end()


def test_the_command_reads_the_variables_of_the_server(server):
    port = server.address.rpartition(":")[2]
    variables = {"KHOT_ADDRESS": f"0.0.0.0:{port}", "KHOT_ANONYMOUS": "true"}
    for wanted, more in ((0, {}), (1, {"KHOT_ADDRESS": "127.0.0.1:1"})):
        done = subprocess.run(
            [sys.executable, "-m", "khot_server.healthcheck"],
            env={**os.environ, **variables, **more},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (wanted, ""), done
        assert done.stdout.startswith("healthcheck: ")


def test_where_callers_show_certificates_the_metrics_are_asked(server, tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    given = flags(tmp_path, authority.issue_cert("localhost"))
    given += ["--tls-client-ca", str(tmp_path / "ca.pem"), "--metrics-address"]
    at = server.metrics_url.removeprefix("http://")
    assert healthcheck.check([*given, at]) == (True, "healthcheck: khot_engine_up 1")
    healthy, said = healthcheck.check([*given, "127.0.0.1:1"])
    assert not healthy and said.startswith("healthcheck: must be answered; got ")
