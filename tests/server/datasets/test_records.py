"""Summaries: a text that says all of them, and no more than a list needs."""

from khot_server.datasets import builtin
from khot_server.datasets.describe import MAX_CLASSES_BYTES, within_budget
from khot_server.datasets.records import Column, ColumnType, Pixels, Summary

COLUMNS = (
    Column(name="a", type=ColumnType.FLOAT, distinct=0, missing=5),
    Column(
        name="b",
        type=ColumnType.INTEGER,
        distinct=2,
        min=0.0,
        max=1.0,
        mean=0.4,
        classes=("0", "1"),
        rarest=("1", 2),
    ),
    Column(name="ü", type=ColumnType.TEXT, distinct=1001),
)


def test_the_text_says_all():
    table = Summary(rows=5, column_count=3, target="b", columns=COLUMNS, table_bytes=9)
    assert Summary.from_json(table.to_json()) == table
    pictures = Summary(
        rows=5,
        test_rows=2,
        column_count=7,
        target="b",
        columns=COLUMNS[1:2],
        example_shape=(2, 3),
        pixels=Pixels(min=0.0, max=0.5, constant=1, missing=3),
    )
    assert Summary.from_json(pictures.to_json()) == pictures
    bare = table.without_columns()
    assert Summary.from_json(bare.to_json()) == bare and bare.column_count == 3


def test_features_are_all_but_the_target():
    table = Summary(rows=5, column_count=3, target="b", columns=COLUMNS)
    assert (table.features, list(table.names())) == (2, ["a", "b", "ü"])
    assert Summary(rows=5, column_count=3).features == 3
    digits = builtin.dataset("digits").summary
    assert digits.features == 64 and len(list(digits.names())) == digits.column_count


def test_classes_beyond_some_bytes_are_left_out_but_not_those_of_the_target():
    text = "x" * 10_000
    columns = [
        Column(name=str(i), type=ColumnType.TEXT, distinct=2, classes=(f"a{text}", f"b{text}"))
        for i in range(200)
    ]
    told = within_budget(columns, "150")
    assert [column.name for column in told] == [str(i) for i in range(200)]
    size = sum(len(text) for column in told for text in column.classes)
    assert 0.9 * MAX_CLASSES_BYTES < size <= MAX_CLASSES_BYTES
    assert told[150].classes and told[0].classes and not told[199].classes
