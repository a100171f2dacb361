"""Tensors as the kernels read them: addresses, columns with a stride, contiguous rows."""

import ctypes

from torch import Tensor

Number = float | Tensor


def readable(rows: Tensor) -> Tensor:
    """Contiguous, half types as float32."""
    return rows.float().contiguous() if rows.dtype.itemsize < 4 else rows.contiguous()


def column(values: Number) -> tuple[object, int]:
    """Address and stride of a float64 column; one entry, or a number, serves all rows."""
    if isinstance(values, Tensor):
        return values.data_ptr(), 0 if values.shape[0] == 1 else values.stride(0)
    return ctypes.byref(ctypes.c_double(values)), 0


def address(tensor: Tensor | None) -> int | None:
    """Where it lies; null for None."""
    return None if tensor is None else tensor.data_ptr()


def summed(grad: Tensor | None, values: Number) -> Tensor | None:
    """The cotangent of a column: summed over the rows that one entry served."""
    if grad is None or not isinstance(values, Tensor):
        return None
    return grad if grad.shape == values.shape else grad.sum_to_size(values.shape)
