"""KHotService: items of a request -> entries for the batcher -> results, each on its own.

The way of a request: `Calls.begin` parses it, checks its items (`items.py`), and queues
their entries; as they come back, the results are put together (`replies.py`); when the
last has come, the bytes of the reply are joined and whoever waits is told. Messages are
read and written as bytes here, for a message object costs copies.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError

from khot_proto.v1 import khot_service_pb2 as pb
from khot_proto.wire import Buffer, cut, field, varint
from khot_server.api.guard import identity
from khot_server.api.items import Asked, Reader
from khot_server.api.replies import ItemReply, RefusedReply
from khot_server.batching.batcher import Batcher
from khot_server.batching.policy import BULK, INTERACTIVE
from khot_server.batching.work import Entry, Outcome, chunks
from khot_server.errors import (
    Draining,
    EngineUnavailable,
    Internal,
    InvalidArgument,
    ServiceError,
    item_status,
)

log = structlog.get_logger()

SERVICE = "khot.v1.KHotService"
# Below it protobuf's copies cost less than a walk through the bytes.
CUT_BYTES = 1 << 15
_KINDS = {
    "relaxation": pb.OPERATOR_KIND_RELAXATION,
    "design": pb.OPERATOR_KIND_DESIGN,
    "estimator": pb.OPERATOR_KIND_ESTIMATOR,
}
_PRIORITIES = {
    pb.PRIORITY_UNSPECIFIED: INTERACTIVE,
    pb.PRIORITY_INTERACTIVE: INTERACTIVE,
    pb.PRIORITY_BULK: BULK,
}
_RESULTS = pb.RelaxResponse.RESULTS_FIELD_NUMBER


@dataclass(frozen=True)
class Method:
    """One of the four: its request, whether its result has the value, its name on a stream."""

    request: Any
    read: Callable[..., Asked]
    value: bool
    on_stream: str


METHODS = {
    "Relax": Method(pb.RelaxRequest, Reader.relax, True, "relax"),
    "RelaxVjp": Method(pb.RelaxVjpRequest, Reader.relax, False, "relax_vjp"),
    "Sample": Method(pb.SampleRequest, Reader.sample, True, "sample"),
    "SampleVjp": Method(pb.SampleVjpRequest, Reader.sample, False, "sample_vjp"),
}
_ON_STREAM = {method.on_stream: method for method in METHODS.values()}
_ANSWERS = {name: pb.StreamResponse.DESCRIPTOR.fields_by_name[name].number for name in _ON_STREAM}
_ID = b"\x08"  # the key of StreamResponse.id


class Request:
    """A request under way: its entries, and its reply as far as it is known.

    Attributes:
        done: called once, when there is a reply or an error.
        wrap: makes the reply out of the parts of a response.
        entries: of all its items.
        reply: once it is there.
        error: why there is none.
    """

    __slots__ = ("_left", "_results", "done", "entries", "error", "reply", "wrap")

    def __init__(self, done: Callable[["Request"], None]) -> None:
        self.done = done
        self.wrap: Callable[[list[Buffer]], bytes] = b"".join
        self.entries: list[Entry] = []
        self.error: ServiceError | None = None
        self.reply: bytes | None = None
        self._results: list[list[Buffer]] = []
        self._left = 0

    def expect(self, path: str, asked: Asked, pieces: Sequence[tuple[int, int]], **of: Any) -> None:
        """Add an item, in so many pieces."""
        index, item = len(self._results), ItemReply(path, asked, len(pieces))
        self._results.append([])
        self._left += 1

        def told(entry: Entry, outcome: Outcome | ServiceError) -> None:
            if isinstance(outcome, ServiceError):
                self.fail(outcome)
                return
            try:
                if item.add(entry, outcome):
                    self._add(index, item.parts())
            except Exception as error:  # a fault of ours must not take the rest of the batch along
                log.exception("reply_failed")
                must = "reply: must be written without a fault"
                self.fail(Internal(f"{must}; got {type(error).__name__}, a fault of the server"))

        for first, rows in pieces:
            self.entries.append(Entry(asked.item, told, first=first, rows=rows, **of))

    def refuse(self, error: ServiceError) -> None:
        """Add an item that was refused."""
        self._results.append(field(_RESULTS, RefusedReply(error).parts()))

    def finish_if_complete(self) -> None:
        """Finish if no item is left to wait for."""
        if not self._left:
            self._finish()

    def fail(self, error: ServiceError) -> None:
        """There is no reply, for the first reason that is told."""
        if self.error is None:
            self.error = error
            self.done(self)

    def _add(self, index: int, parts: list[Buffer]) -> None:
        if self.error is not None:
            return
        self._left -= 1
        self._results[index] = field(_RESULTS, parts)
        if not self._left:
            self._finish()
        else:
            # its slot will be used again before the others have come
            self._results[index] = [b"".join(self._results[index])]

    def _finish(self) -> None:
        self.reply = self.wrap([part for parts in self._results for part in parts])
        self.done(self)


class KHotService:
    """The servicer; see the comments of khot_service.proto for what is promised."""

    def __init__(self, batcher: Batcher, limits: pb.Limits) -> None:
        self._batcher, self._limits = batcher, limits
        self._streams: set[Stream] = set()

    def handlers(self) -> grpc.GenericRpcHandler:
        """The methods, of bytes."""
        unary = grpc.unary_unary_rpc_method_handler
        methods: dict[str, Any] = {
            name: unary(self._unary(method)) for name, method in METHODS.items()
        }
        methods["Stream"] = grpc.stream_stream_rpc_method_handler(self._stream)
        methods["ListOperators"] = unary(
            self.list_operators,
            pb.ListOperatorsRequest.FromString,
            pb.ListOperatorsResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def drain(self) -> None:
        """Read nothing more from streams; what was read is answered."""
        for stream in self._streams:
            stream.stop_reading()

    def _unary(self, method: Method) -> Callable[[bytes, Any], Any]:
        async def call(raw: bytes, context: Any) -> bytes:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def done(_: Request) -> None:
                if not future.done():
                    future.set_result(None)

            request = Request(done)
            try:
                self._begin(request, method, *_parsed(method.request, raw), _deadline(context))
                await future
            finally:
                # a caller who left, or a call that failed: nobody waits for the rest
                if request.reply is None:
                    self._batcher.withdraw(request.entries)
            if request.error is not None:
                try:
                    raise request.error
                finally:
                    # or both would hold each other, by the traceback, until a collection
                    del request
            assert request.reply is not None
            return request.reply

        return call

    async def _stream(self, requests: Any, context: Any) -> None:
        del requests  # the context reads them, so that we say when
        stream = Stream(self, context, self._limits.max_stream_calls)
        self._streams.add(stream)
        try:
            await stream.run()
        finally:
            self._streams.discard(stream)
            for request in stream.open:
                self.withdraw(request)

    def withdraw(self, request: Request) -> None:
        """Nobody waits for it any more."""
        self._batcher.withdraw(request.entries)

    def begin_on_stream(
        self, raw: bytes, done: Callable[[int, Request], None], remaining_s: float | None
    ) -> Request:
        """Begin one request of a stream; `done` is told its id, and that it is done.

        Raises:
            InvalidArgument: these are not the bytes of one.
        """
        message, views = _parsed(pb.StreamRequest, raw)
        number, kind = message.id, message.WhichOneof("call")
        request = Request(lambda request: done(number, request))
        try:
            if kind is None:
                must = "must be relax, relax_vjp, sample or sample_vjp"
                raise InvalidArgument("call", f"call: {must}; got none")
            head, answer = _ID + varint(number), _ANSWERS[kind]
            request.wrap = lambda parts: b"".join((head, *field(answer, parts)))
            self._begin(request, _ON_STREAM[kind], getattr(message, kind), views, remaining_s)
        except ServiceError as error:
            request.fail(error)
        return request

    def _begin(
        self,
        request: Request,
        method: Method,
        message: Any,
        views: Sequence[memoryview] | None,
        remaining_s: float | None,
    ) -> None:
        """Check the items and queue them.

        A bad item becomes a result with a status. What no item is to blame for, such as a
        full queue or a lost engine, fails the call, so that the caller's retries see it.
        """
        batcher = self._batcher
        if not batcher.operators:
            raise EngineUnavailable("engine: must have said hello; got none yet")
        if not message.items:
            raise InvalidArgument("items", "items: must hold at least one item; got none")
        priority = _PRIORITIES.get(message.priority)
        if priority is None:
            must = "must be a Priority"
            raise InvalidArgument("priority", f"priority: {must}; got number {message.priority}")
        now = batcher.clock()
        of = {
            "tenant": identity().tenant,
            "priority": priority,
            "arrival": now,
            "deadline": float("inf") if remaining_s is None else now + remaining_s,
        }
        reader = Reader(batcher.operators, views, self._limits.max_message_bytes)
        most = batcher.queue.limits
        for index, item in enumerate(message.items):
            path = f"items[{index}]"
            try:
                asked = method.read(reader, path, item, value=method.value)
            except InvalidArgument as error:
                request.refuse(error)
                continue
            call = asked.item.call
            pieces = chunks(asked.item.rows, call, most.batch_rows, most.batch_elements)
            request.expect(path, asked, pieces, **of)
        if request.entries:
            batcher.submit(request.entries)
        else:
            request.finish_if_complete()

    async def list_operators(
        self, request: pb.ListOperatorsRequest, context: Any
    ) -> pb.ListOperatorsResponse:
        """The registry of the engines."""
        del request, context
        if not self._batcher.operators:
            raise EngineUnavailable("engine: must have said hello; got none yet")
        response = pb.ListOperatorsResponse(
            limits=self._limits, devices=self._batcher.devices, version=version("khot")
        )
        for row in self._batcher.operators.values():
            listed = response.operators.add(
                name=row.name,
                kind=_KINDS[row.kind],
                summary=row.summary,
                reference=row.reference,
                properties=row.properties,
            )
            listed.options.update(row.options)
        return response


class Stream:
    """One Stream call: reads while there is room, writes each answer as it is ready.

    A request holds its room until its answer is written, so that a caller who does not
    read is not read from either, and nothing piles up here.

    Attributes:
        open: the requests that are not done.
    """

    def __init__(self, service: KHotService, context: Any, room: int) -> None:
        self._service, self._context = service, context
        self._room = asyncio.Semaphore(room)
        self.open: set[Request] = set()
        self._ready: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._ended = False

    def stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    async def run(self) -> None:
        """Until the caller has ended his side, or the server drains, and all is answered."""
        self._reading = asyncio.ensure_future(self._read())
        try:
            while self.open or self._ready or not self._ended:
                if not self._ready:
                    self._wake.clear()
                    await self._wake.wait()
                while self._ready:
                    await self._context.write(self._ready.popleft())
                    self._room.release()
        finally:
            self._reading.cancel()
            (outcome,) = await asyncio.gather(self._reading, return_exceptions=True)
        if isinstance(outcome, asyncio.CancelledError):
            raise Draining("server: must be serving; got one that is shutting down")
        if outcome is not None:
            raise outcome

    async def _read(self) -> None:
        try:
            while True:
                await self._room.acquire()
                raw = await self._context.read()
                if raw is grpc.aio.EOF:
                    return
                remaining = _deadline(self._context)
                request = self._service.begin_on_stream(raw, self._done, remaining)
                if request.reply is None and request.error is None:
                    self.open.add(request)
        finally:
            self._ended = True
            self._wake.set()

    def _done(self, number: int, request: Request) -> None:
        reply = request.reply
        if reply is None:
            assert request.error is not None
            self._service.withdraw(request)
            reply = pb.StreamResponse(
                id=number, error=item_status(request.error)
            ).SerializeToString()
        self.open.discard(request)
        self._ready.append(reply)
        self._wake.set()


def _parsed(message_type: Any, raw: bytes) -> tuple[Any, list[memoryview] | None]:
    """The message, and the bytes of its tensors if it is large enough for a cut."""
    try:
        if len(raw) < CUT_BYTES:
            return message_type.FromString(raw), None
        skeleton, views = cut(raw, message_type.DESCRIPTOR)
        return message_type.FromString(skeleton), views
    except DecodeError:
        must = "must be a message of the method"
        raise InvalidArgument("request", f"request: {must}; got {len(raw)} other bytes") from None


def _deadline(context: Any) -> float | None:
    remaining: float | None = context.time_remaining()
    return remaining
