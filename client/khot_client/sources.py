"""What can be uploaded, as a file of one of the three formats: arrays, a DataFrame, a path.

Nothing is imported for it: a DataFrame writes itself, as Parquet where pyarrow is
installed, else as CSV, which says less of what its columns are.
"""

import hashlib
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from khot_client.data_calls import FORMATS
from khot_client.errors import TransferFailed
from khot_client.messages import invalid
from khot_proto.v1 import dataset_service_pb2 as pb

PIECE_BYTES = 1 << 20
IN_MEMORY_BYTES = 64 << 20
_SUFFIXES = {".npz": "npz", ".csv": "csv", ".parquet": "parquet"}


@dataclass(frozen=True)
class Source:
    """A file to upload, open until it is closed.

    Attributes:
        name: what people call it.
        format: one of FORMATS.
        upload_id: the same for the same contents, name and format, so that another process
            can go on with it.
    """

    file: IO[bytes]
    name: str
    format: str
    size_bytes: int
    sha256: str
    upload_id: str

    def parts(self, offset: int) -> Iterator[pb.UploadDatasetRequest]:
        """The messages of an upload that goes on from `offset`."""
        header = pb.UploadHeader(
            upload_id=self.upload_id,
            name=self.name,
            format=FORMATS[self.format],
            size_bytes=self.size_bytes,
            sha256=self.sha256,
            offset=offset,
        )
        yield pb.UploadDatasetRequest(header=header)
        self.file.seek(offset)
        while data := self.file.read(PIECE_BYTES):
            yield pb.UploadDatasetRequest(data=data)


def open_source(
    data: Any,
    target: ArrayLike | None = None,
    columns: Any = None,
    *,
    name: str | None = None,
    format: str | None = None,  # noqa: A002
    upload_id: str | None = None,
) -> Source:
    """Open what is to be uploaded, and read it once for its checksum.

    Raises:
        InvalidRequest: it is none of the things that can be uploaded.
        TransferFailed: the file cannot be read.
    """
    if format is not None and format not in FORMATS:
        raise invalid("format", f"must be one of {', '.join(FORMATS)}", repr(format))
    if isinstance(data, str | os.PathLike):
        _alone(target, columns, "a file")
        return _from_path(Path(data), name, format, upload_id)
    if _is_frame(data):
        _alone(target, columns, "a DataFrame")
        chosen = format or ("parquet" if find_spec("pyarrow") else "csv")
        file = _written(lambda file: _write_frame(data, chosen, file))
    else:
        if format not in (None, "npz"):
            raise invalid("format", "must be npz for arrays", repr(format))
        chosen, file = "npz", _written(lambda file: _write_arrays(data, target, columns, file))
    return _source(file, name or "data", chosen, upload_id)


def _from_path(path: Path, name: str | None, chosen: str | None, upload_id: str | None) -> Source:
    chosen = chosen or _SUFFIXES.get(path.suffix.lower())
    if chosen is None:
        must = f"must end in {', '.join(_SUFFIXES)}, or come with its format"
        raise invalid("path", must, repr(path.name))
    try:
        return _source(path.open("rb"), name or path.name, chosen, upload_id)
    except OSError as error:
        raise unreadable(path, error) from None


def unreadable(path: object, error: OSError) -> TransferFailed:
    """The error for a file that cannot be read."""
    got = error.strerror or type(error).__name__
    return TransferFailed(f"{path}: must be a file that can be read; got {got}. Check the path.")


def _source(file: IO[bytes], name: str, chosen: str, upload_id: str | None) -> Source:
    try:
        digest, size = hashlib.sha256(), 0
        file.seek(0)
        while data := file.read(PIECE_BYTES):
            digest.update(data)
            size += len(data)
    except BaseException:
        file.close()
        raise
    sha256 = digest.hexdigest()
    if upload_id is None:
        same = "\0".join((sha256, name, chosen))
        upload_id = hashlib.sha256(same.encode()).hexdigest()
    return Source(file, name, chosen, size, sha256, upload_id)


def _alone(target: object, columns: object, what: str) -> None:
    if target is not None or columns is not None:
        must = f"must be left out with {what}, whose columns have names: say target= in the spec"
        raise invalid("target and columns", must, "them")


def _written(write: Callable[[IO[bytes]], None]) -> IO[bytes]:
    """A temporary file, in memory while it is small."""
    file: IO[bytes] = tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES)  # noqa: SIM115
    try:
        write(file)
    except OSError as error:
        file.close()
        got = error.strerror or type(error).__name__
        message = f"{tempfile.gettempdir()}: must have room for the data; got {got}"
        raise TransferFailed(f"{message}. Free some space, or set TMPDIR.") from None
    except BaseException:
        file.close()
        raise
    return file


def _write_arrays(x: ArrayLike, y: ArrayLike | None, names: Any, file: IO[bytes]) -> None:
    given = {"x": _array("data", x)}
    if given["x"].dtype.kind not in "biuf" or given["x"].ndim < 2:
        array = given["x"]
        got = f"{array.dtype.name} of shape {array.shape}" if array.ndim else type(x).__name__
        must = "must be numbers of shape (rows, columns) or (rows, height, width), a DataFrame of"
        raise invalid("data", f"{must} pandas or polars, or a path", got)
    if y is not None:
        given["y"] = _of_one_type("target", _array("target", y))
    if names is not None:
        given["names"] = _of_one_type("columns", _array("columns", names))
    np.savez(file, allow_pickle=False, **given)


def _array(field: str, values: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged, or a tensor with a gradient
        raise invalid(field, "must be an array", error) from None


def _of_one_type(field: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array without objects, as pandas has them: a pickle is not read on the other side."""
    if not array.dtype.hasobject:
        return array
    values = array.ravel().tolist()
    if any(map(_is_missing, values)):
        raise invalid(field, "must have a value in every place", "some without one")
    kinds = {type(value) for value in values}
    typed = _array(field, values)
    mixed = typed.dtype.hasobject or (typed.dtype.kind == "U" and kinds != {str})
    if mixed or typed.shape != (array.size,):  # some cell is an array itself
        got = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise invalid(field, "must be all numbers or all text", f"values of type {got}")
    return typed.reshape(array.shape)


def _is_missing(value: object) -> bool:
    try:
        return value is None or bool(value != value)  # noqa: PLR0124  # as NaN and NaT are
    except TypeError:  # pandas' NA is neither true nor false
        return True
    except ValueError:  # nor is an array, which is something
        return False


def _is_frame(data: object) -> bool:
    # of the class: of a lazy frame the attributes are not to be had for nothing
    return hasattr(type(data), "to_parquet") or hasattr(type(data), "write_parquet")


def _write_frame(frame: Any, chosen: str, file: IO[bytes]) -> None:
    if chosen == "npz":
        raise invalid("format", "must be parquet or csv for a DataFrame", repr(chosen))
    try:
        if hasattr(frame, "write_parquet"):
            _write_polars(frame, chosen, file)
        else:
            _write_pandas(frame, chosen, file)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # of pandas, polars or pyarrow, each of its own kinds
        must = "must be a table of numbers, truth values, text and times"
        got = str(error.args[-1] if error.args else error)  # the last names the column
        raise invalid("data", must, " ".join(got.split()).rstrip(".")) from None


def _write_polars(frame: Any, chosen: str, file: IO[bytes]) -> None:
    if chosen == "parquet":
        frame.write_parquet(file)
    else:
        frame.write_csv(file, null_value="NA")  # a line of nothing would be no row


def _write_pandas(frame: Any, chosen: str, file: IO[bytes]) -> None:
    if chosen == "parquet":
        frame.to_parquet(file, index=False)
        return
    text = io.TextIOWrapper(file, "utf-8", newline="")
    frame.to_csv(text, index=False)
    text.detach()  # or it would close the file
