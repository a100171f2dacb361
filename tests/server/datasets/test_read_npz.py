"""npz: arrays and never a pickle, and no size is believed."""

import io
import zipfile

import numpy as np
import pytest

from khot_server.datasets.limits import Limits
from khot_server.datasets.read_npz import read_npz
from khot_server.datasets.records import BadTable, ColumnType, Pixels


@pytest.fixture
def x():
    return np.random.RandomState(0).standard_normal((20, 3))


def test_a_table_is_read(read, npz, x):
    y = np.array(["b", "a"] * 10)
    found = read(read_npz, npz(x=x.astype(np.float32), y=y, names=np.array(["p", "q", "r"])))
    assert [*found.columns] == ["p", "q", "r", "y"] and found.summary.target == "y"
    assert found.columns["y"].classes == ("a", "b")
    assert found.columns["q"].min == x.astype(np.float32)[:, 1].min()
    assert found.columns["q"].mean == pytest.approx(x[:, 1].mean(), rel=1e-6)
    np.testing.assert_array_equal(found.table.matrix("pqr"), x.astype(np.float32))
    assert found.table.classes("y")[0].tolist() == [1, 0] * 10


def test_without_names_and_target_there_are_some_or_none(read, npz, x):
    found = read(read_npz, npz(x=x))
    assert [*found.columns] == ["x0", "x1", "x2"] and found.summary.target is None
    named = read(read_npz, npz(x=x, names=np.array(["a", "Target", "c"])))
    assert named.summary.target == "Target"


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    "dtype", ["bool", "u1", "i2", "f2", "f4", "i4", "u8", "f8", ">f8", ">i2", "longdouble"]
)
def test_values_of_every_dtype_are_kept(read, npz, dtype, order):
    values = np.arange(14).reshape(7, 2) % 5 * (1 if dtype == "bool" else 3)
    array = np.array(values.astype(dtype), order=order)
    found = read(read_npz, npz(x=array, y=array[:, 0]))
    np.testing.assert_array_equal(found.table.matrix(["x0", "x1"]), array.astype(np.float32))
    kind = ColumnType.BOOLEAN if dtype == "bool" else ColumnType.INTEGER
    assert {column.type for column in found.summary.columns} == {kind}


def test_numbers_that_float32_would_change_are_kept_as_they_are(read, npz):
    x = np.array([[2**24, 0.5], [2**24 + 1, 0.1]])
    found = read(read_npz, npz(x=np.repeat(x, 3, 0), y=np.arange(6)))
    codes, texts = found.table.classes("x0")
    assert texts == ("16777216", "16777217") and codes.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.columns["x1"].classes == ("0.1", "0.5") == found.table.classes("x1")[1]
    as32 = read(read_npz, npz(x=x.astype(np.float32)))
    assert as32.columns["x1"].classes == ("0.1", "0.5") == as32.table.classes("x1")[1]


def test_pictures_have_a_shape_and_no_columns_but_the_target(read, npz):
    x = np.random.RandomState(0).randint(0, 256, (30, 9, 8)).astype(np.uint8)
    x[:, 2, 3] = 7
    found = read(read_npz, npz(x=x, y=np.arange(30) % 3))
    assert found.summary.example_shape == (9, 8)
    assert found.summary.column_count == 73 and [*found.columns] == ["y"]
    assert found.summary.pixels == Pixels(min=0.0, max=255.0, constant=1)
    names = list(found.summary.names())
    assert names[:2] + names[-2:] == ["pixel_0_0", "pixel_0_1", "pixel_8_7", "y"]
    np.testing.assert_array_equal(found.table.matrix(names[:-1]), x.reshape(30, 72))
    assert found.table.classes("y")[0].tolist() == [0, 1, 2] * 10


def test_missing_pixels_are_counted(read, npz):
    x = np.random.RandomState(0).uniform(size=(10, 2, 2))
    x[3, 0, 1] = x[4, 1, 1] = np.nan
    x[:, 1, 0] = np.nan
    pixels = read(read_npz, npz(x=x)).summary.pixels
    assert pixels.missing == 12 and pixels.constant == 1
    assert (pixels.min, pixels.max) == (np.nanmin(x), np.nanmax(x))


def entry(name: str, data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return file.getvalue()


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


ONE = np.ones((4, 2))
REFUSED = {
    "a pickle": (
        {"x": np.array([[1, None]] * 4, dtype=object)},
        "pickles are never read; got dtype",
    ),
    "a pickle as a target": ({"x": ONE, "y": np.array([1, None] * 2)}, "y: must hold numbers or"),
    "no x": ({"y": np.ones(4)}, "must have an array x; got y"),
    "another array": (
        {"x": ONE, "z": ONE},
        "must be of x, y, names, each once, or x, t, u of a field; got x, z",
    ),
    "one dimension": ({"x": np.ones(4)}, r"x: must be numbers of shape .* of shape \(4,\)"),
    "four dimensions": ({"x": np.ones((4, 2, 2, 2))}, r"of shape \(4, 2, 2, 2\)"),
    "no rows": ({"x": np.ones((0, 2))}, "none of them 0"),
    "no columns": ({"x": np.ones((4, 0))}, "none of them 0"),
    "text": ({"x": np.full((4, 2), "a")}, "x: must be numbers"),
    "complex numbers": ({"x": ONE * 1j}, "x: must hold numbers or text; got dtype complex128"),
    "times": ({"x": ONE.astype("M8[s]")}, "x: must hold numbers or text; got dtype datetime64"),
    "records": ({"x": np.zeros((4, 2), "f4,i4")}, "x: must hold numbers or text"),
    "a long target": ({"x": ONE, "y": np.ones(5)}, r"y: must be .* \(4,\), one for each row"),
    "a wide target": ({"x": ONE, "y": np.ones((4, 1))}, r"y: must be .* of shape \(4, 1\)"),
    "few names": ({"x": ONE, "names": np.array(["a"])}, r"names: must be text of shape \(2,\)"),
    "a name twice": ({"x": ONE, "names": np.array(["a", "a"])}, "got 'a' more than once"),
    "the target's name": (
        {"x": ONE, "y": np.ones(4), "names": np.array(["a", "y"])},
        "names: must not have 'y'",
    ),
    "names of pixels": (
        {"x": np.ones((4, 2, 1)), "names": np.array(["a", "b"])},
        "names: must not be given for pictures",
    ),
    "other bytes as text": (
        {"x": ONE, "y": np.array([b"\xff", b"a", b"b", b"c"])},
        "y: must be text, UTF-8",
    ),
    "half a character": (
        {"x": ONE, "y": np.array(["\ud800", "a", "b", "c"])},
        "y: must be text, UTF-8",
    ),
    "an infinite value": ({"x": np.array([[1, 2], [np.inf, 2]])}, "'x0': must be finite; got inf"),
    "an infinite pixel": (
        {"x": np.array([[[1, 2]], [[1, -np.inf]]])},
        "must be finite; got infinite values of pixel_0_1",
    ),
    "an infinite target": ({"x": ONE, "y": np.full(4, np.inf)}, "column 'y': must be finite"),
    "no pixel with a value": ({"x": np.full((4, 2, 2), np.nan)}, "must have values; got only NaN"),
}


@pytest.mark.parametrize(("arrays", "message"), REFUSED.values(), ids=REFUSED)
def test_arrays_that_are_no_table_are_refused(read, npz, arrays, message):
    with pytest.raises(BadTable, match=message):
        read(read_npz, npz(**arrays))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "must be an npz file"),
        (b"a,b\n1,2\n", "must be an npz file"),
        (npy(ONE), "must be an npz file"),
        (entry("x.npy", b"other"), "x: must be an array of numpy"),
        (entry("x.npy", npy(ONE)[:-8]), r"x: must have 64 bytes for its shape \(4, 2\); got 56"),
        (entry("x.npy", npy(ONE) + b"more"), "must have 64 bytes .*; got 68"),
        (entry("x.npy", npy(ONE).replace(b"(4, 2)", b"(-4, 2)")), "must have|must be"),
        (entry("x.npy", npy(ONE).replace(b"\x93NUMPY\x01", b"\x93NUMPY\x09")), "must be an array"),
    ],
)
def test_other_bytes_are_refused(read, data, message):
    with pytest.raises(BadTable, match=message):
        read(read_npz, data)


def test_a_damaged_file_is_refused(read, npz, x):
    data = bytearray(npz(x=x))
    data[200] ^= 0xFF
    with pytest.raises(BadTable, match="must be an npz file; got Bad CRC-32"):
        read(read_npz, bytes(data))
    with pytest.raises(BadTable, match="must be an npz file"):
        read(read_npz, npz(x=x)[:-30])


def test_a_bomb_is_refused_by_the_size_it_declares(read):
    bomb = entry("x.npy", npy(np.zeros((1000, 1000))))
    assert len(bomb) < 10_000
    with pytest.raises(BadTable, match="arrays: must have at most 1000000 bytes uncompressed; got"):
        read(read_npz, bomb, Limits(max_bytes=1_000_000))


def test_a_bomb_that_declares_too_little_is_refused_by_what_comes_out(read):
    """Its headers say 192 bytes; nothing more is unpacked, and that has another checksum."""
    bomb = bytearray(
        entry("x.npy", npy(np.zeros((1000, 1000))).replace(b"(1000, 1000)", b"(4, 2)      "))
    )
    small = (128 + 64).to_bytes(4, "little")
    for mark, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        place = bomb.index(mark) + offset
        bomb[place : place + 4] = small
    with pytest.raises(BadTable, match="must be an npz file; got Bad CRC-32"):
        read(read_npz, bytes(bomb), Limits(max_bytes=1_000_000))


def test_an_array_that_claims_to_be_huge_takes_no_memory(read):
    huge = entry("x.npy", npy(ONE).replace(b"(4, 2), }", b"(4000000000000, 2), }"))
    with pytest.raises(
        BadTable, match="must have 64000000000000 bytes for its shape|must be an ar"
    ):
        read(read_npz, huge)


def test_an_encrypted_entry_is_refused(read, npz, x):
    data = bytearray(npz(x=x))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + offset] |= 1
    with pytest.raises(BadTable, match="x: must not be encrypted"):
        read(read_npz, bytes(data))
