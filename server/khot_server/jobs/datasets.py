"""The built-in data sets, each with a split that is the same on every machine and day."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Fixed, as part of the data set: results of all jobs compare.
SPLIT_SEED = 0
DIGITS_TEST = 500


@dataclass(frozen=True)
class Dataset:
    """Examples to train with and others to test with, x in rows (float32), y classes (int64)."""

    x: NDArray[np.float32]
    y: NDArray[np.int64]
    test_x: NDArray[np.float32]
    test_y: NDArray[np.int64]
    feature_shape: tuple[int, ...]


def load(name: str) -> Dataset:
    """Return the data set of this name, one of `khot_server.jobs.spec.DATASETS`."""
    return _LOADERS[name]()


def _digits() -> Dataset:
    from sklearn.datasets import load_digits

    pixels, classes = load_digits(return_X_y=True)
    test = _stratified(classes, DIGITS_TEST)
    x, y = (pixels / 16).astype(np.float32), classes.astype(np.int64)
    return Dataset(x[~test], y[~test], x[test], y[test], (8, 8))


def _stratified(classes: NDArray[np.int64], count: int) -> NDArray[np.bool_]:
    """Mark `count` examples at random, every class in proportion.

    Within a class, the examples get the evenly spaced places (1/2, 3/2, ...) / size in a
    random order; the `count` first places of all are taken.
    """
    # The old generator, because numpy promises never to change what it draws.
    shuffled = np.random.RandomState(SPLIT_SEED).permutation(len(classes))
    places = np.empty(len(classes))
    for label in np.unique(classes):
        members = shuffled[classes[shuffled] == label]
        places[members] = (np.arange(len(members)) + 0.5) / len(members)
    marked = np.zeros(len(classes), dtype=np.bool_)
    marked[np.argsort(places, kind="stable")[:count]] = True
    return marked


_LOADERS: dict[str, Callable[[], Dataset]] = {"digits": _digits}
