"""The metrics of the service. Only the API process exports them.

The engine sends its numbers with every batch, and the runner with its jobs' events.
Labels are closed sets, and every series is there from the start, at 0; those by operator
as soon as an engine has said which there are. `definitions` has the table of all.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from google.rpc import code_pb2

from khot_server.batching.batcher import Batch, Roots
from khot_server.messages import BatchRequest, BatchResult, Hello
from khot_server.metrics.definitions import OPERATIONS
from khot_server.metrics.instruments import Instruments
from khot_server.metrics.job_metrics import JobMetrics
from khot_server.metrics.root_metrics import RootMetrics

UPLOAD, DOWNLOAD = "UploadDataset", "DownloadArtifact"


class Metrics:
    """All that is told as it happens; observes the batcher. `readings` adds what is looked up.

    Args:
        methods: of the services; calls of others are counted as `other`.

    Attributes:
        instruments: all of them.
        registry: what is exported.
        jobs: what the events of jobs tell.
    """

    def __init__(self, methods: Iterable[str]) -> None:
        self.instruments = of = Instruments()
        self.registry = of.registry
        self._methods = sorted({*methods, "other"})
        each = [(method,) for method in self._methods]
        self.requests = of.tally("requests_total", product(self._methods, code_pb2.Code.keys()))
        self.request_duration = of.histogram("request_duration_seconds", each)
        self.in_flight = of.tally("requests_in_flight", each)
        self.request_bytes = of.histogram("request_message_bytes", each)
        self.response_bytes = of.histogram("response_message_bytes", each)
        uploads, downloads = self.request_bytes.of(UPLOAD), self.response_bytes.of(DOWNLOAD)
        of.reading("upload_bytes_total", lambda: {(): uploads.sum})
        of.reading("artifact_bytes_total", lambda: {(): downloads.sum})
        self._queue_wait = of.histogram("queue_wait_seconds").of()
        self._batch_rows = of.histogram("batch_rows").of()
        self._batch_scores = of.histogram("batch_scores").of()
        self._batch_duration = of.histogram("batch_compute_seconds").of()
        self._rows = of.tally("rows_total", ())
        self._draws = of.tally("draws_total", ())
        self._designs: Mapping[str, str] = {}
        self._roots = RootMetrics(of)
        self._note_batch = of.notes(self._count_batches)
        self._losses = of.tally("engine_losses_total")
        self.jobs = JobMetrics(of, self._roots)
        self._store = of.histogram("store_seconds", [(operation,) for operation in OPERATIONS])
        self._store_lock = threading.Lock()

    def of_method(self, name: str) -> "CallMetrics":
        """The series of a method; those of `other` if it is none of the service's."""
        return CallMetrics(self, name if name in self._methods else "other")

    def store_done(self, operation: str, seconds: float) -> None:
        """A transaction on the store has ended. May be told by several threads."""
        with self._store_lock:
            self._store.of(operation).observe(seconds)

    # the batcher's observer

    def engine_connected(self, hello: Hello) -> None:
        rows = hello.operators
        self._designs = {row.name: row.design for row in rows if row.design is not None}
        self._rows.expect((row.name,) for row in rows)
        self._draws.expect((row.name,) for row in rows if row.kind == "design")
        solved = [row for row in rows if row.roots]
        trained = [row.name for row in solved if row.kind == "estimator"]
        self._roots.expect([row.name for row in solved], trained)

    def engine_lost(self) -> None:
        self._losses.values[()] += 1

    def batch_done(self, batch: Batch) -> None:
        result, entries = batch.result, batch.entries
        assert result is not None
        waits = [batch.start - entry.arrival for entry in entries]
        refused = sum(entries[index].rows for index in result.refusals)
        # not the batch itself, for it holds its callers' tensors
        self._note_batch(_Noted(batch.request, result, waits, refused, batch.roots))

    def _count_batches(self, batches: Sequence["_Noted"]) -> None:
        self._batch_rows.observe_all([noted.request.rows for noted in batches])
        self._batch_scores.observe_all(
            [noted.request.rows * noted.request.call.elements for noted in batches]
        )
        self._batch_duration.observe_all([noted.result.compute_ns / 1e9 for noted in batches])
        self._queue_wait.observe_all([wait for noted in batches for wait in noted.waits])
        for request, result, _, refused, roots in batches:
            if result.failure is not None:
                continue
            call, rows = request.call, request.rows - refused
            self._rows.values[(call.operator,)] += rows
            design = self._designs.get(call.operator)
            if design is not None:
                self._draws.values[(design,)] += rows * (call.samples or 1)
            if roots is not None:
                self._roots.served(call.operator, roots, result)


class _Noted(NamedTuple):
    """What is counted of a batch.

    Attributes:
        waits: of its items in the queue, in seconds.
        refused: rows of items that the engine refused.
    """

    request: BatchRequest
    result: BatchResult
    waits: Sequence[float]
    refused: int
    roots: Roots | None


class CallMetrics:
    """The series of one method.

    Attributes:
        method: its name.
        received: to be told the size of each message that comes.
        sent: to be told the size of each that goes.
    """

    def __init__(self, metrics: Metrics, method: str) -> None:
        self.method, self._key = method, (method,)
        notes = metrics.instruments.notes
        self.received = notes(metrics.request_bytes.of(method).observe_all)
        self.sent = notes(metrics.response_bytes.of(method).observe_all)
        self._note_end = notes(self._count_ends)
        self._in_flight, self._requests = metrics.in_flight.values, metrics.requests.values
        self._duration = metrics.request_duration.of(method)

    def begin(self) -> None:
        """A call has arrived."""
        self._in_flight[self._key] += 1

    def end(self, code: str, seconds: float) -> None:
        """It ended with this status, after so long."""
        self._in_flight[self._key] -= 1
        self._note_end((code, seconds))

    def _count_ends(self, ends: Sequence[tuple[str, float]]) -> None:
        for code, _ in ends:
            self._requests[self.method, code] += 1
        self._duration.observe_all([seconds for _, seconds in ends])
