"""The client for asyncio: see `client.py`."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Self

from numpy.typing import ArrayLike

from khot_client import data_calls, job_calls, uploads, watching
from khot_client.aio_connection import AsyncConnection, awaited
from khot_client.aio_jobs import AsyncGroup, AsyncJob
from khot_client.aio_serving import AsyncServing
from khot_client.client import TIMEOUT_S, Client
from khot_client.data_values import Dataset
from khot_client.job_calls import Wishes
from khot_client.job_values import JobStatus
from khot_client.jobs import RECONNECT_S
from khot_client.settings import PathLike, resolve
from khot_client.specs import Spec


class AsyncClient(AsyncServing):
    """`Client` for asyncio: the same methods, awaited; lists and watches with `async for`.

    May be shared by the tasks of one loop; use it in an `async with`, or close it. With
    `coalesce`, calls that tasks make at the same time share a request.
    """

    validate = awaited(Client.validate)
    dataset = awaited(Client.dataset)
    delete_dataset = awaited(Client.delete_dataset)

    def __init__(
        self,
        address: str | None = None,
        *,
        token: str | None = None,
        tls: bool | PathLike | None = None,
        cert: PathLike | None = None,
        key: PathLike | None = None,
        profile: str | None = None,
        timeout_s: float | None = TIMEOUT_S,
        coalesce: bool = False,
    ) -> None:
        settings = resolve(address, token=token, tls=tls, cert=cert, key=key, profile=profile)
        super().__init__(AsyncConnection(settings, timeout_s), coalesce=coalesce)

    @property
    def address(self) -> str:
        """As `Client.address`."""
        return self._connection.address

    async def submit(
        self,
        spec: Spec,
        *,
        request_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        priority: int = 0,
        max_run_s: float | None = None,
    ) -> AsyncJob:
        """As `Client.submit`."""
        wishes = Wishes(labels or {}, priority, max_run_s)
        status = await self._connection.call(job_calls.submit(spec, wishes, request_id))
        return AsyncJob(self._connection, status.id)

    async def submit_group(
        self,
        spec: Spec,
        *,
        seeds: Iterable[int] = (),
        grid: Mapping[str, Sequence[Any]] | None = None,
        request_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        priority: int = 0,
        max_run_s: float | None = None,
    ) -> AsyncGroup:
        """As `Client.submit_group`."""
        wishes = Wishes(labels or {}, priority, max_run_s)
        call = job_calls.submit_group(spec, seeds, grid or {}, wishes, request_id)
        return AsyncGroup(self._connection, (await self._connection.call(call)).id)

    def jobs(
        self,
        *,
        states: Iterable[str] = (),
        kind: str = "",
        labels: Mapping[str, str] | None = None,
        group: str = "",
        limit: int | None = None,
    ) -> AsyncIterator[JobStatus]:
        """As `Client.jobs`."""
        page = partial(job_calls.page, tuple(states), kind, labels or {}, group)
        return watching.pages(self._connection, page, limit, job_calls.PAGE)

    def job(self, job_id: str) -> AsyncJob:
        """As `Client.job`."""
        return AsyncJob(self._connection, job_id)

    def group(self, group_id: str) -> AsyncGroup:
        """As `Client.group`."""
        return AsyncGroup(self._connection, group_id)

    async def upload(
        self,
        data: Any,
        target: ArrayLike | None = None,
        *,
        columns: Sequence[str] | None = None,
        name: str | None = None,
        format: str | None = None,  # noqa: A002
        upload_id: str | None = None,
        progress: uploads.Told | None = None,
        reconnect_s: float = RECONNECT_S,
    ) -> Dataset:
        """As `Client.upload`."""
        how = {"target": target, "columns": columns, "name": name, "format": format}
        return await uploads.upload(
            self._connection, data, progress, reconnect_s, upload_id=upload_id, **how
        )

    def datasets(self, *, limit: int | None = None) -> AsyncIterator[Dataset]:
        """As `Client.datasets`."""
        return watching.pages(self._connection, data_calls.page, limit, data_calls.PAGE)

    async def close(self) -> None:
        """As `Client.close`."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncClient({self.address!r})"
