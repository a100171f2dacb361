"""The metrics of the service. Only the API process exports them.

The engine sends its numbers with every batch, and the runner with its jobs' events.
Labels are closed sets, and every series is there from the start, at 0.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import accumulate, product
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

from khot_server.batching.batcher import Batch
from khot_server.batching.queue import Queue
from khot_server.messages import Hello

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
    """All metrics, in a registry of their own; observes the batcher.

    What is counted at every call or batch is counted by `Tally` and `Histogram`, which cost
    a tenth of the library's own: they are written by one thread, so they need no lock.
    """

    def __init__(self, methods: Iterable[str], codes: Iterable[str], states: Iterable[str]) -> None:
        self.registry = registry = CollectorRegistry()
        methods, codes = tuple(methods), tuple(codes)
        self.requests = Tally(
            "khot_requests", "Calls answered.", ("method", "code"), product(methods, codes)
        )
        self.request_duration = Histogram(
            "khot_request_duration_seconds",
            "From a call's arrival to its end.",
            _SECONDS,
            "method",
            methods,
        )
        self.in_flight = Tally(
            "khot_requests_in_flight", "Calls under way.", ("method",), zip(methods), gauge=True
        )
        self.queue_wait = Histogram(
            "khot_queue_wait_seconds", "From an item's arrival to its batch.", _SECONDS
        )
        self.batch_rows = Histogram("khot_batch_rows", "Rows in a batch.", _ROWS)
        self.batch_duration = Histogram(
            "khot_batch_compute_seconds", "The engine's time for a batch.", _SECONDS
        )
        self.root_iterations = Histogram(
            "khot_root_iterations",
            "Root-finding iterations of a row of sigmoid top-k.",
            _ITERATIONS,
            "source",
            _SOURCES,
        )
        self.root_fallback = Tally(
            "khot_root_fallback_rows",
            "Rows that needed bisection.",
            ("source",),
            zip(_SOURCES),
        )
        for collector in (
            self.requests,
            self.request_duration,
            self.in_flight,
            self.queue_wait,
            self.batch_rows,
            self.batch_duration,
            self.root_iterations,
            self.root_fallback,
        ):
            registry.register(collector)
        self.queue_items = Gauge(
            "khot_queue_items",
            "Items, or chunks of them, waiting for an engine.",
            registry=registry,
        )
        self.queue_scores = Gauge(
            "khot_queue_scores", "Scores waiting for an engine.", registry=registry
        )
        self.engine_up = Gauge("khot_engine_up", "Engines that are there.", registry=registry)
        self.engine_losses = Counter("khot_engine_losses", "Engines that died.", registry=registry)
        self.jobs = Gauge("khot_jobs", "Jobs by state.", ["state"], registry=registry)
        for state in states:
            self.jobs.labels(state)
        self._methods = frozenset(methods)

    def of_method(self, name: str) -> "CallMetrics":
        """The series of a method; those of `other` if it is none of the service's."""
        return CallMetrics(self, name if name in self._methods else "other")

    def watch(self, queue: Queue) -> None:
        """Export the length of this queue, as it is when somebody asks."""
        self.queue_items.set_function(lambda: queue.entries)
        self.queue_scores.set_function(lambda: queue.elements)

    # the batcher's observer

    def engine_connected(self, hello: Hello) -> None:
        del hello
        self.engine_up.inc()

    def engine_lost(self) -> None:
        self.engine_up.dec()
        self.engine_losses.inc()

    def batch_done(self, batch: Batch) -> None:
        assert batch.result is not None
        self.batch_rows.observe(batch.request.rows)
        self.batch_duration.observe(batch.result.compute_ns / 1e9)
        for entry in batch.entries:
            self.queue_wait.observe(batch.start - entry.arrival)
        if batch.iterations is not None:
            for iterations, rows in batch.iterations.items():
                self.root_iterations.observe(iterations, "serving", rows)
            self.root_fallback.values[("serving",)] += batch.result.fallback_rows

    def serve(self, address: str) -> int:
        """Export at `address` from a thread of its own; return the port."""
        host, _, port = address.rpartition(":")
        server, _thread = start_http_server(int(port), host.strip("[]"), registry=self.registry)
        return int(server.server_port)


class CallMetrics:
    """The series of one method.

    Attributes:
        method: its name.
    """

    def __init__(self, metrics: Metrics, method: str) -> None:
        self.method = method
        self._key, self._metrics = (method,), metrics

    def begin(self) -> None:
        """A call has arrived."""
        self._metrics.in_flight.values[self._key] += 1

    def end(self, code: str, seconds: float) -> None:
        """It ended with this status, after so long."""
        self._metrics.in_flight.values[self._key] -= 1
        self._metrics.requests.values[self.method, code] += 1
        self._metrics.request_duration.observe(seconds, self.method)


class Tally(Collector):
    """Numbers by labels that are known from the start.

    Attributes:
        values: by the values of the labels, to be written by one thread.
    """

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        keys: Iterable[tuple[str, ...]],
        *,
        gauge: bool = False,
    ) -> None:
        self._new = partial(
            GaugeMetricFamily if gauge else CounterMetricFamily, name, text, labels=labels
        )
        self.values: dict[tuple[str, ...], float] = dict.fromkeys(keys, 0)

    def collect(self) -> Iterable[Any]:
        family = self._new()
        for key, value in self.values.items():
            family.add_metric(key, value)
        return [family]


class Histogram(Collector):
    """A histogram, by one label or none, into which many of one value may go at once."""

    def __init__(
        self,
        name: str,
        text: str,
        bounds: Sequence[float],
        label: str | None = None,
        values: Iterable[str] = ("",),
    ) -> None:
        labels = [] if label is None else [label]
        self._new = partial(HistogramMetricFamily, name, text, labels=labels)
        self._bounds, self._labelled = bounds, label is not None
        self._counts = {value: [0] * (len(bounds) + 1) for value in values}
        self._sums = dict.fromkeys(self._counts, 0.0)

    def observe(self, value: float, of: str = "", times: int = 1) -> None:
        """Count this value so many times."""
        self._counts[of][bisect_left(self._bounds, value)] += times
        self._sums[of] += value * times

    def collect(self) -> Iterable[Any]:
        family, names = self._new(), [*map(str, map(float, self._bounds)), "+Inf"]
        for value, counts in self._counts.items():
            cumulative = list(zip(names, map(float, accumulate(counts)), strict=True))
            family.add_metric([value] if self._labelled else [], cumulative, self._sums[value])
        return [family]
