"""How the roots of a training were found, counted."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from khot._solve import Diagnostics

LEAST_POWER = -16  # residuals below are counted with it
_BOUNDS = np.array([10.0**power for power in range(LEAST_POWER, 4)])


@dataclass
class Roots:
    """Counts of rows that were solved for, in each tenth step.

    Attributes:
        iterations: {iterations: rows}.
        residuals: {power: rows}: of these the residual is at most 10**power, and above the power
            before it; the least is -16.
        fallback: rows that needed bisection.
        nonconverged: rows whose residual is above the solver's tolerance.
    """

    iterations: dict[int, int] = field(default_factory=dict)
    residuals: dict[int, int] = field(default_factory=dict)
    fallback: int = 0
    nonconverged: int = 0

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.iterations)

    def add(self, solved: Diagnostics) -> None:
        """Count these rows too."""
        columns = (solved.iterations, solved.residual, solved.fallback, solved.converged)
        iterations, residuals, fallback, converged = (
            column.numpy(force=True).reshape(-1) for column in columns
        )
        _count(self.iterations, iterations.tolist())
        _count(self.residuals, powers_of(residuals).tolist())
        self.fallback += int(np.count_nonzero(fallback))
        self.nonconverged += len(converged) - int(np.count_nonzero(converged))

    def merge(self, other: "Roots") -> None:
        """Count those of the other too."""
        for ours, theirs in (
            (self.iterations, other.iterations),
            (self.residuals, other.residuals),
        ):
            for key, rows in theirs.items():
                ours[key] = ours.get(key, 0) + rows
        self.fallback += other.fallback
        self.nonconverged += other.nonconverged


def powers_of(residuals: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return of each the power of ten, from -16 to 4, that is the least not below it."""
    return np.searchsorted(_BOUNDS, residuals) + LEAST_POWER


def _count(counts: dict[int, int], values: list[int]) -> None:
    for value in values:
        counts[value] = counts.get(value, 0) + 1
