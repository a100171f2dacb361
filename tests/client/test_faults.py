"""What goes wrong between the two sides is told in a line that says what to do next."""

import asyncio
import datetime
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
import trustme
from processes import Server

from khot_client import (
    AsyncClient,
    Cancelled,
    DeadlineExceeded,
    FeatureSelection,
    KhotError,
    Progress,
    RelaxItem,
    TlsFailed,
    Unauthenticated,
    Unavailable,
    VersionMismatch,
    __version__,
)
from khot_proto.v1.dataset_service_pb2 import GetUploadResponse
from khot_proto.v1.dataset_service_pb2_grpc import (
    DatasetServiceServicer,
    add_DatasetServiceServicer_to_server,
)
from khot_server.api.identity import new_token

YESTERDAY = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)


@contextmanager
def serving(credentials: grpc.ServerCredentials | None = None, datasets=None):
    """A server that knows no method, as one of another version; or those of data sets."""
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        if datasets is not None:
            add_DatasetServiceServicer_to_server(datasets, server)
        if credentials is None:
            host, port = "127.0.0.1", server.add_insecure_port("127.0.0.1:0")
        else:
            host, port = "localhost", server.add_secure_port("localhost:0", credentials)
        server.start()
        try:
            yield f"{host}:{port}"
        finally:
            server.stop(None).wait()


class TakesNothing(DatasetServiceServicer):
    """Knows how far an upload is, and breaks it off."""

    def GetUpload(self, request, context):  # noqa: N802
        return GetUploadResponse(offset=0)

    def UploadDataset(self, requests, context):  # noqa: N802
        next(requests)
        context.abort(grpc.StatusCode.UNAVAILABLE, "a proxy between us has had enough")


def credentials(leaf: trustme.LeafCert) -> grpc.ServerCredentials:
    pair = (leaf.private_key_pem.bytes(), leaf.cert_chain_pems[0].bytes())
    return grpc.ssl_server_credentials([pair])


@pytest.fixture
def authority(tmp_path):
    made = trustme.CA()
    made.cert_pem.write_to_path(tmp_path / "ca.pem")
    return made


def one_line(error: KhotError) -> str:
    assert "\n" not in str(error)
    return str(error)


def test_an_expired_certificate_is_named(faces, authority, tmp_path):
    expired = credentials(authority.issue_cert("localhost", not_after=YESTERDAY))
    with serving(expired) as address:
        client = faces(address, tls=tmp_path / "ca.pem")
        with pytest.raises(TlsFailed, match="got certificate has expired. Check tls=") as caught:
            client.list_operators()
        assert "khot up" not in one_line(caught.value)


def test_a_certificate_of_another_host_is_named(faces, authority, tmp_path):
    other = credentials(authority.issue_cert("example.org"))
    with serving(other) as address:
        client = faces(address, tls=tmp_path / "ca.pem")
        with pytest.raises(TlsFailed, match="got one for another host. Check tls="):
            client.list_operators()


def test_a_server_without_tls_is_told_from_none(faces):
    plain = pytest.raises(TlsFailed, match="got a server without TLS")
    with serving() as address, plain:
        faces(address, tls=True).list_operators()


def test_an_upload_of_which_nothing_arrives_is_given_up(faces):
    with serving(datasets=TakesNothing()) as address:
        client = faces(address)
        with pytest.raises(Unavailable, match="had enough"):
            client.upload([[1.0]], reconnect_s=0.5)


def test_another_version_is_told_with_ours(faces):
    with serving() as address:
        client = faces(address)
        for call in (client.list_operators, client.job("x").status, lambda: list(client.jobs())):
            with pytest.raises(VersionMismatch, match="Install the same version") as caught:
                call()
            assert f"khot {__version__}" in one_line(caught.value)


def test_no_server_is_told_whatever_is_called(faces):
    client = faces("127.0.0.1:1")
    job = client.job("x")
    for call in (
        lambda: client.relax([1.0], 1),
        lambda: list(job.watch(reconnect_s=0.0)),
        lambda: client.upload([[1.0]], reconnect_s=0.0),
        lambda: job.download(".", reconnect_s=0.0),
    ):
        with pytest.raises(Unavailable, match="`khot up` starts a server") as caught:
            call()
        one_line(caught.value)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server with tokens that is killed, and a token for it."""
    folder = tmp_path_factory.mktemp("guarded")
    token, entry = new_token("vision", ["sample", "jobs"])
    (folder / "tokens.toml").write_text(entry)
    running = Server(folder / "state", "--tokens", str(folder / "tokens.toml"))
    try:
        yield running.wait_until_serving(), token
    finally:
        running.end()


@pytest.mark.parametrize(
    ("token", "reason"), [("khot_wrong", Unauthenticated), (None, Unavailable)], ids=str
)
def test_a_status_that_grpc_lost_is_asked_for_again(guarded, token, reason):
    """As happens when a message of a stream meets the end of its call, at times."""
    lost = grpc.aio.AioRpcError(
        grpc.StatusCode.INTERNAL,
        grpc.aio.Metadata(),
        grpc.aio.Metadata(),
        details="Internal error from Core",
    )

    async def ask():
        async with AsyncClient(guarded[0].address, token=token or guarded[1]) as client:
            return await client._connection.reason(lost)

    assert type(asyncio.run(ask())) is reason


def test_a_wrong_token_is_told_and_not_shown(faces, guarded):
    client = faces(guarded[0].address, token="khot_wrong")
    job = client.job("x")
    for call in (
        lambda: client.relax([1.0], 1),
        lambda: list(client.relax_stream([RelaxItem([1.0], 1)])),
        lambda: list(job.watch()),
        lambda: client.upload([[1.0]]),
        lambda: job.download("."),
    ):
        with pytest.raises(Unauthenticated, match="Set KHOT_TOKEN or pass token=") as caught:
            call()
        assert "khot_wrong" not in one_line(caught.value)


def test_an_awaited_watch_over_the_death_of_the_server_loses_nothing(guarded):
    """The blocking one is in tests/e2e; both are the same coroutine."""
    server, token = guarded

    async def run() -> None:
        async with AsyncClient(server.address, token=token) as client:
            job = await client.submit(FeatureSelection(k=10, epochs=10, references=False))
            seen, killed = [], False
            async for event in job.watch():
                seen.append(event.sequence)
                if isinstance(event, Progress) and not killed:
                    os.kill(server.pids()["api"], signal.SIGKILL)
                    killed = True
            assert killed and seen == list(range(1, len(seen) + 1))
            assert len((await job.wait()).features) == 10

    asyncio.run(run())


def test_a_call_has_its_own_time_limit(faces):
    late = pytest.raises(DeadlineExceeded, match="Allow more time with timeout_s")
    with socket.create_server(("127.0.0.1", 0)) as silent, late:
        client = faces(f"127.0.0.1:{silent.getsockname()[1]}", timeout_s=None)
        client.relax([1.0], 1, timeout_s=0.2)


CTRL_C = """
import os, signal, sys, threading
from khot_client import Client, FeatureSelection
with Client(sys.argv[1]) as client:
    job = client.submit(FeatureSelection(k=5, epochs=10_000, patience=0))
    try:
        events = job.watch()
        next(events)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        {what}
    except KeyboardInterrupt:
        print("stopped", flush=True)
    job.cancel()
"""


WAITS = {"wait": "job.wait()", "watch": "list(events)", "logs": "list(job.logs(follow=True))"}


@pytest.mark.parametrize("what", WAITS.values(), ids=WAITS)
def test_ctrl_c_ends_a_program_that_waits(server, what):
    command = [sys.executable, "-c", CTRL_C.format(what=what), server]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("stopped\n", "", 0)


def test_closing_ends_what_is_under_way(server):
    async def run() -> None:
        client = AsyncClient(server)
        job = await client.submit(FeatureSelection(k=5, epochs=10_000, patience=0))
        waiting = asyncio.create_task(job.wait())
        async for _ in job.watch():
            break
        await client.close()
        with pytest.raises(Cancelled, match="with a new Client"):
            await waiting
        with pytest.raises(Cancelled, match="must be open; got one that was closed"):
            await client.relax([1.0], 1)
        async with AsyncClient(server) as another:
            await another.job(job.id).cancel()

    asyncio.run(run())


def test_a_cancelled_task_stays_cancelled(server):
    async def run() -> None:
        async with AsyncClient(server) as client:
            job = await client.submit(FeatureSelection(k=5, epochs=10_000, patience=0))
            task = asyncio.create_task(job.wait())
            async for _ in job.watch():
                break
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await job.cancel()

    asyncio.run(run())
