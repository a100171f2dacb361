"""One real server for all tests of the client, and both clients with one face."""

from collections.abc import Iterator

import pytest
from faces import CLIENTS, Faces
from processes import running_server

from khot_client import Client

VARIABLES = ("ADDRESS", "TOKEN", "TLS", "PROFILE", "CLIENT_CONFIG")


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of a server; that it ends with exit code 0 is checked when it stops."""
    with running_server("--warm-attempts", "true") as running:
        yield running.address


@pytest.fixture
def client(server) -> Iterator[Client]:
    with Client(server) as connected:
        yield connected


@pytest.fixture(params=CLIENTS, ids=lambda kind: kind.__name__)
def faces(request) -> Iterator[Faces]:
    """Makes clients, of each kind in turn, that are used in the same way."""
    made = Faces(request.param)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def face(faces, server):
    """A client of each kind in turn."""
    return faces(server)


@pytest.fixture(autouse=True)
def _own_settings_only(monkeypatch, tmp_path_factory):
    for name in VARIABLES:
        monkeypatch.delenv(f"KHOT_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "no-config"))
