"""Data sets of the store <-> the messages of dataset_service.proto."""

from khot_proto.v1 import dataset_service_pb2 as pb
from khot_server.datasets.records import Column, Dataset, Format, Header
from khot_server.errors import InvalidArgument

UPLOAD_ID_LENGTH = 64
NAME_LENGTH = 200
FORMATS = {pb.DatasetFormat.Value(f"DATASET_FORMAT_{name}"): name for name in Format}


def header_from_message(message: pb.UploadHeader, max_bytes: int) -> Header:
    """The header of an upload, checked.

    Raises:
        InvalidArgument: a field is not as it must be.
    """
    _check_length("upload_id", message.upload_id, UPLOAD_ID_LENGTH)
    _check_length("name", message.name, NAME_LENGTH)
    if message.format not in FORMATS:
        _refuse("format", f"must be one of {', '.join(Format)}", message.format or "none")
    if not 1 <= message.size_bytes <= max_bytes:
        _refuse("size_bytes", f"must be in [1, {max_bytes}]", message.size_bytes)
    sha256 = message.sha256.lower()
    if len(sha256) != 64 or set(sha256) - set("0123456789abcdef"):
        _refuse("sha256", "must be 64 hexadecimal digits", repr(message.sha256[:80]))
    if message.offset < 0:
        _refuse("offset", "must not be negative", message.offset)
    return Header(
        name=message.name,
        format=FORMATS[message.format],
        size_bytes=message.size_bytes,
        sha256=sha256,
    )


def _check_length(name: str, text: str, most: int) -> None:
    if not 1 <= len(text) <= most:
        _refuse(name, f"must have 1 to {most} characters", len(text))


def _refuse(name: str, must: str, got: object) -> None:
    raise InvalidArgument(f"header.{name}", f"header.{name}: {must}; got {got}")


def dataset_message(dataset: Dataset) -> pb.Dataset:
    """The data set as a caller sees it, with the columns that it has."""
    summary = dataset.summary
    message = pb.Dataset(
        id=dataset.id,
        name=dataset.name,
        size_bytes=dataset.size_bytes,
        sha256=dataset.sha256,
        rows=summary.rows,
        column_count=summary.column_count,
        example_shape=summary.example_shape,
        columns=map(_column_message, summary.columns),
        target=summary.target or "",
    )
    if dataset.create_time is not None:
        message.create_time.FromDatetime(dataset.create_time)
    return message


def _column_message(column: Column) -> pb.Column:
    return pb.Column(
        name=column.name,
        type=f"COLUMN_TYPE_{column.type}",
        missing=column.missing,
        distinct=column.distinct,
        min=column.min or 0.0,
        max=column.max or 0.0,
        mean=column.mean or 0.0,
        classes=column.classes,
    )
