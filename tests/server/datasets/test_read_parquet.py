"""Parquet: flat columns of numbers, truth and text."""

import datetime
import decimal
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from khot_server.datasets.limits import Limits
from khot_server.datasets.read_parquet import read_parquet
from khot_server.datasets.records import BadTable, ColumnType


def parquet(**columns) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def test_a_table_is_read(read):
    data = parquet(
        a=[1, None, 3],
        b=[0.5, float("nan"), 2.0],
        c=[True, False, None],
        d=["x", "", "y"],
        Label=pa.array(["u", "v", "u"]).dictionary_encode(),
    )
    found = read(read_parquet, data)
    c = ColumnType
    types = [column.type for column in found.summary.columns]
    assert types == [c.INTEGER, c.FLOAT, c.BOOLEAN, c.TEXT, c.TEXT]
    assert [column.missing for column in found.summary.columns] == [1, 1, 1, 1, 0]
    assert found.summary.target == "Label"
    assert found.columns["Label"].classes == ("u", "v")
    nan = np.nan
    np.testing.assert_array_equal(
        found.table.matrix("abc"),
        np.array([[1, 0.5, 1], [nan, nan, 0], [3, 2, nan]], dtype=np.float32),
    )
    assert found.table.classes("d")[0].tolist() == [0, -1, 1]


@pytest.mark.parametrize(
    ("values", "kind", "value"),
    [
        (pa.array([1, 2], pa.uint8()), ColumnType.INTEGER, 1),
        (pa.array([2**60, 2]), ColumnType.INTEGER, 2**60),
        (pa.array([1.5, 2], pa.float16()), ColumnType.FLOAT, 1.5),
        (pa.array([decimal.Decimal("1.25")] * 2), ColumnType.FLOAT, 1.25),
        (pa.array([None, None]), ColumnType.FLOAT, np.nan),
        (pa.array([3, 4]).dictionary_encode(), ColumnType.INTEGER, 3),
        (pa.array([datetime.date(2024, 1, 2)] * 2), ColumnType.TEXT, "2024-01-02"),
        (pa.array(["a", "b"], pa.large_string()), ColumnType.TEXT, "a"),
        (pa.array(["a", "b"], pa.string_view()), ColumnType.TEXT, "a"),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_every_flat_type_is_a_number_or_text(read, values, kind, value):
    found = read(read_parquet, parquet(a=values))
    assert found.columns["a"].type is kind
    if kind is ColumnType.TEXT:
        codes, texts = found.table.classes("a")
        assert texts[codes[0]] == value
    else:
        np.testing.assert_equal(float(found.table.numbers("a")[0]), value)


def test_names_with_dots_are_names(read):
    found = read(read_parquet, parquet(**{"a": [1, 2], "a.b": [3, 4]}))
    assert found.table.matrix(["a", "a.b"]).tolist() == [[1, 3], [2, 4]]


def test_the_index_of_pandas_is_no_column(read):
    assert [*read(read_parquet, parquet(a=[1], __index_level_0__=[5])).columns] == ["a"]


def test_a_text_column_with_many_texts_is_told_so(read):
    found = read(read_parquet, parquet(a=[f"t{i}" for i in range(1002)], b=range(1002)))
    assert found.columns["a"].distinct == 1001 and not found.table.codes.names
    most = read(read_parquet, parquet(a=[f"t{i}" for i in range(1000)] + [""], b=range(1001)))
    assert most.columns["a"].distinct == 1000 and most.columns["a"].missing == 1


REFUSED = {
    "lists": ({"a": [[1], [2]]}, "column 'a': must be numbers, booleans or text; got list"),
    "records": ({"a": [{"b": 1}]}, "column 'a': must be .*; got struct"),
    "bytes": ({"a": [b"x"]}, "column 'a': must be .*; got binary"),
    "no rows": ({"a": pa.array([], pa.int64())}, "must have rows and columns; got 0 rows"),
    "an infinite value": ({"a": [1.0, float("inf")]}, "'a': must be finite; got inf in row 2"),
    "no name": ({"": [1.0]}, "column 1: must have a name"),
}


@pytest.mark.parametrize(("columns", "message"), REFUSED.values(), ids=REFUSED)
def test_columns_that_cannot_be_used_are_refused(read, columns, message):
    with pytest.raises(BadTable, match=message):
        read(read_parquet, parquet(**columns))


def test_a_name_twice_is_refused(read):
    file = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), file)
    with pytest.raises(BadTable, match="got 'a' more than once"):
        read(read_parquet, file.getvalue())


@pytest.mark.parametrize("cut", [slice(0), slice(50), slice(50, None), slice(-4)])
def test_other_bytes_are_refused(read, cut):
    with pytest.raises(BadTable, match="file: must be Parquet; got"):
        read(read_parquet, parquet(a=range(100))[cut])


def test_a_damaged_page_is_refused(read):
    data = bytearray(parquet(a=np.random.RandomState(0).randint(0, 9, 1000)))
    data[20:60] = bytes(40)
    with pytest.raises(BadTable, match="file: must be Parquet; got"):
        read(read_parquet, bytes(data))


def test_a_bomb_is_refused_by_its_rows(read):
    """A million equal values are a few hundred bytes, and none that the file declares large."""
    bomb = parquet(a=np.zeros(1_000_000))
    assert len(bomb) < 10_000
    with pytest.raises(BadTable, match="must have at most 125000 values; got 1000000 rows of 1"):
        read(read_parquet, bomb, Limits(max_bytes=1_000_000))
