"""Tables from npz files: arrays `x`, `y` and `names`, or a field `x`, `t`, `u`; never a pickle.

Nothing is taken for true that the file says of itself: a size is checked before memory is
taken for it, and numpy's own reader, which believes the header of an array, is not used.
"""

import math
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from khot_server.datasets.coder import encoded
from khot_server.datasets.describe import Numbers, default_target, narrowed
from khot_server.datasets.fields import terms
from khot_server.datasets.limits import Limits, check_names
from khot_server.datasets.read_field import FIELD, ROWS, field_of
from khot_server.datasets.records import BadTable, Pixels, Summary, pixel_names
from khot_server.datasets.stored import TableWriter

ARRAYS = ("x", "y", "names")
TARGET = "y"
COLUMNS_AT_ONCE = 64
READ_BYTES = 1 << 20


def read_npz(path: Path, out: Path, sha256: str, limits: Limits) -> Summary:
    """Write the table in an npz file to the directory `out`; return its summary.

    Raises:
        BadTable: there is none.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = _arrays(archive, limits)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise BadTable(f"file: must be an npz file; got {error}") from None
    if set(arrays) == set(FIELD):
        return _terms(out, sha256, arrays)
    x, y, names = (arrays.get(name) for name in ARRAYS)
    if x is None:
        raise BadTable(f"file: must have an array x; got {', '.join(arrays) or 'none'}")
    _check_x(x, limits)
    target = None if y is None else _target(y, len(x))
    with TableWriter(out, len(x), sha256) as writer:
        if x.ndim == 3:
            return _pictures(writer, x, names, target)
        return _columns(writer, x, names, target)


def _terms(out: Path, sha256: str, arrays: dict[str, NDArray[Any]]) -> Summary:
    """The table of candidates for the terms of the equation of a field."""
    made = terms(field_of(arrays), ROWS)
    with TableWriter(out, len(made.y), sha256) as writer:
        for name, values in zip(made.names, made.x.T, strict=True):
            writer.numbers(name, values)
        writer.numbers(made.target, made.y)
        return writer.finish(target=made.target)


def _columns(
    writer: TableWriter, x: NDArray[Any], names: NDArray[Any] | None, y: NDArray[Any] | None
) -> Summary:
    named = _names(names, x.shape[1], taken=None if y is None else TARGET)
    for first in range(0, x.shape[1], COLUMNS_AT_ONCE):
        # several at once, for in rows they lie beside each other
        part = np.ascontiguousarray(x[:, first : first + COLUMNS_AT_ONCE].T)
        for name, values in zip(named[first : first + len(part)], _numbers(part), strict=True):
            writer.numbers(name, values, boolean=x.dtype.kind == "b")
    if y is not None:
        _write_target(writer, y)
    return writer.finish(target=default_target(named) if y is None else TARGET)


def _arrays(archive: zipfile.ZipFile, limits: Limits) -> dict[str, NDArray[Any]]:
    entries = archive.infolist()
    names = [entry.filename.removesuffix(".npy") for entry in entries]
    known = set(names) <= set(ARRAYS) or set(names) == set(FIELD)
    if len(set(names)) < len(names) or not known:
        must = f"arrays must be of {', '.join(ARRAYS)}, each once, or {', '.join(FIELD)} of a field"
        raise BadTable(f"file: {must}; got {', '.join(names[:10])}")
    limits.check_bytes("arrays", sum(entry.file_size for entry in entries))
    return {name: _array(archive, entry) for name, entry in zip(names, entries, strict=True)}


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    name = entry.filename.removesuffix(".npy")
    if entry.flag_bits & 1:
        raise BadTable(f"{name}: must not be encrypted; got an encrypted one")
    with archive.open(entry) as file:
        shape, fortran, dtype = _header(name, file)
        size, there = math.prod(shape) * dtype.itemsize, entry.file_size - file.tell()
        if size != there:
            raise BadTable(f"{name}: must have {size} bytes for its shape {shape}; got {there}")
        values, done = bytearray(size), 0
        while part := file.read(READ_BYTES):  # never more than the size of the entry
            values[done : done + len(part)] = part
            done += len(part)
    if done < size:
        raise BadTable(f"{name}: must have {size} bytes; got {done}")
    flat = np.frombuffer(values, dtype)
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


def _header(name: str, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """The shape, whether columns come first, and the dtype."""
    try:
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = read(file)
    except (ValueError, KeyError) as error:
        raise BadTable(f"{name}: must be an array of numpy; got {error}") from None
    if dtype.hasobject:
        must = "must hold numbers or text, for pickles are never read"
        raise BadTable(f"{name}: {must}; got dtype {dtype}")
    if dtype.kind not in "buifUS" or not dtype.itemsize:
        raise BadTable(f"{name}: must hold numbers or text; got dtype {dtype}")
    return shape, fortran, dtype


def _check_x(x: NDArray[Any], limits: Limits) -> None:
    if x.dtype.kind not in "buif" or x.ndim not in (2, 3) or 0 in x.shape:
        must = "must be numbers of shape (rows, columns) or (rows, height, width), none of them 0"
        raise BadTable(f"x: {must}; got {x.dtype} of shape {x.shape}")
    limits.check_shape(len(x), int(np.prod(x.shape[1:])))


def _names(names: NDArray[Any] | None, columns: int, taken: str | None) -> list[str]:
    if names is None:
        return [f"x{i}" for i in range(columns)]
    if names.shape != (columns,) or names.dtype.kind not in "US":
        must = f"must be text of shape ({columns},)"
        raise BadTable(f"names: {must}; got {names.dtype} of shape {names.shape}")
    found = _texts("names", names)
    check_names(found)
    if taken in found:
        raise BadTable(f"names: must not have {taken!r}, the name of the target; got it")
    return found


def _target(y: NDArray[Any], rows: int) -> NDArray[Any]:
    if y.shape != (rows,) or y.dtype.kind not in "buifUS":
        must = f"must be numbers or text of shape ({rows},), one for each row of x"
        raise BadTable(f"y: {must}; got {y.dtype} of shape {y.shape}")
    return y


def _write_target(writer: TableWriter, y: NDArray[Any]) -> None:
    if y.dtype.kind in "US":
        writer.texts(TARGET, encoded(_texts("y", y)))
    else:
        writer.numbers(TARGET, _numbers(y), boolean=y.dtype.kind == "b")


def _pictures(
    writer: TableWriter, x: NDArray[Any], names: NDArray[Any] | None, y: NDArray[Any] | None
) -> Summary:
    if names is not None:
        raise BadTable("names: must not be given for pictures; got some")
    shape = x.shape[1:]
    rows = x.reshape(len(x), -1)
    told = list(pixel_names(shape))
    found = []
    for first in range(0, rows.shape[1], COLUMNS_AT_ONCE):
        part = _numbers(np.ascontiguousarray(rows[:, first : first + COLUMNS_AT_ONCE].T))
        found.append(_described(told[first:], part))
        writer.pixels(told[first : first + len(part)], part)
    if y is not None:
        _write_target(writer, y)
    pixels = Pixels(
        missing=sum(part.missing for part in found),
        min=min(part.min for part in found),
        max=max(part.max for part in found),
        constant=sum(part.constant for part in found),
    )
    if pixels.missing == x.size:
        raise BadTable("x: must have values; got only NaN")
    return writer.finish(target=None if y is None else TARGET, example_shape=shape, pixels=pixels)


def _described(names: list[str], part: Numbers) -> Pixels:
    """What is told of some pixels, (pixels, rows)."""
    missing = np.isnan(part)
    some = ~missing.all(1)
    least, most = np.fmin.reduce(part, 1), np.fmax.reduce(part, 1)
    infinite = np.isinf(least) | np.isinf(most)
    if infinite.any():
        name = names[int(infinite.argmax())]
        raise BadTable(f"x: must be finite; got infinite values of {name}")
    return Pixels(
        missing=int(missing.sum()),
        min=float(least[some].min(initial=np.inf)),
        max=float(most[some].max(initial=-np.inf)),
        constant=int((~(least < most)).sum()),
    )


def _numbers(values: NDArray[Any]) -> Numbers:
    """As float32 where that changes nothing, else as float64."""
    small = values.dtype.itemsize <= 2  # then it never does
    return values.astype(np.float32) if small else narrowed(values)


def _texts(who: str, values: NDArray[Any]) -> list[str]:
    try:
        texts = [value.decode() if isinstance(value, bytes) else value for value in values.tolist()]
        for text in texts:
            text.encode()
    except ValueError:  # of Unicode, in either direction
        raise BadTable(f"{who}: must be text, UTF-8; got other bytes") from None
    return texts
