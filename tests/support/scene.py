"""A real server with TLS, a real Prometheus that scrapes it, and a client."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography import x509
from processes import Server, wait_until
from prometheus import Prometheus

from khot_client import Client


@dataclass(frozen=True)
class Scene:
    """What is on the stage.

    Attributes:
        folder: for files of the scene's own; the server's state directory is `state` in it.
        certificate: of the server.
    """

    server: Server
    prometheus: Prometheus
    client: Client
    folder: Path
    certificate: x509.Certificate


@contextlib.contextmanager
def staged(folder: Path, *flags: str) -> Iterator[Scene]:
    """A scene in which nothing has happened, and Prometheus has seen every counter at 0."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    pem, authority_pem = folder / "server.pem", folder / "authority.pem"
    issued.private_key_and_cert_chain_pem.write_to_path(pem)
    authority.cert_pem.write_to_path(authority_pem)
    certificate = x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
    server = Server(folder / "state", "--tls-cert", str(pem), "--tls-key", str(pem), *flags)
    try:
        prometheus = Prometheus(folder, server.metrics_url.removeprefix("http://"))
        try:
            wait_until(lambda: prometheus.query("khot_rows_total"), "an engine")
            with Client(server.address, tls=authority_pem) as client:
                yield Scene(server, prometheus, client, folder, certificate)
        finally:
            prometheus.end()
        assert server.stop() == 0, server.lines
    finally:
        server.end()
