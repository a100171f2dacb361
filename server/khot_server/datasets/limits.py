"""How large a table may be, and what its columns may be called."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from khot_server.datasets.records import BadTable

MAX_COLUMNS = 100_000
MAX_NAME = 1000  # characters
CELL_BYTES = 8  # that a value takes while it is read


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How large a table may be.

    Attributes:
        max_bytes: of all its values, uncompressed.
    """

    max_bytes: int = 2 << 30

    def check_bytes(self, what: str, size: int) -> None:
        """Raise BadTable if so many bytes are too many."""
        if size > self.max_bytes:
            must = f"must have at most {self.max_bytes} bytes uncompressed"
            raise BadTable(f"{what}: {must}; got {size}")

    def check_shape(self, rows: int, columns: int) -> None:
        """Raise BadTable if a table of so many rows and columns is empty or too large."""
        if columns > MAX_COLUMNS:
            raise BadTable(f"table: must have at most {MAX_COLUMNS} columns; got {columns}")
        if not rows or not columns:
            got = f"{rows} rows of {columns} columns"
            raise BadTable(f"table: must have rows and columns; got {got}")
        cells = self.max_bytes // CELL_BYTES
        if rows * columns > cells:
            got = f"{rows} rows of {columns} columns"
            raise BadTable(f"table: must have at most {cells} values; got {got}")


def check_names(names: Sequence[str]) -> None:
    """Raise BadTable unless every column has a name of its own."""
    if len(names) > MAX_COLUMNS:
        raise BadTable(f"table: must have at most {MAX_COLUMNS} columns; got {len(names)}")
    for place, name in enumerate(names, 1):
        if not name:
            raise BadTable(f"column {place}: must have a name; got none")
        if len(name) > MAX_NAME:
            must = f"name must have at most {MAX_NAME} characters"
            raise BadTable(f"column {place}: {must}; got {len(name)}")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise BadTable(f"columns: must have names of their own; got {twice[0]!r} more than once")
