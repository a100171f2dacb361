"""Uploads: begun, gone on with after a break, and made data sets when all is there.

A row of `uploads` is there from the first call on. Until the upload is complete its bytes
are in a file (`incoming`), and whoever changes either holds that file; after that the row
names the data set, so that the same upload sent again is no second one.
"""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, Row, delete, false, insert, select, update

from khot_server.datasets.incoming import Incoming, upload_file
from khot_server.datasets.records import (
    BadTable,
    Format,
    Header,
    QuotaReached,
    Summary,
    Upload,
    UploadBusy,
    UploadConflict,
    UploadNotFound,
    WrongOffset,
)
from khot_server.datasets.table import dataset_directory
from khot_server.jobs import durable
from khot_server.jobs.database import Database
from khot_server.jobs.schema import datasets, uploads

UNFINISHED = ".tmp"  # ends the name of a table that is being written
UNFINISHED_ROW = uploads.c.dataset_id.is_(None)


@dataclass(frozen=True)
class Sending:
    """An upload that one call holds, until it gives it to `release`.

    Attributes:
        file: where its bytes are gathered.
        dataset_id: what it will be.
        table: where its table is to be written.
    """

    tenant: str
    upload_id: str
    header: Header
    file: Incoming
    dataset_id: str
    table: Path


class Uploads:
    """The uploads of all tenants.

    Args:
        database: of the rows.
        state_dir: of the files.
        clock: seconds since 1970.
        max_tenant_bytes: what the tables and unfinished uploads of a tenant may take.
        ttl_s: how long an unfinished upload is kept that nobody goes on with.
    """

    def __init__(
        self,
        database: Database,
        state_dir: Path,
        *,
        clock: Callable[[], float],
        max_tenant_bytes: int,
        ttl_s: float,
    ) -> None:
        self._database, self._state_dir, self._clock = database, state_dir, clock
        self._max_tenant_bytes, self._ttl_s = max_tenant_bytes, ttl_s
        self._folder = state_dir / "uploads"
        self._live: set[str] = set()  # data sets that are on their way

    def get(self, tenant: str, upload_id: str) -> Upload:
        """Return how far an upload is.

        Raises:
            UploadNotFound: nothing of it is kept.
        """
        with self._database.reading() as connection:
            row = _find(connection, tenant, upload_id)
        if row is None:
            must = f"must be an upload of {tenant!r} that was begun"
            raise UploadNotFound(f"upload_id: {must}; got {upload_id!r}")
        header = _header(row)
        offset = header.size_bytes if row.dataset_id else 0
        with suppress(FileNotFoundError):  # it is complete, or nothing has come yet
            offset = (self._folder / row.file).stat().st_size
        return Upload(header=header, offset=offset, dataset_id=row.dataset_id)

    def begin(self, tenant: str, upload_id: str, header: Header, offset: int) -> Sending | str:
        """Take hold of an upload, new or not, to add bytes from `offset` on.

        Returns:
            what to add them to; or the id of its data set, if it was completed before.

        Raises:
            UploadBusy: another call holds it.
            UploadConflict: it came with another header before.
            WrongOffset: neither 0 nor how many bytes there are.
            QuotaReached: the tenant has no room for it.
            OSError: the file cannot be made.
        """
        try:
            return self._begin(tenant, upload_id, header, offset)
        except QuotaReached:
            if not self.remove_stale():
                raise
        return self._begin(tenant, upload_id, header, offset)

    def _begin(self, tenant: str, upload_id: str, header: Header, offset: int) -> Sending | str:
        # First without the file: none is made for what is refused, or complete.
        with self._database.reading() as connection:
            done = self._known(connection, tenant, upload_id, header)
        if done is not None and done.dataset_id is not None:
            return str(done.dataset_id)
        file = Incoming(self._folder / upload_file(tenant, upload_id))
        try:
            # Then with it, for another call may have had it until now.
            with self._database.writing() as connection:
                done = self._known(connection, tenant, upload_id, header)
                self._touch(connection, tenant, upload_id, header, new=done is None)
            if done is not None and done.dataset_id is not None:
                file.remove()
                file.close()
                return str(done.dataset_id)
            if offset not in (0, file.size):
                raise WrongOffset(f"offset: must be 0 or {file.size}, what is there; got {offset}")
            if not offset:
                file.clear()
        except BaseException:
            file.close()
            raise
        dataset_id = uuid4().hex
        self._live.add(dataset_id)
        table = dataset_directory(self._state_dir, dataset_id + UNFINISHED)
        return Sending(tenant, upload_id, header, file, dataset_id, table)

    def complete(self, sending: Sending, summary: Summary) -> None:
        """Make a data set of an upload whose table is written.

        Raises:
            QuotaReached: the table is larger than what the tenant has left.
            OSError: the table cannot be made durable.
        """
        table = dataset_directory(self._state_dir, sending.dataset_id)
        durable.sync(sending.table)
        sending.table.rename(table)
        durable.sync(table.parent)
        header = sending.header
        try:
            with self._database.writing() as connection:
                self._refuse_too_much(connection, sending.tenant, summary.table_bytes, sending)
                connection.execute(
                    insert(datasets).values(
                        id=sending.dataset_id,
                        tenant=sending.tenant,
                        name=header.name,
                        format=header.format,
                        size_bytes=header.size_bytes,
                        sha256=header.sha256,
                        summary=summary.without_columns().to_json(),
                        create_time=self._clock(),
                    )
                )
                this = _this(sending.tenant, sending.upload_id)
                done = update(uploads).where(*this).values(dataset_id=sending.dataset_id)
                connection.execute(done)
        except BaseException:
            shutil.rmtree(table, ignore_errors=True)
            raise
        sending.file.remove()

    def discard(self, sending: Sending) -> None:
        """Remove all of an upload."""
        with self._database.writing() as connection:
            connection.execute(delete(uploads).where(*_this(sending.tenant, sending.upload_id)))
        sending.file.remove()

    def release(self, sending: Sending, rest: bytes = b"") -> None:
        """Let go of an upload, so that another call may go on with it.

        Args:
            sending: the upload.
            rest: bytes that came last, and need not be sent again if they can be written.
        """
        with suppress(BadTable, OSError):
            if rest:
                sending.file.append(rest, sending.header)
        shutil.rmtree(sending.table, ignore_errors=True)
        self._live.discard(sending.dataset_id)
        sending.file.close()

    def remove_stale(self) -> int:
        """Remove unfinished uploads that nobody went on with; return how many."""
        old = UNFINISHED_ROW & (uploads.c.update_time < self._clock() - self._ttl_s)
        with self._database.reading() as connection:
            names = connection.execute(select(uploads.c.file).where(old)).scalars().all()
        return sum(self._clean(name, old) for name in names)

    def remove_orphans(self) -> None:
        """Remove files that no row speaks of, which only a crash can have left."""
        for path in _in(self._folder):
            self._clean(path.name, false())
        # In this order: what is no longer on its way when that is asked has its row by then.
        tables, live = _in(self._state_dir / "datasets"), set(self._live)
        with self._database.reading() as connection:
            known = set(connection.execute(select(datasets.c.id)).scalars())
        for path in tables:
            if path.name.removesuffix(UNFINISHED) not in live and path.name not in known:
                shutil.rmtree(path, ignore_errors=True)

    def _clean(self, name: str, old: ColumnElement[bool]) -> int:
        """Remove the rows of a file that are `old`, and the file unless another row needs it."""
        try:
            file = Incoming(self._folder / name)
        except UploadBusy:
            return 0
        try:
            of_file = uploads.c.file == name
            with self._database.writing() as connection:
                gone = connection.execute(delete(uploads).where(of_file, old)).rowcount
                needed = select(uploads.c.file).where(of_file, UNFINISHED_ROW)
                left = connection.execute(needed).first()
            if left is None:
                file.remove()
            return gone
        finally:
            file.close()

    def _known(
        self, connection: Connection, tenant: str, upload_id: str, header: Header
    ) -> Row[Any] | None:
        """The row of an upload; without one there must be room for it."""
        row = _find(connection, tenant, upload_id)
        if row is None:
            self._refuse_too_much(connection, tenant, header.size_bytes)
        elif _header(row) != header:
            must = "must be new, or come with the header it came with before"
            raise UploadConflict(f"upload_id: {must}; got {upload_id!r} with another header")
        return row

    def _touch(
        self, connection: Connection, tenant: str, upload_id: str, header: Header, *, new: bool
    ) -> None:
        """Have a row of an upload, and its time."""
        if not new:
            this = update(uploads).where(*_this(tenant, upload_id))
            connection.execute(this.values(update_time=self._clock()))
            return
        connection.execute(
            insert(uploads).values(
                tenant=tenant,
                upload_id=upload_id,
                header=json.dumps(asdict(header)),
                file=upload_file(tenant, upload_id),
                update_time=self._clock(),
            )
        )

    def _refuse_too_much(
        self, connection: Connection, tenant: str, more: int, but: Sending | None = None
    ) -> None:
        """Raise QuotaReached if the tenant has no room for `more` bytes."""
        summaries = select(datasets.c.summary).where(datasets.c.tenant == tenant)
        used = sum(
            Summary.from_json(text).table_bytes for text in connection.execute(summaries).scalars()
        )
        unfinished = select(uploads).where(uploads.c.tenant == tenant, UNFINISHED_ROW)
        used += sum(
            _header(row).size_bytes
            for row in connection.execute(unfinished)
            if but is None or row.upload_id != but.upload_id
        )
        if used + more > self._max_tenant_bytes:
            must = f"those of {tenant!r} must take at most {self._max_tenant_bytes} bytes"
            raise QuotaReached(f"data sets: {must}; got {more} more than {used}")


def _this(tenant: str, upload_id: str) -> tuple[ColumnElement[bool], ...]:
    return uploads.c.tenant == tenant, uploads.c.upload_id == upload_id


def _find(connection: Connection, tenant: str, upload_id: str) -> Row[Any] | None:
    return connection.execute(select(uploads).where(*_this(tenant, upload_id))).first()


def _header(row: Row[Any]) -> Header:
    values = json.loads(row.header)
    return Header(**values | {"format": Format(values["format"])})


def _in(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []
