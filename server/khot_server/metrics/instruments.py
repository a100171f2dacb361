"""What counts: instruments that cost a tenth of the library's own.

Each is written by one thread at a time, so it needs no lock: by the event loop's, or by whoever
has the notes counted. Whoever scrapes is another, and may see a call counted in one series and not
yet in the next.
"""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from khot_server.messages import Array
from khot_server.metrics.definitions import BY_NAME, Definition
from khot_server.metrics.notes import Notes

T = TypeVar("T")
Labels = tuple[str, ...]
_FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


class Tally(Collector):
    """Numbers by the values of labels; with no key, one number without labels.

    Attributes:
        values: to be written.
    """

    def __init__(self, definition: Definition, keys: Iterable[Labels] = ((),)) -> None:
        self._definition = definition
        self.values: dict[Labels, float] = dict.fromkeys(keys, 0)

    def expect(self, keys: Iterable[Labels]) -> None:
        """Have these too, at 0 where they are new."""
        for key in keys:
            self.values.setdefault(key, 0)

    def collect(self) -> Iterable[Any]:
        return [_family(self._definition, list(self.values.items()))]


class Reading(Collector):
    """Numbers that are read when somebody scrapes: those of some definitions at once."""

    def __init__(
        self,
        definitions: Sequence[Definition],
        read: Callable[[], Sequence[Mapping[Labels, float]]],
    ) -> None:
        self._definitions, self._read = definitions, read

    def collect(self) -> Iterable[Any]:
        found = zip(self._definitions, self._read(), strict=True)
        return [_family(definition, values.items()) for definition, values in found]


def _family(definition: Definition, values: Iterable[tuple[Labels, float]]) -> Any:
    family = _FAMILIES[definition.kind](definition.name, definition.text, labels=definition.labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


class Series:
    """One histogram.

    Attributes:
        counts: of each bucket, the last without a bound.
        sum: of all values.
    """

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts, self.sum = [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count this value so many times."""
        self.counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times

    def observe_all(self, values: Sequence[float] | Array) -> None:
        """Count each of these values."""
        if len(values) == 1:  # most often; numpy would take ten times as long
            self.observe(float(values[0]))
            return
        found = np.bincount(np.searchsorted(self._bounds, values), minlength=len(self.counts))
        for bucket in found.nonzero()[0].tolist():
            self.counts[bucket] += int(found[bucket])
        self.sum += float(np.sum(values))


class Histogram(Collector):
    """Histograms by the values of labels; with no key, one without labels."""

    def __init__(self, definition: Definition, keys: Iterable[Labels] = ((),)) -> None:
        self._definition = definition
        self._bounds = [*map(str, map(float, definition.bounds)), "+Inf"]
        self._series: dict[Labels, tuple[Series, list[dict[str, str]]]] = {}
        for key in keys:
            self.of(*key)

    def of(self, *labels: str) -> Series:
        """The one of these labels, made if it is new."""
        known = self._series.get(labels)
        if known is None:
            # made once, for there are thousands of buckets
            named = dict(zip(self._definition.labels, labels, strict=True))
            buckets = [{**named, "le": bound} for bound in self._bounds]
            known = Series(self._definition.bounds), [*buckets, named]
            self._series[labels] = known
        return known[0]

    def collect(self) -> Iterable[Any]:
        name, text = self._definition.name, self._definition.text
        family = HistogramMetricFamily(name, text, labels=self._definition.labels)
        add = family.samples.append
        for series, (*buckets, named) in list(self._series.values()):
            counts = list(accumulate(series.counts))
            for labels, count in zip(buckets, counts, strict=True):
                add(Sample(f"{name}_bucket", labels, count))
            add(Sample(f"{name}_count", named, counts[-1]))
            add(Sample(f"{name}_sum", named, series.sum))
        return [family]


class SettledRegistry(CollectorRegistry):
    """A registry of instruments that count what was noted for them before they are read.

    Attributes:
        notes: theirs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[Notes[Any]] = []

    def collect(self) -> Iterable[Any]:
        for notes in self.notes:
            notes.settle()
        return super().collect()


class Instruments:
    """Makes instruments of the table of definitions, by their names without `khot_`.

    Attributes:
        registry: that has them all.
    """

    def __init__(self) -> None:
        self.registry = SettledRegistry()
        self._lock = threading.Lock()

    def notes(self, count: Callable[[Sequence[T]], None]) -> Callable[[T], None]:
        """Return what notes a number, so that `count` is given it with others, soon."""
        made = Notes(count, self._lock)
        self.registry.notes.append(made)
        return made.note

    def tally(self, name: str, keys: Iterable[Labels] = ((),)) -> Tally:
        """Return a counter or a gauge that is at 0 for each of the keys."""
        made = Tally(BY_NAME[f"khot_{name}"], keys)
        self.registry.register(made)
        return made

    def histogram(self, name: str, keys: Iterable[Labels] = ((),)) -> Histogram:
        """Return a histogram that is empty for each of the keys."""
        made = Histogram(BY_NAME[f"khot_{name}"], keys)
        self.registry.register(made)
        return made

    def reading(self, name: str, read: Callable[[], Mapping[Labels, float]]) -> None:
        """Export what `read` returns, whenever somebody scrapes."""
        self.readings((name,), lambda: (read(),))

    def readings(
        self, names: Sequence[str], read: Callable[[], Sequence[Mapping[Labels, float]]]
    ) -> None:
        """Export what `read` returns for each of the names."""
        self.registry.register(Reading([BY_NAME[f"khot_{name}"] for name in names], read))
