"""DatasetService: files in, data sets out.

The loop only passes bytes on. They are written, synced and checked in threads of the
service's own, for a slow disk must not keep the calls of jobs waiting; tables are read in
other processes.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from khot_proto.v1 import dataset_service_pb2 as pb
from khot_proto.v1.dataset_service_pb2_grpc import DatasetServiceServicer
from khot_server.api.dataset_messages import dataset_message, header_from_message
from khot_server.api.guard import identity
from khot_server.datasets.child import ParseLimits, Parser
from khot_server.datasets.records import (
    BadPageToken,
    BadTable,
    DatasetInUse,
    DatasetNotFound,
    QuotaReached,
    UploadBusy,
    UploadConflict,
    UploadNotFound,
    WrongOffset,
)
from khot_server.datasets.store import DatasetStore
from khot_server.datasets.uploads import Sending
from khot_server.errors import (
    Aborted,
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    QuotaExceeded,
    ServiceError,
    StoreUnavailable,
)

PAGE, MAX_PAGE = 100, 1000
MAX_CHUNK = 4 << 20
SYNC_BYTES = 4 << 20  # gathered before they are written and synced
THREADS = 4
# A connection that breaks looks like the end of the stream, until the cancellation comes.
BREAK_S = 0.2

T = TypeVar("T")


class DatasetService(DatasetServiceServicer):
    """The servicer; see the comments of dataset_service.proto for what is promised.

    Args:
        store: of the data sets.
        max_upload_bytes: of a file.
        parse_limits: what reading a file may take.
    """

    def __init__(
        self,
        store: DatasetStore,
        *,
        max_upload_bytes: int = 1 << 30,
        parse_limits: ParseLimits | None = None,
    ) -> None:
        self._store, self._uploads = store, store.uploads
        self._max_upload_bytes = max_upload_bytes
        self._parser = Parser(parse_limits or ParseLimits())
        self._threads = ThreadPoolExecutor(THREADS, "datasets")
        store.sweep()

    async def UploadDataset(
        self, requests: AsyncIterator[pb.UploadDatasetRequest], context: Any
    ) -> pb.UploadDatasetResponse:
        parts, tenant = _readable(requests), identity().tenant
        first = await anext(parts, None)
        if first is None or first.WhichOneof("part") != "header":
            raise InvalidArgument("part", "part: must be a header in the first message; got none")
        header = header_from_message(first.header, self._max_upload_bytes)
        begun = await self._run(
            self._uploads.begin,
            tenant,
            first.header.upload_id,
            header,
            first.header.offset,
            undo=self._let_go,
        )
        dataset_id = begun if isinstance(begun, str) else await self._take(begun, parts)
        dataset = await self._run(self._store.get, tenant, dataset_id)
        return pb.UploadDatasetResponse(dataset=dataset_message(dataset))

    async def _take(self, sending: Sending, parts: AsyncIterator[pb.UploadDatasetRequest]) -> str:
        """Receive an upload and make a data set of it; however that ends, let go of it."""
        waiting = bytearray()
        try:
            await self._receive(sending, parts, waiting)
            await self._run(sending.file.check, sending.header)
            summary = await self._parser.parse(sending.header, sending.file.path, sending.table)
            await self._run(self._uploads.complete, sending, summary)
        except BadTable as error:
            await self._run(self._uploads.discard, sending)
            raise InvalidArgument("data", str(error)) from None
        except OSError as error:
            raise StoreUnavailable(str(error)) from error
        finally:
            await self._run(self._uploads.release, sending, bytes(waiting))
        return sending.dataset_id

    async def _receive(
        self,
        sending: Sending,
        parts: AsyncIterator[pb.UploadDatasetRequest],
        waiting: bytearray,
    ) -> None:
        """Write what comes. What is not yet written is in `waiting`, should the call break off."""
        file, header = sending.file, sending.header

        async def write() -> None:
            data = bytes(waiting)
            waiting.clear()  # before it is written, lest it be written twice
            await self._run(file.append, data, header)

        async for part in parts:
            if part.WhichOneof("part") != "data":
                raise InvalidArgument("part", "part: must be data after the header; got none")
            if len(part.data) > MAX_CHUNK:
                must = f"must have at most {MAX_CHUNK} bytes in a message"
                raise InvalidArgument("data", f"data: {must}; got {len(part.data)}")
            waiting += part.data
            if len(waiting) >= SYNC_BYTES or file.size + len(waiting) > header.size_bytes:
                await write()
        await write()
        if file.size < header.size_bytes:
            await asyncio.sleep(BREAK_S)

    async def GetUpload(self, request: pb.GetUploadRequest, context: Any) -> pb.GetUploadResponse:
        upload = await self._run(self._uploads.get, identity().tenant, request.upload_id)
        return pb.GetUploadResponse(
            offset=upload.offset,
            size_bytes=upload.header.size_bytes,
            dataset_id=upload.dataset_id or "",
        )

    async def GetDataset(
        self, request: pb.GetDatasetRequest, context: Any
    ) -> pb.GetDatasetResponse:
        tenant = identity().tenant
        dataset = await self._run(self._store.resolve, tenant, request.dataset_id)
        message = await self._run(dataset_message, dataset)  # of columns there may be many
        return pb.GetDatasetResponse(dataset=message)

    async def ListDatasets(
        self, request: pb.ListDatasetsRequest, context: Any
    ) -> pb.ListDatasetsResponse:
        size = request.page_size
        if not 0 <= size <= MAX_PAGE:
            raise InvalidArgument("page_size", f"page_size: must be in [0, {MAX_PAGE}]; got {size}")
        found, token = await self._run(
            self._store.page, identity().tenant, size or PAGE, request.page_token
        )
        return pb.ListDatasetsResponse(datasets=map(dataset_message, found), next_page_token=token)

    async def DeleteDataset(
        self, request: pb.DeleteDatasetRequest, context: Any
    ) -> pb.DeleteDatasetResponse:
        await self._run(self._store.delete, identity().tenant, request.dataset_id)
        return pb.DeleteDatasetResponse()

    def _let_go(self, begun: Sending | str) -> None:
        if isinstance(begun, Sending):
            self._uploads.release(begun)

    async def _run(
        self,
        function: Callable[..., T],
        *args: Any,
        undo: Callable[[T], None] | None = None,
    ) -> T:
        """What the function returns, from a thread; or its error as ours.

        Cancelled, it ends only when the function has: what is done next must find it done.

        Args:
            function: what to call.
            args: its arguments.
            undo: is given what it returned, if nobody else will get it.
        """
        future = asyncio.get_running_loop().run_in_executor(
            self._threads, functools.partial(function, *args)
        )
        cancelled = None
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as error:
                cancelled = error
        try:
            result = future.result()
        except Exception as error:
            if cancelled is not None:
                raise cancelled from error
            raise _service_error(error, str(args[1]) if len(args) > 1 else "") from error
        if cancelled is not None:
            if undo is not None:
                undo(result)
            raise cancelled
        return result


# What is told of an error about the data set or upload of some name.
_TOLD: dict[type[Exception], Callable[[str, str], ServiceError]] = {
    DatasetNotFound: functools.partial(NotFound, "dataset"),
    UploadNotFound: functools.partial(NotFound, "upload"),
    UploadConflict: functools.partial(AlreadyExists, "upload"),
    UploadBusy: lambda _, text: Aborted(text),
    WrongOffset: lambda name, text: FailedPrecondition(f"uploads/{name}", text),
    DatasetInUse: lambda name, text: FailedPrecondition(f"datasets/{name}", text),
    QuotaReached: lambda _, text: QuotaExceeded(text),
    BadPageToken: lambda _, text: InvalidArgument("page_token", text),
    OSError: lambda _, text: StoreUnavailable(text),  # of the files, and of the database
}


def _service_error(error: Exception, name: str) -> Exception:
    tell = next((tell for kind, tell in _TOLD.items() if isinstance(error, kind)), None)
    return error if tell is None else tell(name, str(error))


async def _readable(
    requests: AsyncIterator[pb.UploadDatasetRequest],
) -> AsyncIterator[pb.UploadDatasetRequest]:
    try:
        async for request in requests:
            yield request
    except DecodeError:
        must = "must be a message of the method"
        raise InvalidArgument("request", f"request: {must}; got other bytes") from None
