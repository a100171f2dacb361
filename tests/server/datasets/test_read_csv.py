"""CSV: types by their values, and every fault with its line."""

import csv
import io

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from khot_server.datasets import read_csv as module
from khot_server.datasets.limits import Limits
from khot_server.datasets.read_csv import read_csv
from khot_server.datasets.records import BadTable, ColumnType


def test_a_table_is_read(read):
    text = """id,height,member,city,label
    1, 1.5 ,true,Bern,0
    2,,FALSE,NA,1
    3,2e1,True,"Basel, CH",1
    4,nan,,Bern,0
    """
    found = read(read_csv, text.encode())
    columns = found.columns
    assert found.summary.rows == 4 and found.summary.column_count == 5
    assert found.summary.target == "label"
    types = [column.type for column in found.summary.columns]
    c = ColumnType
    assert types == [c.INTEGER, c.FLOAT, c.BOOLEAN, c.TEXT, c.INTEGER]
    assert [column.missing for column in found.summary.columns] == [0, 2, 1, 1, 0]
    height = columns["height"]
    assert (height.min, height.max, height.mean, height.distinct) == (1.5, 20.0, 10.75, 2)
    assert columns["city"].classes == ("Basel, CH", "Bern") and columns["city"].min is None
    assert columns["member"].classes == ("false", "true")
    assert columns["label"].classes == ("0", "1") and columns["label"].rarest == ("0", 2)
    table = found.table
    np.testing.assert_array_equal(
        table.matrix(["member", "height"]),
        np.array([[1, 1.5], [0, np.nan], [1, 20], [np.nan, np.nan]], dtype=np.float32),
    )
    codes, texts = table.classes("city")
    assert codes.tolist() == [1, -1, 0, 1] and texts == ("Basel, CH", "Bern")


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2.0", "-3e2"], ColumnType.INTEGER),
        (["1", "0.5"], ColumnType.FLOAT),
        (["+.5", "5."], ColumnType.FLOAT),
        (["true", "False"], ColumnType.BOOLEAN),
        (["true", "1"], ColumnType.TEXT),
        (["1_000", "2"], ColumnType.TEXT),
        (["\u0661", "2"], ColumnType.TEXT),
        (["NA", "NaN"], ColumnType.FLOAT),
        (["0x10", "1"], ColumnType.TEXT),
        (["2024-01-01", "1"], ColumnType.TEXT),
        (["inf", "of"], ColumnType.TEXT),
    ],
)
def test_the_type_is_that_of_the_values(read, cells, kind):
    text = "a,b\n" + "".join(f"{cell},1\n" for cell in cells)
    assert read(read_csv, text.encode()).columns["a"].type is kind


def test_a_column_that_turns_out_to_be_text_late_keeps_its_first_cells(read, monkeypatch):
    monkeypatch.setattr(module, "CELLS_AT_ONCE", 4)
    cells = ["01", "1", "2", "3", "x", "01"]
    text = "a,b\n" + "".join(f"{cell},{i}\n" for i, cell in enumerate(cells))
    found = read(read_csv, text.encode())
    assert found.columns["a"].classes == ("01", "1", "2", "3", "x")
    assert found.columns["a"].rarest == ("1", 1)
    assert found.table.numbers("b").tolist() == [0, 1, 2, 3, 4, 5]


REFUSED = {
    "nothing": (b"", "must have a header line; got an empty file"),
    "a header alone": (b"a,b\n", "must have rows and columns; got 0 rows of 2 columns"),
    "a short line": (b"a,b\n1,2\n\n3\n", "line 4: must have 2 cells, as the header; got 1"),
    "a long line": (b"a,b\n1,2,3\n", "line 2: must have 2 cells, as the header; got 3"),
    "a long line after one of two lines": (b'a,b\n"1\n2",2\n1,2,3\n', "line 4: must have 2 cells"),
    "a name twice": (b"a,b,a\n1,2,3\n", "must have names of their own; got 'a' more than once"),
    "no name": (b"a,,c\n1,2,3\n", "column 2: must have a name; got none"),
    "numbers for names": (b"1,2\n3,4\n", "line 1: must be a header of names; got numbers, 1"),
    "another separator": (b"a;b\n1;2\n", "must be separated by commas; got ';' in 'a;b'"),
    "an open quote": (b'a,b\n"1,2\n', "line 2: must be CSV; got: unexpected end of data"),
    "a quote and more": (b'a,b\n"1"x,2\n', "line 2: must be CSV"),
    "another encoding": ("a,b\n\xfc,1\n".encode("latin-1"), "must be UTF-8; got byte 0xfc"),
    "UTF-16": ("a,b\n1,2\n".encode("utf-16"), "must be UTF-8; got byte 0xff after line 0"),
    "infinite": (b"a,b\n1,2\n-inf,2\n", "column 'a': must be finite; got -inf in row 2"),
    "more than a float": (b"a,b\n1e999,2\n", "column 'a': must be finite; got inf in row 1"),
}


@pytest.mark.parametrize(("data", "message"), REFUSED.values(), ids=REFUSED)
def test_a_file_that_is_no_table_is_refused(read, data, message):
    with pytest.raises(BadTable, match=message):
        read(read_csv, data)


def test_a_table_beyond_the_limits_is_refused(read, monkeypatch):
    monkeypatch.setattr(module, "CELLS_AT_ONCE", 10)
    data = b"a,b\n" + b"1,2\n" * 100
    assert read(read_csv, data, Limits(max_bytes=200 * 8)).summary.rows == 100
    with pytest.raises(BadTable, match="must have at most 199 values; got 100 rows of 2 columns"):
        read(read_csv, data, Limits(max_bytes=199 * 8))
    names = ",".join(f"c{i}" for i in range(100_001))
    with pytest.raises(BadTable, match="must have at most 100000 columns; got 100001"):
        read(read_csv, f"{names}\n".encode())


def test_a_mark_at_the_beginning_and_other_line_ends_do_not_matter(read):
    found = read(read_csv, b"\xef\xbb\xbfa,b\r\n1,2\r\n3,4")
    assert [*found.columns] == ["a", "b"] and found.table.numbers("b").tolist() == [2, 4]


@pytest.mark.parametrize(
    ("names", "target"),
    [
        (["a", "Y", "Label"], "Label"),
        (["class", "TARGET"], "TARGET"),
        (["y", "x"], "y"),
        (["a", "b"], None),
    ],
)
def test_the_target_is_told_by_its_name(read, names, target):
    text = ",".join(names) + "\n" + ",".join("1" for _ in names) + "\n"
    assert read(read_csv, text.encode()).summary.target == target


MANY = 1001


def test_of_a_text_column_with_many_texts_nothing_is_stored_but_its_summary(read):
    text = "a,b,c\n" + "".join(f"t{i},s{i % 1000},{i}\n" for i in range(MANY)) + ",s1,0\n"
    found = read(read_csv, text.encode())
    assert (found.columns["a"].distinct, found.columns["a"].missing) == (1001, 1)
    assert found.columns["a"].rarest is None
    assert found.columns["b"].distinct == 1000 and found.columns["b"].rarest == ("s10", 1)
    assert found.table.codes.names == ("b",)


texts = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8
).map(str.strip)
cells = st.one_of(
    st.none(),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
    texts.filter(lambda text: text.lower() not in module.MISSING),
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=12))
def test_what_csv_writes_is_read_again(read, rows):
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerows([("first", "second"), *rows])
    found = read(read_csv, file.getvalue().encode())
    assert found.summary.rows == len(rows)
    for place, name in enumerate(("first", "second")):
        written = [row[place] for row in rows]
        column = found.columns[name]
        assert column.missing == written.count(None)
        if column.is_number:
            values = found.table.numbers(name).astype(float)
            wanted = [np.nan if cell is None else _number(cell) for cell in written]
            np.testing.assert_array_equal(values, np.array(wanted, dtype=float))
        elif column.type is ColumnType.TEXT:
            codes, known = found.table.classes(name)
            shown = [None if code < 0 else known[code] for code in codes]
            assert shown == [None if cell is None else str(cell) for cell in written]


def _number(cell) -> float:
    return (
        {"true": 1.0, "false": 0.0}.get(str(cell).lower()) if str(cell).isalpha() else float(cell)
    )
