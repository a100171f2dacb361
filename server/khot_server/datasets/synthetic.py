"""A table in which 10 of 500 columns decide the class, and looking at one at a time misleads.

The columns are normal. Four of the informative ones decide the first bit of the class by
their sum; three pairs of them decide the second by a b + 0.6 (a + b), summed over the pairs.
Eight other columns are noisy copies of the first four: by their means alone they seem to
tell more than the pairs do, but beside the originals they tell nothing. So a test of each
column by itself (SelectKBest with f_classif) finds the four and six copies.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

ROWS, COLUMNS = 2000, 500
NAMES = tuple(f"x{i}" for i in range(COLUMNS))
TARGET = "label"
SEED = 0
SUMMED, PAIRED, COPIES = 4, 6, 8
MARGINAL = 0.6  # of each of a pair by itself: what a gradient can begin with
LIKENESS = 0.7  # correlation of a copy with its original


@cache
def make() -> tuple[NDArray[np.float32], NDArray[np.int64], tuple[int, ...]]:
    """Return x (rows, columns), the classes, and the informative columns, ascending.

    Every value has three decimals, lest the logarithm of another machine change its last bit.
    """
    # The old generator, because numpy promises never to change what it draws.
    draw = np.random.RandomState(SEED)
    x = draw.standard_normal((ROWS, COLUMNS))
    order = draw.permutation(COLUMNS)
    chosen, copies = order[: SUMMED + PAIRED], order[SUMMED + PAIRED :][:COPIES]
    originals = x[:, np.resize(chosen[:SUMMED], COPIES)]
    x[:, copies] = LIKENESS * originals + np.sqrt(1 - LIKENESS**2) * x[:, copies]
    x = np.round(x, 3)
    summed, a, b = (x[:, chosen[part]] for part in _parts())
    sums = summed.sum(1)
    pairs = (a * b + MARGINAL * (a + b)).sum(1)
    y = 2 * (sums > np.median(sums)) + (pairs > np.median(pairs))
    return x.astype(np.float32), y.astype(np.int64), tuple(sorted(chosen.tolist()))


def informative() -> tuple[str, ...]:
    """Return the columns that decide the class; nothing in the table tells them."""
    return tuple(NAMES[i] for i in make()[2])


def _parts() -> tuple[slice, slice, slice]:
    """Of the informative ones: those that are summed, and the two sides of the pairs."""
    end = SUMMED + PAIRED
    return slice(SUMMED), slice(SUMMED, end, 2), slice(SUMMED + 1, end, 2)
