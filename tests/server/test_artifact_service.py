"""ArtifactService over the wire: what was listed is sent, whole or from an offset, and no other."""

import asyncio
import functools
import hashlib
import os
import shutil
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from khot_proto.v1 import artifact_service_pb2 as pb
from khot_proto.v1.artifact_service_pb2_grpc import (
    ArtifactServiceStub,
    add_ArtifactServiceServicer_to_server,
)
from khot_server.api.artifact_servicer import PIECE_BYTES, ArtifactService
from khot_server.api.guard import Guard
from khot_server.api.identity import Identity, Tokens
from khot_server.jobs.artifacts.files import Contents, publish
from khot_server.jobs.results import VaeResult
from khot_server.jobs.spec import VaeSpec
from khot_server.jobs.store import JobStore
from khot_server.metrics import Metrics

BIG = os.urandom(3 * PIECE_BYTES + 17)
FILES = {"report.html": b"<html>", "model.safetensors": BIG, "empty.csv": b""}
RESULT = VaeResult(test={}, validation={}, usage=(0.5, 0.5), usage_shape=(1, 2), epochs_run=1)
TENANTS = ("vision", "speech")


class Service:
    """A server with the store of a job that has ended, and a stub to call it.

    Attributes:
        job: its id; it is vision's.
        directory: where its files are.
    """

    def __init__(self, state_dir: Path, store: JobStore) -> None:
        self._state_dir, self.store = state_dir, store
        self.job = store.submit("vision", "r1", VaeSpec(dataset="digits")).id
        self.directory = state_dir / "jobs" / self.job / "artifacts"

    def finish(self, **more: Contents) -> None:
        files = FILES | {f"{name}.csv": contents for name, contents in more.items()}
        claim = self.store.leases.claim("runner", 30.0)
        self.store.leases.succeed(claim.token, RESULT, publish(self.directory, files))

    @asynccontextmanager
    async def served(self):
        server = grpc.aio.server()
        metrics = Metrics(("ListArtifacts", "DownloadArtifact"))
        hashes = {hashlib.sha256(name.encode()).hexdigest(): name for name in TENANTS}
        tokens = Tokens({key: Identity(name, frozenset({"jobs"})) for key, name in hashes.items()})
        servicer = ArtifactService(self.store, self._state_dir)
        guarded = Guard(tokens, metrics, 10).around(server)
        add_ArtifactServiceServicer_to_server(servicer, guarded)
        address = f"unix:{self._state_dir}/socket"
        server.add_insecure_port(address)
        await server.start()
        async with grpc.aio.insecure_channel(address) as channel:
            self.stub = ArtifactServiceStub(channel)
            yield self
        await server.stop(None)

    async def listed(self, job: str | None = None, tenant: str = "vision"):
        request = pb.ListArtifactsRequest(job_id=self.job if job is None else job)
        answer = await self.stub.ListArtifacts(request, metadata=_token(tenant), timeout=20)
        return list(answer.artifacts)

    def download(self, name: str, offset: int = 0, tenant: str = "vision"):
        request = pb.DownloadArtifactRequest(job_id=self.job, name=name, offset=offset)
        return self.stub.DownloadArtifact(request, metadata=_token(tenant), timeout=20)

    async def messages(self, name: str, offset: int = 0, tenant: str = "vision"):
        return [message async for message in self.download(name, offset, tenant)]


def _token(tenant: str):
    return (("authorization", f"Bearer {tenant}"),)


@pytest.fixture
def service(tmp_path):
    store = JobStore(tmp_path / "jobs.sqlite3")
    yield Service(tmp_path, store)
    store.close()


def served(test):
    """An async test of a service, as a test."""

    @functools.wraps(test)
    def wrapper(service, **parameters):
        async def run():
            async with service.served():
                await test(service, **parameters)

        asyncio.run(asyncio.wait_for(run(), 30))

    return wrapper


def detail(error, kind):
    """The detail of this kind that comes with an error."""
    raw = dict(error.trailing_metadata())["grpc-status-details-bin"]
    for packed in status_pb2.Status.FromString(raw).details:
        if packed.Unpack(message := kind()):
            return message
    raise AssertionError(kind)


def refused(code, match):
    """As the caller is told it."""
    return pytest.raises(grpc.aio.AioRpcError, match=f"(?s){code}.*{match}")


@served
async def test_a_job_has_no_files_before_it_has_ended(service):
    assert await service.listed() == []
    service.finish()
    assert [artifact.name for artifact in await service.listed()] == sorted(FILES)


@served
async def test_the_list_says_what_the_files_are(service):
    service.finish()
    by_name = {artifact.name: artifact for artifact in await service.listed()}
    model = by_name["model.safetensors"]
    assert model.size_bytes == len(BIG)
    assert model.sha256 == hashlib.sha256(BIG).hexdigest()
    assert by_name["report.html"].media_type == "text/html; charset=utf-8"


@served
async def test_a_job_of_another_tenant_is_not_found(service):
    service.finish()
    for job, tenant in ((service.job, "speech"), ("nope", "vision"), ("", "vision")):
        with refused("NOT_FOUND", "job_id: must be a job of") as caught:
            await service.listed(job, tenant)
        info = detail(caught.value, error_details_pb2.ResourceInfo)
        assert (info.resource_type, info.resource_name) == ("job", job)
    with refused("NOT_FOUND", "job_id: must be a job of"):
        await service.messages("report.html", tenant="speech")


@served
async def test_a_file_is_sent_in_pieces_after_its_description(service):
    service.finish()
    first, *rest = await service.messages("model.safetensors")
    assert first.artifact in await service.listed() and first.data == b""
    assert not any(message.HasField("artifact") for message in rest)
    assert [len(message.data) for message in rest] == [PIECE_BYTES] * 3 + [17]
    assert b"".join(message.data for message in rest) == BIG


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", [0.0, 0.4, 1.0])
@served
async def test_a_download_goes_on_from_an_offset(service, name, place):
    service.finish()
    offset = int(place * len(FILES[name]))
    first, *rest = await service.messages(name, offset)
    assert first.artifact.size_bytes == len(FILES[name])
    assert b"".join(message.data for message in rest) == FILES[name][offset:]
    assert all(message.data for message in rest)


@pytest.mark.parametrize("offset", [-1, 7, 2**62])
@served
async def test_an_offset_outside_the_file_is_refused(service, offset):
    service.finish()
    with refused(
        "INVALID_ARGUMENT", r"offset: must be in \[0, 6\].*; got " + str(offset)
    ) as caught:
        await service.messages("report.html", offset)
    (violation,) = detail(caught.value, error_details_pb2.BadRequest).field_violations
    assert violation.field == "offset"


@pytest.mark.parametrize("name", ["secret.json", "../secret.json", "/etc/passwd", "", "."])
@served
async def test_what_is_not_listed_is_not_found_even_if_it_is_there(service, name):
    service.finish()
    for directory in (service.directory, service.directory.parent):
        (directory / "secret.json").write_bytes(b"secret")
    with refused("NOT_FOUND", "artifact: must be one of the job's, empty.csv, model") as caught:
        await service.messages(name)
    assert detail(caught.value, error_details_pb2.ResourceInfo).resource_type == "artifact"


@served
async def test_a_file_that_is_gone_is_not_found(service):
    service.finish()
    shutil.rmtree(service.directory.parent)
    with refused("NOT_FOUND", "artifact: must be there; got one just deleted"):
        await service.messages("report.html")


@served
async def test_a_file_that_was_cut_off_ends_in_an_error(service):
    service.finish()
    os.truncate(service.directory / "model.safetensors", PIECE_BYTES + 5)
    received = b""
    with refused("INTERNAL", f"model.safetensors: must have {len(BIG)} bytes; got 262149"):
        async for message in service.download("model.safetensors"):
            received += message.data
    assert received == BIG[: PIECE_BYTES + 5]


@served
async def test_a_file_that_is_deleted_while_it_is_sent_arrives_whole(service):
    service.finish()
    pieces = aiter(service.download("model.safetensors"))
    assert (await anext(pieces)).artifact.size_bytes == len(BIG)
    shutil.rmtree(service.directory)
    assert b"".join([message.data async for message in pieces]) == BIG


def held(path: Path) -> bool:
    """Whether this process has the file open."""
    there = Path("/proc/self/fd").iterdir()
    return any(os.path.realpath(descriptor) == str(path) for descriptor in there)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@served
async def test_a_file_is_closed_when_the_caller_leaves(service):
    endless = 1 << 27  # more than gRPC sends ahead
    service.finish(huge=lambda path: path.touch() or os.truncate(path, endless))
    call, path = service.download("huge.csv"), service.directory / "huge.csv"
    assert (await call.read()).artifact.size_bytes == endless
    assert held(path)
    call.cancel()
    while held(path):
        await asyncio.sleep(0.001)
