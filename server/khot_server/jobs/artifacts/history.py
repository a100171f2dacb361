"""What was measured in the course of a training, and metrics.csv."""

import csv
import io
import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from khot_server.jobs.records import Point


class Measured(NamedTuple):
    """One value of one measurement; `name` is without that of the stage."""

    step: int
    epoch: int
    stage: str
    name: str
    value: float


class Curve(NamedTuple):
    """A measurement over the epochs of a stage."""

    epochs: NDArray[np.int64]
    values: NDArray[np.float64]


class History:
    """The points of a training, of all its attempts.

    An attempt that goes on from a checkpoint may tell again what the one before it told. So
    there is one value for each measurement and step: the one told last.
    """

    def __init__(self, points: Iterable[Point] = ()) -> None:
        self._values: dict[tuple[int, str, str], Measured] = {}
        for point in points:
            self.add(point)

    def add(self, point: Point) -> None:
        """Add what was told; names may begin with the stage's, as those of `khot.training` do."""
        for full, value in point.metrics.items():
            name = full.removeprefix(f"{point.stage}.")
            measured = Measured(point.step, point.epoch, point.stage, name, value)
            self._values[point.step, point.stage, name] = measured

    def __iter__(self) -> Iterator[Measured]:
        """All values, in the order of steps, then names."""
        return iter(self._values[key] for key in sorted(self._values))

    @property
    def stages(self) -> tuple[str, ...]:
        """Their names, in the order of the training."""
        first: dict[str, int] = {}
        for step, stage, _ in self._values:
            first[stage] = min(step, first.get(stage, step))
        return tuple(sorted(first, key=lambda stage: first[stage]))

    def names(self, stage: str) -> frozenset[str]:
        """What was measured in a stage."""
        return frozenset(name for _, of, name in self._values if of == stage)

    def curve(self, stage: str, name: str) -> Curve:
        """Return a measurement over the epochs of its stage, one value for each.

        What was told several times in an epoch, each time as the mean of the steps since the
        last, is the mean of the epoch.
        """
        told = sorted(m for m in self._values.values() if (m.stage, m.name) == (stage, name))
        steps = np.array([m.step for m in told], np.int64)
        values = np.array([m.value for m in told], np.float64)
        weights = np.diff(steps, prepend=0)
        if len(told) > 1:  # the first one of a stage knows not where that began
            weights[0] = min(weights[0], weights[1:].max())
        epochs, place = np.unique([m.epoch for m in told], return_inverse=True)
        means = np.bincount(place, weights * values) / np.bincount(place, weights)
        return Curve(epochs, means)

    def to_csv(self) -> bytes:
        """Return metrics.csv: a line for each value, in columns `step,epoch,stage,metric,value`.

        What was not a number is empty. With pandas, a column for each measurement:

            table = pandas.read_csv("metrics.csv")
            table.pivot(index="step", columns=["stage", "metric"], values="value")
        """
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(("step", "epoch", "stage", "metric", "value"))
        for measured in self:
            known = math.isfinite(measured.value)
            lines.writerow((*measured[:4], repr(float(measured.value)) if known else ""))
        return text.getvalue().encode()
