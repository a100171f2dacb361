"""The client against a real service under real faults."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import trustme
from processes import Server, stopped_engine, wait_until

from khot_client import (
    Client,
    FeatureSelection,
    Overloaded,
    PermissionDenied,
    Progress,
    Unauthenticated,
    Unavailable,
)


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    running = Server(tmp_path / "state", *getattr(request, "param", ()))
    try:
        yield running
    finally:
        running.end()


def test_a_watch_over_the_death_of_the_api_process_loses_nothing_and_repeats_nothing(server):
    server.wait_until_serving()
    with Client(server.address) as client:
        job = client.submit(FeatureSelection("digits", k=10, epochs=40))
        seen, killed = [], False
        for event in job.watch():
            seen.append(event.sequence)
            if isinstance(event, Progress) and not killed:
                os.kill(server.pids()["api"], signal.SIGKILL)
                killed = True
        assert killed and seen == list(range(1, len(seen) + 1))
        assert len(job.wait().features) == 10
        assert job.status().attempts == 1, "the runner and its attempt went on"


def test_calls_are_answered_again_after_the_engine_died(server):
    server.wait_until_serving()
    with Client(server.address) as client:
        before = client.relax([2.0, 1.0, 0.0], 1).p
        os.kill(server.pids()["engine"], signal.SIGKILL)
        reasons: set[str] = set()

        def answered() -> bool:
            try:
                return bool(np.array_equal(client.relax([2.0, 1.0, 0.0], 1).p, before))
            except Unavailable as error:
                reasons.add(error.reason)
                return False

        wait_until(answered, "the next engine")
        assert reasons <= {"ENGINE_DIED", "ENGINE_UNAVAILABLE"}


@pytest.mark.parametrize(
    "server", [("--max-queue-elements", "1200", "--engine-silence-s", "100")], indirect=True
)
def test_overload_says_when_to_come_back(server):
    server.wait_until_serving()
    x = np.zeros(600)
    with Client(server.address) as client, ThreadPoolExecutor(2) as pool:
        with stopped_engine(server):
            # one with the engine, one that waits
            calls = [pool.submit(client.relax, x, 3) for _ in range(2)]
            wait_until(lambda: server.metric("khot_queue_items") == 1, "one to wait")
            with pytest.raises(Overloaded, match="at most 1200 scores may be under way") as caught:
                client.relax(x, 3)
        assert caught.value.retry_after_s == pytest.approx(0.1)
        assert [call.result().p.sum() for call in calls] == pytest.approx([3, 3])


def test_tokens_and_tls(tmp_path):
    command = [sys.executable, "-m", "khot_server", "new-token", "--tenant", "a"]
    made = subprocess.run(
        [*command, "--scope", "sample"], capture_output=True, text=True, check=True
    )
    (tmp_path / "tokens.toml").write_text(made.stdout)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    pem = str(tmp_path / "server.pem")
    flags = ("--tokens", str(tmp_path / "tokens.toml"), "--tls-cert", pem, "--tls-key", pem)
    server = Server(tmp_path / "state", *flags)
    token, ca = made.stderr.strip(), tmp_path / "ca.pem"
    try:
        with Client(server.address, token=token, tls=ca) as client:

            def serves() -> bool:
                try:
                    return client.sample([2.0, 1.0, 0.0], 1).z.sum() == 1
                except Unavailable:
                    return False

            wait_until(serves, "the engine")
            with pytest.raises(PermissionDenied, match="must have the scope jobs"):
                client.submit(FeatureSelection("digits", k=10))
        with (
            Client(server.address, token="khot_wrong", tls=ca) as stranger,
            pytest.raises(Unauthenticated, match="got an unknown one"),
        ):
            stranger.relax([1.0, 2.0], 1)
        assert server.stop() == 0
    finally:
        server.end()
