"""Tensors on the wire: exact, without a copy, and refused when they are not what they say."""

import tracemalloc

import numpy as np
import pytest

from khot_proto import TensorError, from_tensor, to_tensor
from khot_proto.v1.tensor_pb2 import DataType, Tensor

DTYPES = ["float16", "float32", "float64", "bool", "int32", "int64", "uint16"]
SHAPES = [(), (0,), (1,), (3, 4), (2, 0, 5), (2, 3, 4, 5)]


def sample(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    bits = np.random.default_rng(0).integers(-9, 9, shape)
    return (bits % 2 == 0) if dtype == "bool" else np.asarray(bits).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip(dtype, shape):
    array = sample(dtype, shape)
    wire = to_tensor(array).SerializeToString()
    back = from_tensor(Tensor.FromString(wire))
    assert back.dtype == array.dtype and back.shape == array.shape
    assert np.array_equal(back, array)


def test_special_floats_keep_their_bits():
    array = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 5e-324])
    assert from_tensor(to_tensor(array)).tobytes() == array.tobytes()


def test_every_wire_type_is_supported():
    names = {name.removeprefix("DATA_TYPE_").lower() for name in DataType.DESCRIPTOR.values_by_name}
    assert names - {"unspecified"} == set(DTYPES)


@pytest.mark.parametrize("make", [np.transpose, lambda a: a[::2, ::-1], lambda a: a.astype(">f4")])
def test_any_memory_order_travels_row_major_little_endian(make):
    array = make(sample("float32", (6, 4)))
    tensor = to_tensor(array)
    assert tensor.data == np.ascontiguousarray(array, dtype="<f4").tobytes()
    assert np.array_equal(from_tensor(tensor), array)


@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_each_way_copies_the_data_once(dtype):
    array = sample(dtype, (1000, 1000))
    for convert, argument in ((to_tensor, array), (from_tensor, to_tensor(array))):
        tracemalloc.start()
        result = convert(argument)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1.1 * array.nbytes, convert.__name__
        del result


def test_what_is_read_cannot_be_written():
    with pytest.raises(ValueError, match="read-only"):
        from_tensor(to_tensor(sample("float32", (3,))))[0] = 1


@pytest.mark.parametrize(
    "dtype", ["uint8", "complex64", "float128", "object", "<U3", "datetime64[s]"]
)
def test_other_types_are_refused(dtype):
    with pytest.raises(TensorError, match="to_tensor: dtype must be one of float16, .*; got"):
        to_tensor(np.zeros(3, dtype=dtype))


def test_bfloat16_is_refused_with_a_way_out():
    # numpy has no such type; ml_dtypes, which comes with JAX, registers one of this name
    bfloat16 = np.dtype([("bfloat16", "V2")])
    with pytest.raises(TensorError, match="bfloat16 does not travel: send float32"):
        to_tensor(np.zeros(3, dtype=bfloat16))


LYING = {
    "no dtype": (Tensor(shape=[1], data=b"1234"), "got number 0"),
    "an unknown dtype": (Tensor(dtype=99, shape=[1], data=b"1234"), "got number 99"),
    "too few bytes": (Tensor(dtype="DATA_TYPE_FLOAT32", shape=[2], data=b"1234"), "8 bytes.*got 4"),
    "too many bytes": (Tensor(dtype="DATA_TYPE_FLOAT32", shape=[], data=b"12345678"), "4 bytes"),
    "a negative length": (Tensor(dtype="DATA_TYPE_BOOL", shape=[-1, -1], data=b"1"), "negative"),
    "an overflow": (
        Tensor(dtype="DATA_TYPE_FLOAT32", shape=[2**32, 2**32], data=b""),
        "must have 73786976294838206464 bytes",
    ),
    "bools that are not": (
        Tensor(dtype="DATA_TYPE_BOOL", shape=[3], data=b"\x00\x02\x01"),
        "bytes 0 and 1",
    ),
}


@pytest.mark.parametrize(("tensor", "message"), LYING.values(), ids=LYING)
def test_a_message_that_lies_is_refused(tensor, message):
    with pytest.raises(TensorError, match=f"^from_tensor: .*{message}"):
        from_tensor(tensor)
