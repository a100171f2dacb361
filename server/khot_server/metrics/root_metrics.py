"""How roots were found, in serving and in training."""

from collections.abc import Iterable

from khot_server.batching.batcher import Roots
from khot_server.jobs.records import Counted
from khot_server.messages import BatchResult
from khot_server.metrics.definitions import SOURCES
from khot_server.metrics.instruments import Instruments, Labels, Series

SERVING, TRAINING = SOURCES


class RootMetrics:
    """Counts rows that were solved for, by operator and by who wanted them."""

    def __init__(self, of: Instruments) -> None:
        self._histograms = of.histogram("root_iterations", ()), of.histogram("root_residual", ())
        self._series: dict[Labels, tuple[Series, Series]] = {}  # of these two, by their labels
        self._fallback = of.tally("root_fallback_rows_total", ())
        self._nonconverged = of.tally("root_nonconverged_rows_total", ())

    def expect(self, served: Iterable[str], trained: Iterable[str]) -> None:
        """These operators find roots."""
        for source, names in zip(SOURCES, (served, trained), strict=True):
            for name in names:
                self._expect((name, source))

    def served(self, operator: str, roots: Roots, result: BatchResult) -> None:
        """Count the roots of a batch."""
        key = operator, SERVING
        iterations, residual = self._series[key]
        for number, rows in roots.iterations.items():
            iterations.observe(number, rows)
        residual.observe_all(roots.residuals)
        self._count(key, result.fallback_rows, result.nonconverged_rows)

    def trained(self, counted: Counted) -> None:
        """Count the roots that an attempt tells of; its residuals as the powers above them."""
        if not counted.iterations:
            return
        key = counted.operator, TRAINING
        self._expect(key)  # a job may run before there is an engine
        iterations, residual = self._series[key]
        for number, rows in counted.iterations.items():
            iterations.observe(number, rows)
        for power, rows in counted.residuals.items():
            residual.observe(10.0**power, rows)
        self._count(key, counted.fallback_rows, counted.nonconverged_rows)

    def _expect(self, key: Labels) -> None:
        iterations, residual = self._histograms
        self._series[key] = iterations.of(*key), residual.of(*key)
        for tally in (self._fallback, self._nonconverged):
            tally.expect([key])

    def _count(self, key: Labels, fallback: int, nonconverged: int) -> None:
        if fallback:
            self._fallback.values[key] += fallback
        if nonconverged:
            self._nonconverged.values[key] += nonconverged
