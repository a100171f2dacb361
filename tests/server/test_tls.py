"""Identity on the wire: tokens, TLS, and certificates of callers."""

import subprocess
import sys
from pathlib import Path

import grpc
import pytest
import trustme
from calls import quick
from grpc_health.v1 import health_pb2, health_pb2_grpc
from processes import wait_until

from khot_proto.v1 import job_service_pb2 as jobs_pb
from khot_proto.v1.job_service_pb2_grpc import JobServiceStub
from khot_proto.v1.khot_service_pb2_grpc import KHotServiceStub


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(authority: trustme.CA, tmp_path: Path) -> list[str]:
    """The flags of a server with TLS."""
    pem = tmp_path / "server.pem"
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(pem)
    return ["--tls-cert", str(pem), "--tls-key", str(pem)]


def channel(
    address: str, server_ca: trustme.CA, certificate: trustme.LeafCert | None = None
) -> grpc.Channel:
    """A channel that trusts this authority, and shows this certificate."""
    pair = (None, None)
    if certificate is not None:
        chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems)
        pair = (certificate.private_key_pem.bytes(), chain)
    credentials = grpc.ssl_channel_credentials(server_ca.cert_pem.bytes(), *pair)
    return grpc.secure_channel(address, credentials)


def test_tokens_and_tls(start, authority, tls, tmp_path):
    made = subprocess.run(
        [sys.executable, "-m", "khot_server", "new-token", "--tenant", "a", "--scope", "sample"],
        capture_output=True,
        text=True,
        check=True,
    )
    token, entry = made.stderr.strip(), made.stdout
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(entry)
    server = start("--tokens", str(tokens), *tls)
    with channel(server.address, authority) as connected:
        khot, jobs = KHotServiceStub(connected), JobServiceStub(connected)
        with pytest.raises(grpc.RpcError, match="must be a bearer token; got none") as caught:
            khot.Relax(quick(), timeout=30)
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
        bearer = (("authorization", f"Bearer {token}"),)
        wrong = (("authorization", "Bearer khot_wrong"),)
        with pytest.raises(grpc.RpcError, match="got an unknown one"):
            khot.Relax(quick(), metadata=wrong, timeout=30)
        with pytest.raises(grpc.RpcError, match="must have the scope jobs") as caught:
            jobs.GetJob(jobs_pb.GetJobRequest(job_id="x"), metadata=bearer, timeout=30)
        assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED
        with pytest.raises(grpc.RpcError, match="must have the scope jobs"):
            list(jobs.WatchJob(jobs_pb.WatchJobRequest(job_id="x"), metadata=bearer, timeout=30))

        def served() -> bool:
            try:
                return bool(khot.Relax(quick(), metadata=bearer, timeout=30).results)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
                return False

        wait_until(served, "the engine")
    assert server.stop() == 0


def answers(connected: grpc.Channel) -> list[grpc.StatusCode]:
    """How a call of each service that needs no engine ends."""
    ends = []
    for call, request in (
        (JobServiceStub(connected).GetJob, jobs_pb.GetJobRequest(job_id="none")),
        (health_pb2_grpc.HealthStub(connected).Check, health_pb2.HealthCheckRequest()),
    ):
        try:
            call(request, timeout=30)
            ends.append(grpc.StatusCode.OK)
        except grpc.RpcError as error:
            ends.append(error.code())
    return ends


ANSWERED = [grpc.StatusCode.NOT_FOUND, grpc.StatusCode.OK]
NOT_CONNECTED = [grpc.StatusCode.UNAVAILABLE] * 2


def test_callers_must_show_a_certificate_of_the_authority(start, authority, tls, tmp_path):
    """Without one not even health answers: the connection is not made."""
    clients = trustme.CA()
    clients.cert_pem.write_to_path(tmp_path / "clients.pem")
    server = start(*tls, "--tls-client-ca", str(tmp_path / "clients.pem"))
    for shown, ends in (
        (None, NOT_CONNECTED),
        (trustme.CA().issue_cert("stranger@example.org"), NOT_CONNECTED),
        (authority.issue_cert("server@example.org"), NOT_CONNECTED),  # whom callers trust
        (clients.issue_cert("caller@example.org"), ANSWERED),
    ):
        with channel(server.address, authority, shown) as connected:
            assert answers(connected) == ends
    assert server.stop() == 0


def test_without_an_authority_for_callers_none_is_asked_for_a_certificate(start, authority, tls):
    server = start(*tls)
    with channel(server.address, authority) as connected:
        assert answers(connected) == ANSWERED
    with channel(server.address, trustme.CA()) as connected:
        assert answers(connected) == NOT_CONNECTED
    assert server.stop() == 0
