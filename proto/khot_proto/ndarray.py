"""Tensor messages <-> numpy arrays, without touching an element.

Each way copies the data once. `to_tensor` copies the array into the message, and
protobuf hands a message's bytes out as a copy; `from_tensor` takes that copy and
returns a read-only view of it.
"""

import math

import numpy as np
from numpy.typing import NDArray

from khot_proto.v1.tensor_pb2 import DataType, Tensor

Array = NDArray[np.generic]

# Little-endian on the wire, whatever the machine.
_NUMPY: dict[DataType, np.dtype[np.generic]] = {
    DataType.DATA_TYPE_FLOAT16: np.dtype("<f2"),
    DataType.DATA_TYPE_FLOAT32: np.dtype("<f4"),
    DataType.DATA_TYPE_FLOAT64: np.dtype("<f8"),
    DataType.DATA_TYPE_BOOL: np.dtype("?"),
    DataType.DATA_TYPE_INT32: np.dtype("<i4"),
    DataType.DATA_TYPE_INT64: np.dtype("<i8"),
    DataType.DATA_TYPE_UINT16: np.dtype("<u2"),
}
_WIRE = {dtype: number for number, dtype in _NUMPY.items()}
_NAMES = ", ".join(dtype.name for dtype in _WIRE)


class TensorError(ValueError):
    """A tensor that must not be sent or cannot be read."""


def to_tensor(array: Array) -> Tensor:
    """Return the message that carries `array`.

    Args:
        array: of dtype float16, float32, float64, bool, int32, int64 or uint16, any
            memory order and byte order.

    Raises:
        TensorError: another dtype. bfloat16 does not travel: send float32.
    """
    tensor = Tensor()
    write_tensor(tensor, array)
    return tensor


def write_tensor(tensor: Tensor, array: Array) -> None:
    """Write `array` into an empty message, such as a field of another, without a second copy.

    Raises:
        TensorError: as `to_tensor`.
    """
    number = _WIRE.get(array.dtype)
    if number is None:
        number = _WIRE.get(array.dtype.newbyteorder("<"))
        array = array.astype(_NUMPY[number]) if number else array
    if number is None:
        hint = " (bfloat16 does not travel: send float32)" if "bfloat16" in str(array.dtype) else ""
        raise TensorError(f"to_tensor: dtype must be one of {_NAMES}; got {array.dtype}{hint}")
    tensor.dtype = number
    tensor.shape.extend(array.shape)
    tensor.data = array.tobytes()  # row-major, whatever its order


def from_tensor(tensor: Tensor, data: bytes | memoryview | None = None) -> Array:
    """Return the array that `tensor` carries, read-only.

    Args:
        tensor: the message.
        data: its bytes, if they were cut out of it (`khot_proto.wire`).

    Raises:
        TensorError: the dtype is not set or not known, a dimension is negative,
            the bytes are not as many as dtype and shape say, or a bool is not 0 or 1.
    """
    dtype = _NUMPY.get(tensor.dtype)
    if dtype is None:
        raise TensorError(f"from_tensor: dtype must be one of {_NAMES}; got number {tensor.dtype}")
    shape = tuple(tensor.shape)
    if shape and min(shape) < 0:
        raise TensorError(f"from_tensor: dimensions must not be negative; got shape {shape}")
    data = tensor.data if data is None else data  # once: every access makes a copy
    # In Python integers: a product that overflowed would match a small message.
    wanted = math.prod(shape) * dtype.itemsize
    if len(data) != wanted:
        raise TensorError(
            f"from_tensor: data must have {wanted} bytes for {dtype.name} of shape {shape}; "
            f"got {len(data)}"
        )
    if dtype.kind == "b" and bytes(data).strip(b"\x00\x01"):
        raise TensorError("from_tensor: bool data must be bytes 0 and 1; got others")
    array: Array = np.ndarray(shape, dtype, data)
    if not isinstance(data, bytes):
        array.flags.writeable = False  # also where the bytes could be written
    return array
