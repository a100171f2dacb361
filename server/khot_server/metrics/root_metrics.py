"""How roots were found, in serving and in training."""

from collections.abc import Iterable, Mapping

from khot_server.batching.batcher import Batch
from khot_server.jobs.records import Counted
from khot_server.metrics.definitions import SOURCES
from khot_server.metrics.instruments import Instruments, Labels

SERVING, TRAINING = SOURCES


class RootMetrics:
    """Counts rows that were solved for, by operator and by who wanted them."""

    def __init__(self, of: Instruments) -> None:
        self._iterations = of.histogram("root_iterations", ())
        self._residual = of.histogram("root_residual", ())
        self._fallback = of.tally("root_fallback_rows_total", ())
        self._nonconverged = of.tally("root_nonconverged_rows_total", ())

    def expect(self, served: Iterable[str], trained: Iterable[str]) -> None:
        """These operators find roots."""
        for source, names in zip(SOURCES, (served, trained), strict=True):
            for name in names:
                self._expect((name, source))

    def served(self, batch: Batch) -> None:
        """Count the roots of a batch, if it has some."""
        if batch.roots is None:
            return
        assert batch.result is not None
        key = batch.request.call.operator, SERVING
        self._count(key, batch.roots.iterations)
        self._residual.of(*key).observe_all(batch.roots.residuals)
        self._fallback.values[key] += batch.result.fallback_rows
        self._nonconverged.values[key] += batch.result.nonconverged_rows

    def trained(self, counted: Counted) -> None:
        """Count the roots that an attempt tells of; its residuals as the powers above them."""
        if not counted.iterations:
            return
        key = counted.operator, TRAINING
        self._expect(key)  # a job may run before there is an engine
        self._count(key, counted.iterations)
        residual = self._residual.of(*key)
        for power, rows in counted.residuals.items():
            residual.observe(10.0**power, rows)
        self._fallback.values[key] += counted.fallback_rows
        self._nonconverged.values[key] += counted.nonconverged_rows

    def _expect(self, key: Labels) -> None:
        for histogram in (self._iterations, self._residual):
            histogram.of(*key)
        for tally in (self._fallback, self._nonconverged):
            tally.expect([key])

    def _count(self, key: Labels, iterations: Mapping[int, int]) -> None:
        series = self._iterations.of(*key)
        for number, rows in iterations.items():
            series.observe(number, rows)
