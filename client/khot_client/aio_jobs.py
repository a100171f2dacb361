"""The handles of a job and of a group of jobs, for asyncio: see `jobs.py`."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

from khot_client import downloads, watching
from khot_client.aio_connection import AsyncConnection, awaited
from khot_client.job_values import Event, GroupStatus
from khot_client.jobs import RECONNECT_S, Group, Job
from khot_client.specs import Result


class AsyncJob:
    """A job on the server, by its id. Made by `AsyncClient.submit` and `AsyncClient.job`."""

    status = awaited(Job.status)
    cancel = awaited(Job.cancel)
    pause = awaited(Job.pause)
    resume = awaited(Job.resume)
    retry = awaited(Job.retry)
    delete = awaited(Job.delete)
    attempts = awaited(Job.attempts)
    metrics = awaited(Job.metrics)
    artifacts = awaited(Job.artifacts)

    def __init__(self, connection: AsyncConnection, job_id: str) -> None:
        self._connection = connection
        self.id = job_id

    def watch(
        self, after_sequence: int = 0, *, reconnect_s: float = RECONNECT_S
    ) -> AsyncIterator[Event]:
        """As `Job.watch`."""
        return watching.events(self._connection, self.id, after_sequence, reconnect_s)

    async def wait(
        self, timeout_s: float | None = None, *, reconnect_s: float = RECONNECT_S
    ) -> Result:
        """As `Job.wait`."""
        return await watching.result(self._connection, self.id, timeout_s, reconnect_s)

    async def result(self) -> Result:
        """As `Job.result`."""
        return watching.result_of(self.id, await self.status())

    def logs(
        self, attempt: int = 0, *, follow: bool = False, reconnect_s: float = RECONNECT_S
    ) -> AsyncIterator[str]:
        """As `Job.logs`."""
        return watching.logs(self._connection, self.id, attempt, follow, reconnect_s)

    async def download(
        self,
        to: str | os.PathLike[str] = ".",
        name: str | None = None,
        *,
        progress: downloads.Told | None = None,
        reconnect_s: float = RECONNECT_S,
    ) -> list[Path]:
        """As `Job.download`."""
        return await downloads.download(self._connection, self.id, to, name, progress, reconnect_s)

    def __repr__(self) -> str:
        return f"AsyncJob({self.id!r})"


class AsyncGroup:
    """Jobs that were submitted together. Made by `AsyncClient.submit_group` and `.group`."""

    status = awaited(Group.status)
    cancel = awaited(Group.cancel)

    def __init__(self, connection: AsyncConnection, group_id: str) -> None:
        self._connection = connection
        self.id = group_id

    async def wait(
        self, timeout_s: float | None = None, *, reconnect_s: float = RECONNECT_S
    ) -> GroupStatus:
        """As `Group.wait`."""
        return await watching.group_end(self._connection, self.id, timeout_s, reconnect_s)

    async def jobs(self) -> list[AsyncJob]:
        """As `Group.jobs`."""
        return [AsyncJob(self._connection, job.id) for job in (await self.status()).jobs]

    def __repr__(self) -> str:
        return f"AsyncGroup({self.id!r})"
