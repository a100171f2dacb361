"""The metrics of the service. Only the API process exports them.

The engine sends its numbers with every batch, and the runner with its jobs' events.
Labels are closed sets, and every series is there from the start, at 0.
"""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from threading import Lock
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from khot_server.messages import BatchRequest, BatchResult, Hello

_ITERATIONS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100)
_SOURCES = ("serving", "training")
_ROWS = tuple(4**power for power in range(10))
_SECONDS = (
    1e-4,
    2.5e-4,
    5e-4,
    1e-3,
    2.5e-3,
    5e-3,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
)


class Metrics:
    """All metrics, in a registry of their own; observes the batcher."""

    def __init__(self, methods: Iterable[str], codes: Iterable[str], states: Iterable[str]) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "khot_requests", "Calls answered.", ["method", "code"], registry=registry
        )
        self.request_duration = Histogram(
            "khot_request_duration_seconds",
            "From a call's arrival to its end.",
            ["method"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge(
            "khot_requests_in_flight", "Calls under way.", ["method"], registry=registry
        )
        self.queue_entries = Gauge(
            "khot_queue_items", "Items waiting for the engine.", registry=registry
        )
        self.queue_elements = Gauge(
            "khot_queue_scores", "Scores waiting for the engine.", registry=registry
        )
        self.queue_wait = Histogram(
            "khot_queue_wait_seconds",
            "From an item's arrival to its batch.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.batch_rows = Histogram(
            "khot_batch_rows", "Rows in a batch.", buckets=_ROWS, registry=registry
        )
        self.batch_duration = Histogram(
            "khot_batch_compute_seconds",
            "The engine's time for a batch.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.root_iterations = RowHistogram(
            "khot_root_iterations",
            "Root-finding iterations of a row of sigmoid top-k.",
            _SOURCES,
            _ITERATIONS,
        )
        registry.register(self.root_iterations)
        self.root_fallback = Counter(
            "khot_root_fallback_rows", "Rows that needed bisection.", ["source"], registry=registry
        )
        self.engine_up = Gauge("khot_engine_up", "1 if there is an engine.", registry=registry)
        self.engine_losses = Counter("khot_engine_losses", "Engines that died.", registry=registry)
        self.jobs = Gauge("khot_jobs", "Jobs by state.", ["state"], registry=registry)

        methods = tuple(methods)
        for method in methods:
            self.request_duration.labels(method)
            self.in_flight.labels(method)
            for code in codes:
                self.requests.labels(method, code)
        for source in _SOURCES:
            self.root_fallback.labels(source)
        for state in states:
            self.jobs.labels(state)

    # the batcher's observer

    def engine_connected(self, hello: Hello) -> None:
        del hello
        self.engine_up.set(1)

    def engine_lost(self) -> None:
        self.engine_up.set(0)
        self.engine_losses.inc()

    def queue_changed(self, entries: int, elements: int) -> None:
        self.queue_entries.set(entries)
        self.queue_elements.set(elements)

    def batch_done(self, request: BatchRequest, result: BatchResult, queued: list[float]) -> None:
        self.batch_rows.observe(request.rows)
        self.batch_duration.observe(result.compute_s)
        for seconds in queued:
            self.queue_wait.observe(seconds)
        for iterations, rows in result.iterations.items():
            self.root_iterations.observe("serving", int(iterations), rows)
        self.root_fallback.labels("serving").inc(result.fallback_rows)

    def serve(self, address: str) -> int:
        """Export at `address` from a thread of its own; return the port."""
        host, _, port = address.rpartition(":")
        server, _thread = start_http_server(int(port), host.strip("[]"), registry=self.registry)
        return int(server.server_port)


class RowHistogram(Collector):
    """A histogram by source into which many rows of one value go at once."""

    def __init__(
        self, name: str, text: str, sources: Iterable[str], bounds: tuple[int, ...]
    ) -> None:
        self._name, self._text, self._bounds, self._lock = name, text, bounds, Lock()
        self._counts = {source: [0] * (len(bounds) + 1) for source in sources}
        self._sums = dict.fromkeys(self._counts, 0)

    def observe(self, source: str, value: int, rows: int) -> None:
        """Count `rows` rows of this value."""
        with self._lock:
            self._counts[source][bisect_left(self._bounds, value)] += rows
            self._sums[source] += value * rows

    def collect(self) -> Iterable[Any]:
        family = HistogramMetricFamily(self._name, self._text, labels=["source"])
        names = [*map(float, self._bounds), "+Inf"]
        with self._lock:
            for source, counts in self._counts.items():
                cumulative = zip(map(str, names), map(float, accumulate(counts)), strict=True)
                family.add_metric([source], list(cumulative), self._sums[source])
        return [family]
