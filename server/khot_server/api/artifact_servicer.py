"""ArtifactService: the files that a job left."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, BinaryIO

from khot_proto.v1 import artifact_service_pb2 as pb
from khot_proto.v1.artifact_service_pb2_grpc import ArtifactServiceServicer
from khot_server.api.guard import identity
from khot_server.errors import Internal, InvalidArgument, NotFound
from khot_server.jobs.files import job_directory
from khot_server.jobs.records import Artifact, JobNotFound
from khot_server.jobs.store import JobStore

PIECE_BYTES = 256 * 1024


class ArtifactService(ArtifactServiceServicer):
    """The servicer; see the comments of artifact_service.proto for what is promised."""

    def __init__(self, store: JobStore, state_dir: Path) -> None:
        self._store, self._state_dir = store, state_dir

    async def ListArtifacts(
        self, request: pb.ListArtifactsRequest, context: Any
    ) -> pb.ListArtifactsResponse:
        listed = await self._listed(request.job_id)
        return pb.ListArtifactsResponse(artifacts=[_message(artifact) for artifact in listed])

    async def DownloadArtifact(
        self, request: pb.DownloadArtifactRequest, context: Any
    ) -> AsyncIterator[pb.DownloadArtifactResponse]:
        by_name = {artifact.name: artifact for artifact in await self._listed(request.job_id)}
        artifact = by_name.get(request.name)
        if artifact is None:  # so no path is ever made of a name that is not listed
            known = ", ".join(by_name) or "none"
            must = f"artifact: must be one of the job's, {known}"
            raise NotFound("artifact", request.name, f"{must}; got {request.name!r}")
        offset, size = request.offset, artifact.size_bytes
        if not 0 <= offset <= size:
            must = f"offset: must be in [0, {size}], the size of the file"
            raise InvalidArgument("offset", f"{must}; got {offset}")
        path = job_directory(self._state_dir, request.job_id) / "artifacts" / artifact.name
        try:
            file = await asyncio.to_thread(path.open, "rb")
        except FileNotFoundError:  # with its job, between our two looks
            must = "artifact: must be there"
            raise NotFound("artifact", request.name, f"{must}; got one just deleted") from None
        with file:
            yield pb.DownloadArtifactResponse(artifact=_message(artifact))
            while offset < size:
                data = await asyncio.to_thread(_read, file, offset, min(PIECE_BYTES, size - offset))
                if not data:
                    must = f"{artifact.name}: must have {size} bytes"
                    raise Internal(f"{must}; got {offset}")
                yield pb.DownloadArtifactResponse(data=data)
                offset += len(data)

    async def _listed(self, job_id: str) -> tuple[Artifact, ...]:
        try:
            return await asyncio.to_thread(self._store.artifacts, identity().tenant, job_id)
        except JobNotFound as error:
            raise NotFound("job", job_id, str(error)) from None


def _read(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)


def _message(artifact: Artifact) -> pb.Artifact:
    return pb.Artifact(
        name=artifact.name,
        size_bytes=artifact.size_bytes,
        sha256=artifact.sha256,
        media_type=artifact.media_type,
    )
