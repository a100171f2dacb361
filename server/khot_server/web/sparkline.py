"""A series of numbers as a small line of SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

WIDTH, HEIGHT = 160, 36
MARGIN = 2  # above and below, for the width of the line
MOST_POINTS = 80


@dataclass(frozen=True)
class Sparkline:
    """A line, and the numbers that it is drawn from.

    Attributes:
        line: of a path: its `d`, in a box of WIDTH times HEIGHT.
        area: the same of what lies below it.
        first, last: of the numbers.
    """

    line: str
    area: str
    first: float
    last: float


def sparkline(values: Sequence[float]) -> Sparkline | None:
    """Return the line of these numbers, all finite; None for fewer than two.

    The lowest is at the bottom and the highest on top; where all are equal, in the middle.
    Of many, each point is the mean of some.
    """
    if len(values) < 2:
        return None
    count = min(len(values), MOST_POINTS)
    ends = [place * len(values) // count for place in range(count + 1)]
    means = [fmean(values[start:end]) for start, end in pairwise(ends)]
    low, high = min(means), max(means)
    span = HEIGHT - 2 * MARGIN
    points = []
    for place, mean in enumerate(means):
        height = (mean - low) / (high - low) if high > low else 0.5
        points.append(f"{WIDTH * place / (count - 1):.1f} {HEIGHT - MARGIN - span * height:.1f}")
    line = "M" + "L".join(points)
    return Sparkline(line, f"{line}V{HEIGHT}H0Z", values[0], values[-1])
