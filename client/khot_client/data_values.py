"""Data sets on the server: frozen data, with a repr to read."""

from dataclasses import dataclass
from datetime import datetime

from khot_client.values import Shown


@dataclass(frozen=True, repr=False)
class Column(Shown):
    """A column of a table.

    Attributes:
        type: float, integer, boolean or text.
        missing: rows without a value.
        distinct: how many different values; more than 1000 are told as 1001.
        min, max, mean: of a numeric column.
        classes: the values, as text, of a column with at most 100 different ones.
    """

    name: str
    type: str
    missing: int
    distinct: int
    min: float
    max: float
    mean: float
    classes: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Dataset(Shown):
    """A table on the server.

    Attributes:
        id: what a job's spec calls it.
        name: what people call it.
        create_time: None for one that the server brings.
        column_count: the target among them.
        example_shape: such as (8, 8), if an example is a picture.
        columns: in order, the target alone for pictures; left out of lists of data sets.
        target: the column that a job takes unless it says otherwise; empty: none.
    """

    id: str
    name: str
    create_time: datetime | None
    size_bytes: int
    sha256: str
    rows: int
    column_count: int
    example_shape: tuple[int, ...]
    columns: tuple[Column, ...]
    target: str
