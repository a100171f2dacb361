"""Tables from Parquet files, read some columns at a time."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from khot_server.datasets.coder import CODE, MISSING, Coded, encoded
from khot_server.datasets.describe import default_target
from khot_server.datasets.limits import Limits, check_names
from khot_server.datasets.records import MAX_COUNTED, BadTable, Summary
from khot_server.datasets.stored import TableWriter

CELLS_AT_ONCE = 1 << 20
PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # what pandas adds, and nobody means


def read_parquet(path: Path, out: Path, sha256: str, limits: Limits) -> Summary:
    """Write the table in a Parquet file to the directory `out`; return its summary.

    Raises:
        BadTable: there is none.
    """
    try:
        import pyarrow.parquet as pq
    except ImportError:
        must = "must be npz or csv on a server without the extra khot[parquet]"
        raise BadTable(f"format: {must}; got parquet") from None
    with _reading():
        file = pq.ParquetFile(path)
        schema = file.schema_arrow
    names = [name for name in schema.names if not PANDAS_INDEX.fullmatch(name)]
    check_names(names)
    limits.check_shape(file.metadata.num_rows, len(names))
    groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
    limits.check_bytes("columns", sum(group.total_byte_size for group in groups))
    kinds = {name: _kind(name, schema.field(name).type) for name in names}
    at_once = max(1, CELLS_AT_ONCE // file.metadata.num_rows)
    with TableWriter(out, file.metadata.num_rows, sha256) as writer:
        for first in range(0, len(names), at_once):
            part = names[first : first + at_once]
            with _reading():
                table = file.read(part, use_threads=False)
            for name in part:
                with _reading():
                    # by its name, for that of a column `a` selects a column `a.b` too
                    column = table.column(name)
                    values = _texts(column) if kinds[name] == "text" else _numbers(column)
                if isinstance(values, Coded):
                    writer.texts(name, values)
                else:
                    writer.numbers(name, values, boolean=kinds[name] == "boolean")
        return writer.finish(target=default_target(names))


def _kind(name: str, kind: Any) -> str:
    """Whether a type is text, boolean or number."""
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_boolean(kind):
        return "boolean"
    numbers = (types.is_integer, types.is_floating, types.is_decimal, types.is_null)
    if any(fits(kind) for fits in numbers):
        return "number"
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    times = (types.is_date, types.is_time, types.is_timestamp)
    if any(fits(kind) for fits in texts + times):
        return "text"
    raise BadTable(f"column {name!r}: must be numbers, booleans or text; got {kind}")


def _numbers(column: Any) -> NDArray[np.float64]:
    import pyarrow as pa

    # not "safe", which refuses integers that float64 rounds
    values: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()
    return values


def _texts(column: Any) -> Coded:
    import pyarrow as pa

    found = column.cast(pa.large_string()).combine_chunks().dictionary_encode()
    places = found.indices.fill_null(MISSING).to_numpy()
    if len(found.dictionary) > MAX_COUNTED + 1:  # one may be the empty text, which is missing
        return Coded(np.minimum(places, 0).astype(CODE), None)
    texts = np.array([*found.dictionary.to_pylist(), None], dtype=object)
    return encoded(texts[places])


@contextmanager
def _reading() -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, ValueError, RuntimeError) as error:
        raise BadTable(f"file: must be Parquet; got: {str(error)[:200]}") from None
