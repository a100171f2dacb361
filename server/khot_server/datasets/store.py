"""Where data sets are kept: rows in the database, tables and unfinished uploads in files.

A file is durable before a row speaks of it, and a row is gone before its files go, so a row
never names what is not there. What a crash leaves behind is removed by `sweep`.

Methods block, and may be called from any thread.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, delete, func, select, tuple_, update

from khot_server.datasets import builtin
from khot_server.datasets.records import (
    BadPageToken,
    Dataset,
    DatasetInUse,
    DatasetNotFound,
    Format,
    Summary,
)
from khot_server.datasets.stored import read_summary
from khot_server.datasets.table import dataset_directory
from khot_server.datasets.uploads import Uploads
from khot_server.jobs.database import Database
from khot_server.jobs.schema import datasets, jobs, uploads
from khot_server.jobs.states import ENDED


class DatasetStore:
    """The data sets of all tenants.

    Args:
        database: of the rows.
        state_dir: of the files.
        clock: seconds since 1970; tests bring their own.
        max_tenant_bytes: what the tables and unfinished uploads of a tenant may take.
        upload_ttl_s: how long an unfinished upload is kept that nobody goes on with.

    Attributes:
        uploads: how data sets come here.
    """

    def __init__(
        self,
        database: Database,
        state_dir: Path,
        *,
        clock: Callable[[], float] = time.time,
        max_tenant_bytes: int = 10 << 30,
        upload_ttl_s: float = 86400.0,
    ) -> None:
        self._database, self._state_dir = database, state_dir
        self.uploads = Uploads(
            database, state_dir, clock=clock, max_tenant_bytes=max_tenant_bytes, ttl_s=upload_ttl_s
        )

    def sweep(self) -> None:
        """Remove uploads that were given up, and what a crash has left."""
        self.uploads.remove_stale()
        self.uploads.remove_orphans()

    def resolve(self, tenant: str, name_or_id: str) -> Dataset:
        """Return the built-in data set of this name, or the tenant's of this id.

        Raises:
            DatasetNotFound: there is neither.
        """
        if name_or_id in builtin.NAMES:
            return builtin.dataset(name_or_id)
        return self.get(tenant, name_or_id)

    def get(self, tenant: str, dataset_id: str) -> Dataset:
        """Return the tenant's data set of this id.

        Raises:
            DatasetNotFound: the tenant has none.
        """
        with self._database.reading() as connection:
            row = _find(connection, tenant, dataset_id)
        try:
            summary = read_summary(dataset_directory(self._state_dir, row.id))
        except FileNotFoundError:  # deleted since
            raise _not_found(tenant, dataset_id) from None
        return replace(_to_dataset(row), summary=summary)

    def page(self, tenant: str, limit: int, token: str = "") -> tuple[list[Dataset], str]:
        """Return at most `limit` data sets, and the token of the next page; empty: none.

        The tenant's come first, the latest of them before all, then the built-in ones; without
        their columns.

        Raises:
            BadPageToken: no page came with this one.
        """
        found: list[Dataset] = []
        tokens: list[str] = []  # of the page after each
        left = builtin.NAMES
        if token in left:
            left = left[left.index(token) + 1 :]
        else:
            query = select(datasets).where(datasets.c.tenant == tenant)
            if token:
                query = query.where(tuple_(datasets.c.create_time, datasets.c.id) < _place(token))
            query = query.order_by(datasets.c.create_time.desc(), datasets.c.id.desc())
            with self._database.reading() as connection:
                rows = connection.execute(query.limit(limit + 1)).all()
            found = [_to_dataset(row) for row in rows[:limit]]
            tokens = [f"{row.create_time.hex()}:{row.id}" for row in rows[:limit]]
            if len(rows) > limit:
                return found, tokens[-1]
        told = left[: limit - len(found)]
        found += [builtin.dataset(name, columns=False) for name in told]
        return found, [*tokens, *told][-1] if len(told) < len(left) else ""

    def delete(self, tenant: str, dataset_id: str) -> None:
        """Remove a data set.

        Raises:
            DatasetNotFound: the tenant has none of that id.
            DatasetInUse: a job that has not ended needs it.
        """
        used = jobs.c.dataset_id == dataset_id
        with self._database.writing() as connection:
            _find(connection, tenant, dataset_id)
            live = select(func.count()).where(used, jobs.c.state.not_in(ENDED))
            count = connection.execute(live).scalar()
            if count:
                must = "must not be needed by a job that has not ended"
                raise DatasetInUse(f"dataset {dataset_id}: {must}; got {count} of them")
            connection.execute(update(jobs).where(used).values(dataset_id=None))
            connection.execute(delete(uploads).where(uploads.c.dataset_id == dataset_id))
            connection.execute(delete(datasets).where(datasets.c.id == dataset_id))
        shutil.rmtree(dataset_directory(self._state_dir, dataset_id), ignore_errors=True)


def _find(connection: Connection, tenant: str, dataset_id: str) -> Row[Any]:
    owned = (datasets.c.id == dataset_id) & (datasets.c.tenant == tenant)
    row = connection.execute(select(datasets).where(owned)).first()
    if row is None:
        raise _not_found(tenant, dataset_id)
    return row


def _not_found(tenant: str, dataset_id: str) -> DatasetNotFound:
    must = f"must be a data set of {tenant!r}, or one of {', '.join(builtin.NAMES)}"
    return DatasetNotFound(f"dataset: {must}; got {dataset_id!r}")


def _to_dataset(row: Row[Any]) -> Dataset:
    return Dataset(
        id=row.id,
        tenant=row.tenant,
        name=row.name,
        create_time=datetime.fromtimestamp(row.create_time, UTC),
        size_bytes=row.size_bytes,
        sha256=row.sha256,
        format=Format(row.format),
        summary=Summary.from_json(row.summary),
    )


def _place(token: str) -> tuple[float, str]:
    time_text, _, dataset_id = token.partition(":")
    try:
        return float.fromhex(time_text), dataset_id
    except (ValueError, OverflowError):
        must = "must be one of the page before"
        raise BadPageToken(f"page_token: {must}; got {token[:40]!r}") from None
