"""What is removed by itself: jobs that ended long ago, and files when there are too many."""

import contextlib
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import structlog
from sqlalchemy import delete, select

from khot_server.jobs.change import remove
from khot_server.jobs.database import Database
from khot_server.jobs.files import job_directory
from khot_server.jobs.schema import artifacts, jobs
from khot_server.jobs.states import ENDED

log = structlog.get_logger()


class Sweeper:
    """Removes jobs and files by age and size.

    Args:
        ttl_s: how long a job is kept after its end.
        quota_bytes: how much the files of all jobs may take. Beyond it, the files of those
            that ended first go; the jobs and their results stay.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        database: Database,
        state_dir: Path,
        *,
        ttl_s: float,
        quota_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self._database, self._state_dir = database, state_dir
        self._ttl_s, self._quota_bytes, self._clock = ttl_s, quota_bytes, clock

    def sweep(self) -> None:
        """Remove what is due. A file that cannot be removed is tried again the next time."""
        self._remove_expired()
        self._remove_orphans()
        self._keep_quota()

    def _remove_expired(self) -> None:
        before = self._clock() - self._ttl_s
        old = (jobs.c.state.in_(ENDED)) & (jobs.c.update_time < before)
        with self._database.reading() as connection:
            found = connection.execute(select(jobs.c.id, jobs.c.tenant).where(old)).all()
        for job_id, tenant in found:
            with self._database.writing() as connection:
                if connection.execute(select(jobs.c.id).where(old, jobs.c.id == job_id)).first():
                    remove(connection, job_id)
            log.info("job_expired", job=job_id, tenant=tenant)

    def _remove_orphans(self) -> None:
        """Directories of jobs that are gone; a row is always there before its directory."""
        folder = self._state_dir / "jobs"
        found = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        with self._database.reading() as connection:
            known = set(connection.execute(select(jobs.c.id)).scalars())
        for job_id in found - known:
            remove_files(self._state_dir, job_id)

    def _keep_quota(self) -> None:
        folder = self._state_dir / "jobs"
        sizes = {path.name: _size(path) for path in folder.iterdir()} if folder.is_dir() else {}
        over = sum(sizes.values()) - self._quota_bytes
        if over <= 0:
            return
        ended = select(jobs.c.id, jobs.c.tenant).where(jobs.c.state.in_(ENDED))
        with self._database.reading() as connection:
            oldest = connection.execute(ended.order_by(jobs.c.update_time)).all()
        for job_id, tenant in oldest:
            if over <= 0:
                break
            if sizes.get(job_id):
                with self._database.writing() as connection:
                    connection.execute(delete(artifacts).where(artifacts.c.job_id == job_id))
                remove_files(self._state_dir, job_id)
                over -= sizes[job_id]
                quota = self._quota_bytes
                log.warning("job_files_removed", job=job_id, tenant=tenant, quota_bytes=quota)


def remove_files(state_dir: Path, job_id: str) -> None:
    """Remove the files of a job, if it has any."""
    shutil.rmtree(job_directory(state_dir, job_id), ignore_errors=True)


def _size(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # of a job that runs, files come and go
            found = path.stat()
            size += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return size
