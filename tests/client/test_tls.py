"""TLS with an authority of one's own, and a token over it."""

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import trustme

from khot_client import Client, TlsFailed
from khot_proto.v1 import khot_service_pb2 as pb
from khot_proto.v1.khot_service_pb2_grpc import (
    KHotServiceServicer,
    add_KHotServiceServicer_to_server,
)


class Echo(KHotServiceServicer):
    """Lists one operator, whose name is what came as authorization."""

    def ListOperators(self, request, context) -> pb.ListOperatorsResponse:  # noqa: N802
        sent = dict(context.invocation_metadata())["authorization"]
        row = pb.Operator(name=sent, kind=pb.OPERATOR_KIND_DESIGN)
        return pb.ListOperatorsResponse(operators=[row])


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """The address of a server with TLS, and the file of its authority."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    path = tmp_path_factory.mktemp("tls") / "ca.pem"
    authority.cert_pem.write_to_path(path)
    pair = (certificate.private_key_pem.bytes(), certificate.cert_chain_pems[0].bytes())
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        add_KHotServiceServicer_to_server(Echo(), server)
        port = server.add_secure_port("localhost:0", grpc.ssl_server_credentials([pair]))
        server.start()
        yield f"localhost:{port}", path
        server.stop(None).wait()


def test_a_token_goes_over_tls(secured):
    address, authority = secured
    with Client(address, token="secret", tls=authority) as client:
        assert [row.name for row in client.list_operators()] == ["Bearer secret"]


def test_a_server_of_another_authority_is_not_spoken_to(secured, tmp_path):
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    with Client(secured[0], tls=other) as client, pytest.raises(TlsFailed, match="(?i)certif"):
        client.list_operators()
