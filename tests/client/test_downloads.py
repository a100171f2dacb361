"""Files of a job: what looks complete is complete, by both clients."""

import hashlib
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from faults import full, small_disk

from khot_client import (
    Client,
    FeatureSelection,
    NotFound,
    ServerError,
    TransferFailed,
    Unavailable,
)
from khot_proto.v1 import artifact_service_pb2 as pb
from khot_proto.v1.artifact_service_pb2_grpc import (
    ArtifactServiceServicer,
    add_ArtifactServiceServicer_to_server,
)

CONTENT = os.urandom(1 << 20)
PIECE = 1 << 16


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture(scope="module")
def job_id(server):
    with Client(server) as client:
        job = client.submit(FeatureSelection(k=5, epochs=1, references=False))
        job.wait()
        return job.id


def test_all_files_of_a_job_are_downloaded(face, job_id, tmp_path):
    job, told = face.job(job_id), []
    listed = {artifact.name: artifact for artifact in job.artifacts()}
    assert {"model.safetensors", "result.json", "report.html"} <= set(listed)
    paths = job.download(tmp_path / "new", progress=lambda *said: told.append(said))
    assert {path.name for path in paths} == set(listed) == names(tmp_path / "new")
    for path in paths:
        artifact = listed[path.name]
        assert hashlib.sha256(path.read_bytes()).hexdigest() == artifact.sha256
        assert (path.name, artifact.size_bytes, artifact.size_bytes) in told
    assert "apply" in json.loads((tmp_path / "new/result.json").read_text())


def test_one_file_goes_to_a_folder_or_gets_a_name(face, job_id, tmp_path):
    job = face.job(job_id)
    assert job.download(tmp_path, "result.json") == [tmp_path / "result.json"]
    (renamed,) = job.download(tmp_path / "mine.json", "result.json")
    assert renamed.read_bytes() == (tmp_path / "result.json").read_bytes()
    with pytest.raises(NotFound, match="must be one of the job's, .*; got 'nope'"):
        job.download(tmp_path, "nope")


# from here on, a server by a script: a connection cannot be made to break at a given byte


class Scripted(ArtifactServiceServicer):
    """Sends a file; breaks off after as many bytes of it as the script says, each time."""

    def __init__(self, breaks: list[int], sent: bytes, name: str) -> None:
        self._breaks, self._sent, self._name = iter(breaks), sent, name
        self.asked: list[int] = []

    def ListArtifacts(self, request, context) -> pb.ListArtifactsResponse:  # noqa: N802
        return pb.ListArtifactsResponse(artifacts=[self._artifact()])

    def DownloadArtifact(self, request, context) -> Iterator[pb.DownloadArtifactResponse]:  # noqa: N802
        self.asked.append(request.offset)
        yield pb.DownloadArtifactResponse(artifact=self._artifact())
        end = next(self._breaks, len(self._sent))
        for at in range(request.offset, end, PIECE):
            yield pb.DownloadArtifactResponse(data=self._sent[at : min(at + PIECE, end)])
        if end < len(self._sent):
            context.abort(grpc.StatusCode.UNAVAILABLE, "connection lost")

    def _artifact(self) -> pb.Artifact:
        digest = hashlib.sha256(CONTENT).hexdigest()
        return pb.Artifact(name=self._name, size_bytes=len(CONTENT), sha256=digest)


@contextmanager
def scripted(*breaks: int, sent: bytes = CONTENT, name: str = "file"):
    servicer = Scripted(list(breaks), sent, name)
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        add_ArtifactServiceServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}", servicer
        finally:
            server.stop(None).wait()


def test_a_download_goes_on_where_it_broke_off(faces, tmp_path):
    with scripted(3 * PIECE, 5 * PIECE) as (address, servicer):
        faces(address).job("it").download(tmp_path)
    assert servicer.asked == [0, 3 * PIECE, 5 * PIECE]
    assert (tmp_path / "file").read_bytes() == CONTENT and names(tmp_path) == {"file"}


def test_a_later_call_goes_on_too_and_until_then_nothing_looks_complete(faces, tmp_path):
    with scripted(3 * PIECE, 0) as (address, servicer):
        job = faces(address).job("it")
        with pytest.raises(Unavailable, match="must be a khot server that answers"):
            job.download(tmp_path, reconnect_s=0.0)
        (left,) = tmp_path.iterdir()
        assert left.suffix == ".part" and left.stat().st_size == 3 * PIECE
        job.download(tmp_path)
        assert servicer.asked[0] == 0 and servicer.asked[-1] == 3 * PIECE
    assert (tmp_path / "file").read_bytes() == CONTENT and names(tmp_path) == {"file"}


def test_what_is_there_already_is_left_alone(faces, tmp_path):
    (tmp_path / "file").write_bytes(CONTENT)
    with scripted() as (address, servicer):
        faces(address).job("it").download(tmp_path)
        assert servicer.asked == []
        (tmp_path / "file").write_bytes(b"else")
        faces(address).job("it").download(tmp_path)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_damaged_part_is_begun_anew(faces, tmp_path):
    with scripted() as (address, servicer):
        part = tmp_path / f"file.{hashlib.sha256(CONTENT).hexdigest()[:12]}.part"
        part.write_bytes(b"x" * PIECE)
        faces(address).job("it").download(tmp_path)
        assert servicer.asked == [PIECE, 0]
        part.write_bytes(b"x" * (len(CONTENT) + 1))
        (tmp_path / "file").unlink()
        faces(address).job("it").download(tmp_path)
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.parametrize("sent", [CONTENT[:-1], b"x" * len(CONTENT)], ids=["truncated", "corrupt"])
def test_a_file_that_comes_damaged_twice_is_an_error_and_no_file(faces, tmp_path, sent):
    damaged = pytest.raises(TransferFailed, match="must arrive with the checksum")
    with scripted(sent=sent) as (address, _), damaged:
        faces(address).job("it").download(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_and_the_download_goes_on_when_there_is_room(faces, tmp_path):
    with small_disk(tmp_path / "disk", 2 << 20) as disk, scripted() as (address, servicer):
        job = faces(address).job("it")
        filler = disk / "half"
        filler.write_bytes(bytes(3 << 19))
        told = pytest.raises(TransferFailed, match="No space left.*Free some space or choose")
        with told:
            job.download(disk)
        assert not (disk / "file").exists(), "nothing looks complete"
        with full(disk), pytest.raises(TransferFailed, match="No space left"):
            job.download(disk)
        filler.unlink()
        job.download(disk)
        assert servicer.asked[0] == 0 < servicer.asked[-1]
        assert (disk / "file").read_bytes() == CONTENT


def test_a_folder_that_cannot_be_written_is_told(faces, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with scripted() as (address, _), pytest.raises(TransferFailed, match="must be a file that can"):
        faces(address).job("it").download(tmp_path / "file" / "below")


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/b", ".."])
def test_no_file_is_written_outside_the_folder(faces, tmp_path, name):
    with scripted(name=name) as (address, _), pytest.raises(ServerError, match="name must be"):
        faces(address).job("it").download(tmp_path / "to")
    assert list(tmp_path.iterdir()) == []
