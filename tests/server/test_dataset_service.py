"""DatasetService over the wire: files in chunks, gone on with after a break, or refused whole."""

import asyncio
import contextlib
import functools
import hashlib
import io
import uuid
from collections.abc import Iterable
from pathlib import Path

import grpc
import numpy as np
import pytest
from google.rpc import error_details_pb2, status_pb2
from processes import alive
from sqlalchemy import select

from khot_proto.v1 import dataset_service_pb2 as pb
from khot_proto.v1 import job_service_pb2, job_spec_pb2
from khot_proto.v1.dataset_service_pb2_grpc import (
    DatasetServiceStub,
    add_DatasetServiceServicer_to_server,
)
from khot_server.api import dataset_servicer as module
from khot_server.api.dataset_servicer import DatasetService
from khot_server.api.guard import Guard
from khot_server.api.identity import Identity, Tokens
from khot_server.datasets import builtin, child, synthetic
from khot_server.datasets.child import ParseLimits
from khot_server.datasets.incoming import Incoming, upload_file
from khot_server.datasets.records import UploadBusy
from khot_server.datasets.store import DatasetStore
from khot_server.jobs.schema import datasets, uploads
from khot_server.jobs.spec import FeatureSelectionSpec
from khot_server.jobs.store import JobStore
from khot_server.metrics import Metrics

SERVICE = pb.DESCRIPTOR.services_by_name["DatasetService"]
CSV = b"a,b,label\n" + b"".join(b"%d,%d,%s\n" % (i, i * i, b"xy"[i % 2 :][:1]) for i in range(50))
OPTIONS = [("grpc.enable_http_proxy", 0)]  # no proxy knows our loopback
INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND


class Service:
    """A server with this service alone, behind the guard; the token of a tenant is its name."""

    def __init__(self, folder: Path, **options) -> None:
        self.folder = folder
        self.jobs = JobStore(folder / "jobs.sqlite3")
        quota = options.pop("max_tenant_bytes", 1 << 26)
        self.store = DatasetStore(self.jobs.database, folder, max_tenant_bytes=quota)
        self.options = options

    async def __aenter__(self) -> "Service":
        methods = [method.name for method in SERVICE.methods]
        known = {
            hashlib.sha256(name.encode()).hexdigest(): Identity(name, frozenset({"admin"}))
            for name in ("one", "two")
        }
        guard = Guard(Tokens(known), Metrics(methods), 100)
        self.server = grpc.aio.server()
        service = DatasetService(self.store, **self.options)
        add_DatasetServiceServicer_to_server(service, guard.around(self.server))
        port = self.server.add_insecure_port("127.0.0.1:0")
        await self.server.start()
        self.address = f"127.0.0.1:{port}"
        self.channel = self.connect()
        self.stub = DatasetServiceStub(self.channel)
        return self

    def connect(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(self.address, OPTIONS)

    async def __aexit__(self, *error: object) -> None:
        await self.channel.close()
        await self.server.stop(None)
        self.jobs.close()

    def call(self, method: str, tenant: str = "one", **fields):
        request = getattr(pb, f"{method}Request")(**fields)
        return getattr(self.stub, method)(request, metadata=token(tenant), timeout=30)

    async def upload(self, data: bytes, tenant: str = "one", size: int = 100, **fields):
        """An upload in one go."""
        told = header(data, **fields)
        return await self.send(messages(told, chunks(data[told.offset :], size)), tenant)

    async def send(self, parts: Iterable[pb.UploadDatasetRequest], tenant: str = "one"):
        """Send these messages.

        Not through grpc.aio: of a call that is answered before all is sent, that tells another
        error than the server's.
        """
        with grpc.insecure_channel(self.address, OPTIONS) as channel:
            call = DatasetServiceStub(channel).UploadDataset
            return await asyncio.to_thread(call, iter(parts), metadata=token(tenant), timeout=60)

    def left(self) -> list[str]:
        """The files beside the database."""
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return sorted(path.name for path in found if "sqlite" not in path.name)

    def rows(self, table) -> list:
        with self.jobs.database.reading() as connection:
            return connection.execute(select(table)).all()


def token(tenant: str):
    return (("authorization", f"Bearer {tenant}"),)


def header(data: bytes, **fields) -> pb.UploadHeader:
    usual = {
        "upload_id": uuid.uuid4().hex,
        "name": "t.csv",
        "format": pb.DATASET_FORMAT_CSV,
        "size_bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    return pb.UploadHeader(**usual | fields)


def chunks(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


def messages(told: pb.UploadHeader, parts: Iterable[bytes]) -> list[pb.UploadDatasetRequest]:
    return [
        pb.UploadDatasetRequest(header=told),
        *(pb.UploadDatasetRequest(data=part) for part in parts),
    ]


def run(test):
    """An async test as a test."""

    @functools.wraps(test)
    def wrapper(**parameters) -> None:
        asyncio.run(asyncio.wait_for(test(**parameters), 60))

    return wrapper


@contextlib.contextmanager
def refused(code: grpc.StatusCode, message: str, field: str = ""):
    """The call ends with this code, and the details say which field is wrong."""
    with pytest.raises(grpc.RpcError, match=message) as caught:
        yield
    error = caught.value
    assert error.code() == code, error.details()
    sent = dict(error.trailing_metadata())["grpc-status-details-bin"]
    violations = error_details_pb2.BadRequest()
    for detail in status_pb2.Status.FromString(sent).details:
        detail.Unpack(violations)
    assert [one.field for one in violations.field_violations] == ([field] if field else [])


@pytest.mark.parametrize("size", [1, 10_000])
@run
async def test_a_file_in_chunks_becomes_a_data_set(tmp_path, size):
    async with Service(tmp_path) as service:
        answer = await service.upload(CSV, size=size, name="mine.csv")
        dataset = answer.dataset
        assert (dataset.name, dataset.rows, dataset.column_count) == ("mine.csv", 50, 3)
        assert dataset.size_bytes == len(CSV)
        assert dataset.sha256 == hashlib.sha256(CSV).hexdigest()
        assert dataset.target == "label" and list(dataset.columns[2].classes) == ["x", "y"]
        assert [column.type for column in dataset.columns] == [
            pb.COLUMN_TYPE_INTEGER,
            pb.COLUMN_TYPE_INTEGER,
            pb.COLUMN_TYPE_TEXT,
        ]
        assert (dataset.columns[1].min, dataset.columns[1].max) == (0, 49**2)
        assert dataset.HasField("create_time")
        got = await service.call("GetDataset", dataset_id=dataset.id)
        assert got.dataset == dataset
        (listed, *built_in) = (await service.call("ListDatasets")).datasets
        assert [one.id for one in built_in] == list(builtin.NAMES)
        del dataset.columns[:]
        assert listed == dataset


@run
async def test_pictures_and_their_shape(tmp_path):
    file = io.BytesIO()
    np.savez(file, x=np.random.RandomState(0).uniform(size=(20, 4, 5)), y=np.arange(20) % 2)
    async with Service(tmp_path) as service:
        answer = await service.upload(file.getvalue(), format=pb.DATASET_FORMAT_NPZ, size=4096)
        assert list(answer.dataset.example_shape) == [4, 5]
        assert answer.dataset.column_count == 21 and len(answer.dataset.columns) == 1


@run
async def test_what_is_built_in_is_found_by_its_name(tmp_path):
    async with Service(tmp_path) as service:
        for name in builtin.NAMES:
            dataset = (await service.call("GetDataset", dataset_id=name)).dataset
            assert (dataset.id, dataset.name) == (name, name)
            assert not dataset.HasField("create_time")
            shape = list(dataset.example_shape)
            assert len(dataset.columns) == (1 if shape else dataset.column_count)


@run
async def test_an_upload_that_was_completed_returns_its_data_set(tmp_path):
    async with Service(tmp_path) as service:
        first = await service.upload(CSV, upload_id="u")
        assert await service.upload(CSV, upload_id="u") == first
        state = await service.call("GetUpload", upload_id="u")
        assert (state.offset, state.size_bytes) == (len(CSV), len(CSV))
        assert state.dataset_id == first.dataset.id
        second = await service.upload(CSV, upload_id="v")
        assert second.dataset.id != first.dataset.id
        assert len(service.rows(datasets)) == 2
        with refused(grpc.StatusCode.ALREADY_EXISTS, "got 'u' with another header"):
            await service.upload(CSV, upload_id="u", name="another")


@pytest.fixture
def received(monkeypatch):
    """The bytes that the service has taken from the wire; set when there are more."""
    taken, readable = bytearray(), module._readable

    async def recorded(requests):
        async for request in readable(requests):
            yield request
            taken.extend(request.data)  # when it asks for the next: this one is dealt with

    monkeypatch.setattr(module, "_readable", recorded)
    return taken


async def until(condition) -> None:
    """Poll, for what no event tells of: the other side of a call."""
    while not condition():
        await asyncio.sleep(0.005)


def offset(service: Service, upload_id: str = "u") -> int:
    return service.store.uploads.get("one", upload_id).offset


@pytest.mark.parametrize("sync_bytes", [1, 1 << 20], ids=["written", "not yet written"])
@pytest.mark.parametrize("how", ["cancelled", "connection closed", "server stopped"])
@run
async def test_a_call_that_broke_off_is_gone_on_with(
    tmp_path, how, sync_bytes, received, monkeypatch
):
    """All that the service has received is kept, and need not be sent again."""
    monkeypatch.setattr(module, "SYNC_BYTES", sync_bytes)
    told = header(CSV, upload_id="u")
    async with Service(tmp_path) as service:
        own = service.connect()
        call = DatasetServiceStub(own).UploadDataset(metadata=token("one"), timeout=60)
        await call.write(pb.UploadDatasetRequest(header=told))
        await call.write(pb.UploadDatasetRequest(data=CSV[:30]))
        await call.write(pb.UploadDatasetRequest(data=CSV[30:40]))
        await until(lambda: len(received) == 40)
        assert offset(service) == (40 if sync_bytes == 1 else 0)
        if how == "cancelled":
            call.cancel()
        elif how == "connection closed":
            await own.close()
        else:
            await service.server.stop(0)
        await until(lambda: offset(service) == 40)
        await own.close()
    async with Service(tmp_path) as service:
        state = await service.call("GetUpload", upload_id="u")
        assert (state.offset, state.size_bytes, state.dataset_id) == (40, len(CSV), "")
        answer = await service.upload(CSV, upload_id="u", offset=40)
        assert answer.dataset.rows == 50
        assert len(service.rows(datasets)) == len(service.rows(uploads)) == 1


@run
async def test_two_cannot_send_the_same_upload_at_once(tmp_path, received):
    told = header(CSV, upload_id="u")
    async with Service(tmp_path) as service:
        first = service.stub.UploadDataset(metadata=token("one"), timeout=60)
        await first.write(pb.UploadDatasetRequest(header=told))
        await first.write(pb.UploadDatasetRequest(data=CSV[:40]))
        await until(lambda: len(received) == 40)
        with refused(grpc.StatusCode.ABORTED, "upload_id: must be sent by one call at a time"):
            await service.upload(CSV, upload_id="u")
        other = await service.upload(CSV, tenant="two", upload_id="u")
        assert other.dataset.rows == 50, "the id of another tenant is another"
        await first.write(pb.UploadDatasetRequest(data=CSV[40:]))
        await first.done_writing()
        assert (await first).dataset.rows == 50


@run
async def test_all_bytes_but_no_table_yet_is_gone_on_with(tmp_path, received):
    """As after a crash while the table was read: nothing is left to be sent."""
    async with Service(tmp_path, parse_limits=ParseLimits(at_once=1)) as service:
        with_file = header(CSV, upload_id="u")
        begun = service.store.uploads.begin("one", "u", *known(with_file))
        service.store.uploads.release(begun, CSV)
        answer = await service.upload(CSV, upload_id="u", offset=len(CSV))
        assert answer.dataset.rows == 50 and not received


def known(told: pb.UploadHeader):
    return module.header_from_message(told, 1 << 30), 0


@run
async def test_a_call_cancelled_while_its_table_is_read_leaves_the_bytes_alone(
    tmp_path, monkeypatch
):
    started, start = [], child.Parser._start

    async def recorded(self, *args):
        started.append(await start(self, *args))
        return started[-1]

    monkeypatch.setattr(child.Parser, "_start", recorded)
    async with Service(tmp_path) as service:
        parts = messages(header(CSV, upload_id="u"), [CSV])
        call = service.stub.UploadDataset(parts, metadata=token("one"), timeout=60)
        await until(lambda: started)
        call.cancel()
        await until(lambda: not alive(started[0].pid))
        assert offset(service) == len(CSV)
        await until(lambda: is_free(service))
        assert not any((tmp_path / "datasets").glob("*"))
        answer = await service.upload(CSV, upload_id="u", offset=len(CSV))
        assert answer.dataset.rows == 50 and len(started) == 2


def is_free(service: Service) -> bool:
    """Whether no call holds the upload."""
    try:
        Incoming(service.folder / "uploads" / upload_file("one", "u")).close()
    except UploadBusy:
        return False
    return True


REFUSED = {
    "another checksum": ({"sha256": "0" * 64}, CSV, "SHA-256 must be 0{64}, as declared; got"),
    "a byte too few": ({}, CSV[:-1], f"must be {len(CSV)} bytes, as declared; got {len(CSV) - 1}"),
    "nothing": ({}, b"", f"must be {len(CSV)} bytes, as declared; got 0"),
    "a byte too many": ({}, CSV + b"x", f"must be {len(CSV)} bytes, as declared; got"),
    "another format": ({"format": pb.DATASET_FORMAT_NPZ}, CSV, "must be an npz file"),
}


@pytest.mark.parametrize(("fields", "sent", "message"), REFUSED.values(), ids=REFUSED)
@run
async def test_of_bytes_that_are_not_the_declared_ones_nothing_is_kept(
    tmp_path, fields, sent, message
):
    async with Service(tmp_path) as service:
        told = header(CSV, upload_id="u", **fields)
        with refused(INVALID, message, "data"):
            await service.send(messages(told, chunks(sent, 100)))
        assert service.left() == []
        assert service.rows(datasets) == service.rows(uploads) == []
        with refused(NOT_FOUND, "got 'u'"):
            await service.call("GetUpload", upload_id="u")
        assert (await service.upload(CSV, upload_id="u")).dataset.rows == 50


@run
async def test_more_bytes_than_declared_are_refused_at_once(tmp_path):
    """Not when the stream ends, which it may never do."""
    async with Service(tmp_path) as service:
        told = header(CSV, upload_id="u")
        call = service.stub.UploadDataset(metadata=token("one"), timeout=60)
        await call.write(pb.UploadDatasetRequest(header=told))
        await call.write(pb.UploadDatasetRequest(data=CSV))
        await call.write(pb.UploadDatasetRequest(data=b"x"))
        with refused(INVALID, f"must be {len(CSV)} bytes, as declared", "data"):
            await call
        assert service.left() == [] and service.rows(uploads) == []


@run
async def test_of_a_file_that_is_no_table_nothing_is_kept(tmp_path):
    async with Service(tmp_path) as service:
        with refused(INVALID, "line 3: must have 2 cells, as the header; got 3", "data"):
            await service.upload(b"a,b\n1,2\n1,2,3\n")
        pickled = io.BytesIO()
        np.savez(pickled, x=np.array([[None]], dtype=object))
        with refused(INVALID, "pickles are never read", "data"):
            await service.upload(pickled.getvalue(), format=pb.DATASET_FORMAT_NPZ)
        assert service.left() == [] and service.rows(datasets) == service.rows(uploads) == []


BAD_HEADERS = {
    "no id": ({"upload_id": ""}, "upload_id", "must have 1 to 64 characters; got 0"),
    "a long id": ({"upload_id": "x" * 65}, "upload_id", "must have 1 to 64 characters; got 65"),
    "no name": ({"name": ""}, "name", "must have 1 to 200 characters; got 0"),
    "a long name": ({"name": "x" * 201}, "name", "must have 1 to 200 characters; got 201"),
    "no format": ({"format": 0}, "format", "must be one of NPZ, CSV, PARQUET; got none"),
    "another format": ({"format": 9}, "format", "must be one of NPZ, CSV, PARQUET; got 9"),
    "no bytes": ({"size_bytes": 0}, "size_bytes", r"must be in \[1, 1000\]; got 0"),
    "many bytes": ({"size_bytes": 1001}, "size_bytes", r"must be in \[1, 1000\]; got 1001"),
    "a short checksum": ({"sha256": "ab"}, "sha256", "must be 64 hexadecimal digits; got 'ab'"),
    "another checksum": ({"sha256": "g" * 64}, "sha256", "must be 64 hexadecimal digits"),
    "a negative offset": ({"offset": -1}, "offset", "must not be negative; got -1"),
}


@run
async def test_a_bad_header_is_refused_with_its_field(tmp_path):
    async with Service(tmp_path, max_upload_bytes=1000) as service:
        for fields, field, message in BAD_HEADERS.values():
            with refused(INVALID, f"header.{field}: {message}", f"header.{field}"):
                await service.upload(CSV, **fields)
        assert service.left() == [] and service.rows(uploads) == []


@run
async def test_a_checksum_may_be_in_capitals(tmp_path):
    async with Service(tmp_path) as service:
        sha256 = hashlib.sha256(CSV).hexdigest().upper()
        assert (await service.upload(CSV, sha256=sha256)).dataset.sha256 == sha256.lower()


@run
async def test_messages_out_of_order_are_refused_and_what_came_before_is_kept(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "MAX_CHUNK", 50)
    told = header(CSV, upload_id="u")
    bad = {
        "part: must be a header in the first message; got none": [
            pb.UploadDatasetRequest(data=b"a")
        ],
        "part: must be data after the header; got none": [
            pb.UploadDatasetRequest(header=told),
            pb.UploadDatasetRequest(data=CSV[:40]),
            pb.UploadDatasetRequest(header=told),
        ],
        "data: must have at most 50 bytes in a message; got 51": [
            pb.UploadDatasetRequest(header=told),
            pb.UploadDatasetRequest(data=CSV[:40]),
            pb.UploadDatasetRequest(data=CSV[40:91]),
        ],
    }
    async with Service(tmp_path) as service:
        for message, parts in bad.items():
            with refused(INVALID, message, message.partition(":")[0]):
                await service.send(parts)
        with refused(INVALID, "must be a header in the first message", "part"):
            await service.send(())
        assert offset(service) == 40
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "must be 0 or 40, what is there; got 41"):
            await service.upload(CSV, upload_id="u", offset=41, size=50)
        assert (await service.upload(CSV, upload_id="u", offset=40, size=50)).dataset.rows == 50


@run
async def test_bytes_that_are_no_message_are_refused(tmp_path):
    async with Service(tmp_path) as service:
        call = service.channel.stream_unary("/khot.v1.DatasetService/UploadDataset")

        async def sent():
            yield b"\xff\xff\xff"

        with refused(INVALID, "request: must be a message of the method", "request"):
            await call(sent(), metadata=token("one"), timeout=30)


@run
async def test_beyond_the_quota_an_upload_is_refused_before_it_is_sent(tmp_path):
    async with Service(tmp_path, max_tenant_bytes=len(CSV) * 10) as service:
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "of 'one' must take at most"):
            await service.upload(CSV, size_bytes=len(CSV) * 10 + 1)
        made = await service.upload(CSV)
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "of 'one' must take at most"):
            await service.upload(CSV, size_bytes=len(CSV) * 10 - 100)
        await service.call("DeleteDataset", dataset_id=made.dataset.id)
        assert (await service.upload(CSV)).dataset.rows == 50


@run
async def test_a_disk_that_cannot_be_written_is_unavailable_and_the_bytes_stay(tmp_path):
    async with Service(tmp_path) as service:
        (tmp_path / "datasets").write_bytes(b"in the way")
        with refused(grpc.StatusCode.UNAVAILABLE, "Not a directory"):
            await service.upload(CSV, upload_id="u")
        (tmp_path / "datasets").unlink()
        assert offset(service) == len(CSV)
        answer = await service.upload(CSV, upload_id="u", offset=len(CSV))
        assert answer.dataset.rows == 50


@run
async def test_a_data_set_is_deleted_unless_a_job_needs_it(tmp_path):
    async with Service(tmp_path) as service:
        made = (await service.upload(CSV)).dataset.id
        spec = FeatureSelectionSpec(dataset=made, k=1)
        job = service.jobs.submit("one", "r", spec, dataset_id=made)
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "a job that has not ended; got 1"):
            await service.call("DeleteDataset", dataset_id=made)
        service.jobs.cancel("one", job.id)
        await service.call("DeleteDataset", dataset_id=made)
        for method in ("GetDataset", "DeleteDataset"):
            with refused(NOT_FOUND, "dataset: must be a data set of 'one'"):
                await service.call(method, dataset_id=made)
        assert service.left() == []


@run
async def test_one_tenant_does_not_see_the_data_of_another(tmp_path):
    async with Service(tmp_path) as service:
        made = (await service.upload(CSV, upload_id="u")).dataset.id
        for method, fields in {
            "GetDataset": {"dataset_id": made},
            "DeleteDataset": {"dataset_id": made},
            "GetUpload": {"upload_id": "u"},
        }.items():
            with refused(NOT_FOUND, "'two'"):
                await service.call(method, tenant="two", **fields)
        listed = await service.call("ListDatasets", tenant="two")
        assert [one.id for one in listed.datasets] == list(builtin.NAMES)


@run
async def test_a_list_comes_in_pages(tmp_path):
    async with Service(tmp_path) as service:
        made = [(await service.upload(CSV)).dataset.id for _ in range(3)]
        found, page_token = [], ""
        while True:
            page = await service.call("ListDatasets", page_size=2, page_token=page_token)
            found += [one.id for one in page.datasets]
            page_token = page.next_page_token
            assert len(page.datasets) == 2 or not page_token
            if not page_token:
                break
        assert found == [*reversed(made), *builtin.NAMES]
        for size in (-1, 1001):
            with refused(INVALID, rf"page_size: must be in \[0, 1000\]; got {size}", "page_size"):
                await service.call("ListDatasets", page_size=size)
        with refused(INVALID, "page_token: must be one of the page before; got 'x'", "page_token"):
            await service.call("ListDatasets", page_token="x")


@run
async def test_what_a_crash_has_left_is_removed_at_the_start(tmp_path):
    (tmp_path / "uploads").mkdir()
    (tmp_path / "uploads" / ("0" * 32)).write_bytes(b"x")
    (tmp_path / "datasets" / f"{'1' * 32}.tmp").mkdir(parents=True)
    async with Service(tmp_path):
        assert not any((tmp_path / "uploads").iterdir())
        assert not any((tmp_path / "datasets").iterdir())


def test_an_uploaded_table_trains_as_the_built_in_one_does(server):
    """Through the whole service, and to the last bit: text and back changes no number."""
    x, y, _ = synthetic.make()
    lines = [",".join((*synthetic.NAMES, "kind"))]
    for row, label in zip(x.tolist(), y, strict=True):
        lines.append(",".join((*(f"{value:.3f}" for value in row), "abcd"[label])))
    data = "\n".join(lines).encode()
    parts = messages(header(data), chunks(data, 1 << 20))
    dataset = server.datasets.UploadDataset(iter(parts), timeout=60).dataset
    assert dataset.target == "" and dataset.columns[-1].name == "kind"
    results = [
        selected(server, dataset=dataset.id, target="kind"),
        selected(server, dataset="synthetic"),
    ]
    assert list(results[0].classes) == list("abcd") and list(results[1].classes) == list("0123")
    for result in results:
        del result.classes[:]
    assert results[0] == results[1]
    server.datasets.DeleteDataset(pb.DeleteDatasetRequest(dataset_id=dataset.id), timeout=30)


def selected(server, **fields) -> job_spec_pb2.FeatureSelectionResult:
    """The result of a short feature selection."""
    wanted = job_spec_pb2.FeatureSelection(k=10, epochs=1, references=False, **fields)
    request = job_service_pb2.SubmitJobRequest(
        request_id=uuid.uuid4().hex, spec=job_spec_pb2.JobSpec(feature_selection=wanted)
    )
    job = server.jobs.SubmitJob(request, timeout=30).job
    for _ in server.jobs.WatchJob(job_service_pb2.WatchJobRequest(job_id=job.id), timeout=60):
        pass
    ended = server.jobs.GetJob(job_service_pb2.GetJobRequest(job_id=job.id), timeout=30).job
    assert ended.state == job_service_pb2.JOB_STATE_SUCCEEDED, ended.failure_message
    return ended.result.feature_selection
