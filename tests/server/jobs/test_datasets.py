"""The built-in data sets."""

import hashlib

import numpy as np

from khot_server.jobs.datasets import load


def test_digits_are_split_once_and_for_all():
    data = load("digits")
    assert data.x.shape == (1297, 64) and data.test_x.shape == (500, 64)
    assert data.feature_shape == (8, 8)
    for x, y in ((data.x, data.y), (data.test_x, data.test_y)):
        assert (x.dtype, y.dtype) == (np.float32, np.int64)
        assert x.min() == 0 and x.max() == 1 and set(y.tolist()) == set(range(10))
    assert hashlib.sha256(data.test_x.tobytes()).hexdigest()[:16] == "d4fb95db65494ead"


def test_every_class_has_its_share_of_the_test_examples():
    data = load("digits")
    trained, tested = np.bincount(data.y), np.bincount(data.test_y)
    assert np.abs(tested - 500 * (trained + tested) / 1797).max() <= 1
