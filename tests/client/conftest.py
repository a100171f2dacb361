"""One real server for all tests of the client."""

from collections.abc import Iterator

import pytest
from processes import running_server

from khot_client import Client


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of a server; that it ends with exit code 0 is checked when it stops."""
    with running_server("--warm-attempts", "true") as running:
        yield running.address


@pytest.fixture
def client(server) -> Iterator[Client]:
    with Client(server) as connected:
        yield connected


@pytest.fixture(autouse=True)
def _own_settings_only(monkeypatch):
    for name in ("KHOT_ADDRESS", "KHOT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
