"""What is known of a data set without its table, as frozen data; and the errors about it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

# Different values of a column are counted so far; one more stands for more.
MAX_COUNTED = 1000


class DatasetNotFound(LookupError):
    """This tenant has no data set of that id, and none is built in under that name."""


class DatasetInUse(Exception):
    """A job that has not ended needs the data set."""


class UploadNotFound(LookupError):
    """Nothing of such an upload is kept."""


class UploadConflict(ValueError):
    """This tenant gave the upload id to another file before."""


class UploadBusy(Exception):
    """Another call is at the same upload."""


class WrongOffset(ValueError):
    """The bytes would not follow those that are there."""


class BadPageToken(ValueError):
    """A token that no page came with."""


class QuotaReached(Exception):
    """The data sets of the tenant take as much room as they may."""


class BadTable(ValueError):
    """The bytes are not those that were declared, or hold no table that can be used."""


class Format(StrEnum):
    """How a file holds a table; the names of `DatasetFormat` in dataset_service.proto."""

    NPZ = "NPZ"
    CSV = "CSV"
    PARQUET = "PARQUET"


class ColumnType(StrEnum):
    """What a column holds; the names of `ColumnType` in dataset_service.proto."""

    FLOAT = "FLOAT"
    INTEGER = "INTEGER"
    BOOLEAN = "BOOLEAN"
    TEXT = "TEXT"


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table.

    Attributes:
        missing: rows without a value.
        distinct: different values, at most MAX_COUNTED + 1.
        min: the least value; None without numbers. So are `max` and `mean`.
        classes: the values as text, in order, if there are at most 100.
        rarest: a value with the fewest rows, as text, and how many those are; None if there
            are more than MAX_COUNTED.
    """

    name: str
    type: ColumnType
    missing: int = 0
    distinct: int
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    classes: tuple[str, ...] = ()
    rarest: tuple[str, int] | None = None

    @property
    def is_number(self) -> bool:
        """Whether it can be a feature."""
        return self.type is not ColumnType.TEXT


@dataclass(frozen=True, kw_only=True)
class Pixels:
    """The features of pictures, all together.

    Attributes:
        missing: pixels of all rows without a value.
        min: the least value of all; 0 if there is none. So is `max`.
        constant: pixels that are the same in all rows.
    """

    missing: int = 0
    min: float
    max: float
    constant: int


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What is known of a table.

    Attributes:
        rows: with those for the test.
        test_rows: how many of them, the last ones, are for the test alone.
        column_count: with the target.
        target: the column that jobs take as theirs unless they say otherwise; None: none.
        columns: in order; of pictures the target alone.
        example_shape: (height, width) of pictures, else empty.
        pixels: of pictures, else None.
        table_bytes: what it takes on the disk.
    """

    rows: int
    test_rows: int = 0
    column_count: int
    target: str | None = None
    columns: tuple[Column, ...] = ()
    example_shape: tuple[int, ...] = ()
    pixels: Pixels | None = None
    table_bytes: int = 0

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        """The columns that are listed."""
        return {column.name: column for column in self.columns}

    def names(self) -> Iterator[str]:
        """All columns in order, the pixels of pictures among them."""
        if self.pixels is not None:
            yield from pixel_names(self.example_shape)
        yield from self.by_name

    @property
    def features(self) -> int:
        """How many columns there are but the target."""
        return self.column_count - (self.target is not None)

    def without_columns(self) -> "Summary":
        """What a list of data sets tells."""
        return replace(self, columns=())

    def to_json(self) -> str:
        """Return the text of it."""
        values = _given(self) | {"columns": [_given(column) for column in self.columns]}
        if self.pixels is not None:
            values["pixels"] = _given(self.pixels)
        return json.dumps(values, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> "Summary":
        """Return the summary in a text that `to_json` made."""
        values = json.loads(text)
        values["columns"] = tuple(map(_column, values["columns"]))
        values["example_shape"] = tuple(values.get("example_shape", ()))
        if "pixels" in values:
            values["pixels"] = Pixels(**values["pixels"])
        return Summary(**values)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A table to train on.

    Attributes:
        id: what a spec calls it; of a built-in one its name.
        tenant: whose it is; None: built in, everybody's.
        create_time: None: built in.
        size_bytes: of the uploaded file.
        sha256: of the uploaded file; of a built-in one, of its values.
        format: of the uploaded file; None: built in.
    """

    id: str
    tenant: str | None = None
    name: str
    create_time: datetime | None = None
    size_bytes: int = 0
    sha256: str
    format: Format | None = None
    summary: Summary

    @property
    def row_id(self) -> str | None:
        """The key of its row; None: built in, there is none."""
        return None if self.tenant is None else self.id


@dataclass(frozen=True, kw_only=True)
class Header:
    """What an upload will be; see `UploadHeader` of dataset_service.proto."""

    name: str
    format: Format
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Upload:
    """How far an upload is.

    Attributes:
        offset: bytes that are durable.
        dataset_id: once it was completed.
    """

    header: Header
    offset: int
    dataset_id: str | None


def pixel_names(shape: tuple[int, ...]) -> Iterator[str]:
    """The features of pictures of (height, width), row by row."""
    height, width = shape
    return (f"pixel_{row}_{column}" for row in range(height) for column in range(width))


def _given(record: Any) -> dict[str, Any]:
    """The fields without those that are empty: there may be a hundred thousand columns."""
    values = ((field.name, getattr(record, field.name)) for field in fields(record))
    return {name: value for name, value in values if value is not None and value != ()}


def _column(values: dict[str, Any]) -> Column:
    rarest = values.get("rarest")
    frozen = {"type": ColumnType(values["type"]), "classes": tuple(values.get("classes", ()))}
    return Column(**values | frozen | {"rarest": None if rarest is None else tuple(rarest)})
