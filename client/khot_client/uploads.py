"""An upload that goes on where it broke off, in this process or in another."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from khot_client import data_calls as calls
from khot_client.data_values import Dataset
from khot_client.errors import KhotError, NotFound, Overloaded, RequestError, Unavailable
from khot_client.io import Io
from khot_client.sources import Source, open_source, unreadable
from khot_client.watching import Patience
from khot_proto.v1 import dataset_service_pb2 as pb

Told = Callable[[int, int], object]


async def upload(
    io: Io, data: Any, progress: Told | None, reconnect_s: float, **how: Any
) -> Dataset:
    """The data set that the server made of the data."""
    source = await io.work(lambda: open_source(data, **how))
    try:
        return await _sent(io, source, progress, reconnect_s)
    finally:
        source.file.close()


async def _sent(io: Io, source: Source, progress: Told | None, reconnect_s: float) -> Dataset:
    # of its own: a server that answers, and of the data takes nothing, must not be asked for ever
    asking, reached = Patience(reconnect_s), -1
    patience = Patience(reconnect_s)
    while True:
        try:
            there = await asking.call(io, calls.get_upload(source.upload_id))
        except NotFound:
            there = calls.Upload(0, "")
        if there.dataset_id:
            if progress is not None:
                progress(source.size_bytes, source.size_bytes)
            return await asking.call(io, calls.get(there.dataset_id))
        if there.offset > reached:  # some of it has arrived: it is worth going on
            patience.progress()
        reached = there.offset
        feed = Feed(source.parts(there.offset), there.offset, source.size_bytes, progress)
        try:
            return await io.send(calls.upload(feed))
        except KhotError as error:
            if feed.error is not None:
                raise feed.error from None
            if not _passing(error):
                raise
            await patience.pause(io, error)


def _passing(error: KhotError) -> bool:
    """Whether to ask how far it is and go on.

    ABORTED is the call that broke, if the server has not yet seen that it did, and
    FAILED_PRECONDITION an offset that it has moved on from since.
    """
    if isinstance(error, Overloaded):
        return error.code == "ABORTED"
    return isinstance(error, Unavailable) or (
        type(error) is RequestError and error.code == "FAILED_PRECONDITION"
    )


class Feed:
    """The messages of an upload as gRPC takes them.

    What an iterator raises gRPC would log with its traceback, so this one ends the call itself.

    Attributes:
        error: what went wrong here, if anything did.
        stop: ends the call; set by whoever makes it.
    """

    def __init__(
        self,
        parts: Iterable[pb.UploadDatasetRequest],
        offset: int,
        size_bytes: int,
        progress: Told | None,
    ) -> None:
        self._parts, self._done, self._size = parts, offset, size_bytes
        self._progress = progress
        self.error: BaseException | None = None
        self.stop: Callable[[], object] = bool
        self._messages = self._run()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pb.UploadDatasetRequest:
        return next(self._messages)

    def _run(self) -> Iterator[pb.UploadDatasetRequest]:
        try:
            for part in self._parts:
                yield part
                self._done += len(part.data)
                if self._progress is not None:
                    self._progress(self._done, self._size)
        except GeneratorExit:
            raise
        except OSError as error:
            self.error = unreadable("data", error)
        except BaseException as error:  # of the caller's own progress
            self.error = error
        if self.error is not None:
            self.stop()
