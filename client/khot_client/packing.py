"""Masks as they travel -> arrays of bool: bits, the chosen units, or zeros and ones.

In bits, rows come one after another, each padded to whole bytes; unit i of a row is bit
i % 8, least significant first, of its byte i // 8.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from khot_proto import from_tensor
from khot_proto.v1 import khot_service_pb2 as pb


def mask(message: pb.Mask) -> NDArray[np.bool_]:
    """Return the mask, read-only, however it travelled.

    Raises:
        ValueError: it contradicts itself, or travelled in a way that is not known here.
    """
    shape = tuple(message.shape)
    match message.WhichOneof("form"):
        case "bits":
            return unpack(shape, message.bits)
        case "indices":
            return _from_units(shape, message.indices)
        case "dense":
            dense = from_tensor(message.dense)
            if dense.shape != shape:
                raise ValueError(f"mask: must have shape {shape}; got {dense.shape}")
            return _closed(dense != 0)
    raise ValueError("mask: must be bits, indices or dense; got none of them")


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
    unpacked = np.unpackbits(packed, axis=1, count=n, bitorder="little").view(np.bool_)
    return _closed(unpacked.reshape(shape))


def _from_units(shape: tuple[int, ...], indices: pb.Indices) -> NDArray[np.bool_]:
    *leading, n = shape
    rows, units = math.prod(leading), from_tensor(indices.units)
    counts = np.array(indices.counts, np.int64)
    if len(counts) != rows or (counts < 0).any() or units.shape != (counts.sum(),):
        raise ValueError(f"mask: must have units of {rows} rows; got {len(counts)} counts of them")
    places = units.astype(np.int64)
    if len(places) and not (places.min() >= 0 and places.max() < n):
        raise ValueError(f"mask: units must be in [0, {n}); got others")
    found = np.zeros(rows * n, np.bool_)
    found[np.repeat(np.arange(rows) * n, counts) + places] = True
    return _closed(found.reshape(shape))


def _closed(array: NDArray[np.bool_]) -> NDArray[np.bool_]:
    array.flags.writeable = False  # as all arrays of a result
    return array
