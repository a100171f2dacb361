"""Packed bits -> k-hot masks: 32 times smaller on the wire than float32.

Rows come one after another, each padded to whole bytes; unit i of a row is bit i % 8,
least significant first, of its byte i // 8.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def unpack(shape: Sequence[int], bits: bytes) -> NDArray[np.bool_]:
    """Return the mask of this shape, (n,) or (rows, n), read-only.

    Raises:
        ValueError: the bytes are not as many as the shape says.
    """
    *leading, n = shape
    rows, width = math.prod(leading), -(-n // 8)
    if len(bits) != rows * width:
        raise ValueError(
            f"unpack: bits must be {rows * width} bytes for shape {tuple(shape)}; got {len(bits)}"
        )
    packed = np.frombuffer(bits, np.uint8).reshape(rows, width)
    mask = np.unpackbits(packed, axis=1, count=n, bitorder="little").view(np.bool_)
    mask.flags.writeable = False  # as all arrays of a result
    return mask.reshape(shape)
