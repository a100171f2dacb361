"""Servers for the tests of this folder: one that is shared, or some of a test's own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import Server


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests that leave it as they found it."""
    state = tmp_path_factory.mktemp("state")
    running = Server(state, "--warm-attempts", "true").wait_until_serving()
    try:
        yield running
        assert running.stop() == 0
    finally:
        running.end()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Servers of a test's own."""
    started: list[Server] = []

    def one(*arguments: str, **environment: str) -> Server:
        started.append(Server(tmp_path / "state", *arguments, **environment))
        return started[-1]

    yield one
    for each in started:
        each.end()
