"""The calls of DatasetService, as data, and their answers as values."""

from collections.abc import Iterable
from datetime import UTC
from typing import Any, NamedTuple

from khot_client.calls import Call
from khot_client.data_values import Column, Dataset
from khot_proto.v1 import dataset_service_pb2 as pb

PAGE = 100
FORMATS = {
    "npz": pb.DATASET_FORMAT_NPZ,
    "csv": pb.DATASET_FORMAT_CSV,
    "parquet": pb.DATASET_FORMAT_PARQUET,
}

Page = tuple[list[Dataset], str]


class Upload(NamedTuple):
    """How far an upload is: bytes that are safely stored, and the data set once it is whole."""

    offset: int
    dataset_id: str


def get(dataset_id: str) -> Call[Dataset]:
    return Call("GetDataset", pb.GetDatasetRequest(dataset_id=dataset_id), _dataset)


def page(token: str, size: int) -> Call[Page]:
    """A page of data sets, and the token of the next."""
    return Call("ListDatasets", pb.ListDatasetsRequest(page_size=size, page_token=token), _page)


def delete(dataset_id: str) -> Call[None]:
    return Call("DeleteDataset", pb.DeleteDatasetRequest(dataset_id=dataset_id), _nothing)


def get_upload(upload_id: str) -> Call[Upload]:
    request = pb.GetUploadRequest(upload_id=upload_id)
    return Call("GetUpload", request, lambda answer: Upload(answer.offset, answer.dataset_id))


def upload(parts: Iterable[pb.UploadDatasetRequest]) -> Call[Dataset]:
    return Call("UploadDataset", parts, _dataset)


def _dataset(response: Any) -> Dataset:
    return _read(response.dataset)


def _page(response: Any) -> Page:
    return list(map(_read, response.datasets)), response.next_page_token


def _nothing(_: Any) -> None:
    return None


def _read(message: pb.Dataset) -> Dataset:
    made = message.HasField("create_time")
    return Dataset(
        id=message.id,
        name=message.name,
        create_time=message.create_time.ToDatetime(tzinfo=UTC) if made else None,
        size_bytes=message.size_bytes,
        sha256=message.sha256,
        rows=message.rows,
        column_count=message.column_count,
        example_shape=tuple(message.example_shape),
        columns=tuple(map(_column, message.columns)),
        target=message.target,
    )


def _column(column: pb.Column) -> Column:
    return Column(
        name=column.name,
        type=pb.ColumnType.Name(column.type).removeprefix("COLUMN_TYPE_").lower(),
        missing=column.missing,
        distinct=column.distinct,
        min=column.min,
        max=column.max,
        mean=column.mean,
        classes=tuple(column.classes),
    )
