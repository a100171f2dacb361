"""Packed bits become the mask they stand for."""

import numpy as np
import pytest

from khot_client.packing import unpack


@pytest.mark.parametrize("shape", [(1,), (8,), (9,), (784,), (1, 1), (3, 7), (3, 8), (5, 17)])
def test_unpacking_undoes_packing(shape):
    mask = np.random.default_rng(0).random(shape) < 0.5
    packed = np.packbits(mask, axis=-1, bitorder="little").tobytes()
    got = unpack(shape, packed)
    assert got.dtype == np.bool_ and got.shape == shape
    assert (got == mask).all()


def test_the_first_unit_is_the_lowest_bit():
    assert unpack((9,), b"\x01\x01").nonzero()[0].tolist() == [0, 8]


def test_masks_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        unpack((3,), b"\x00")[0] = True


def test_a_wrong_number_of_bytes_is_refused():
    with pytest.raises(ValueError, match=r"must be 4 bytes for shape \(2, 9\); got 3"):
        unpack((2, 9), b"\x00" * 3)
