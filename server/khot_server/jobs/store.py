"""Where jobs are kept: the store is the truth, and every process about it may die.

One transaction per change: the row of the job, its attempt and the event that tells of
it are written together or not at all (`change`). `JobStore` is for the API; what runners do
is `JobStore.leases`.

Methods block, and may be called from any thread and process.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Row, func, insert, select

from khot_server.jobs.change import Change, remove
from khot_server.jobs.database import Database, Observe
from khot_server.jobs.leases import Leases
from khot_server.jobs.records import (
    Artifact,
    AttemptRecord,
    Census,
    Event,
    Group,
    Job,
    JobNotFound,
    Options,
    StoredEvent,
)
from khot_server.jobs.rows import to_attempt, to_event, to_job, to_time
from khot_server.jobs.schema import artifacts, attempts, events, groups, jobs, labels, metrics
from khot_server.jobs.spec import Spec, spec_to_json
from khot_server.jobs.states import ENDED, IllegalTransition, JobState
from khot_server.jobs.submission import Refused, Submission, reused, submit

# The file in the state directory.
DATABASE_NAME = "jobs.sqlite3"


class JobStore:
    """The jobs in the database at `path`, which is made or migrated if need be.

    Args:
        path: of the SQLite file.
        clock: seconds since 1970; tests bring their own.
        max_lost_attempts: as in `Leases`.
        backoff_s: as in `Leases`.
        max_tenant_jobs: how many jobs of one tenant may be without an end.
        observe: as in `Database`.

    Attributes:
        database: for what else is kept there.
        leases: for runners.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        max_lost_attempts: int = 5,
        backoff_s: float = 1.0,
        max_tenant_jobs: int = 1000,
        observe: Observe | None = None,
    ) -> None:
        self._clock = clock
        self._max_tenant_jobs = max_tenant_jobs
        self.database = Database(path, observe)
        self.leases = Leases(
            self.database, clock, max_lost_attempts=max_lost_attempts, backoff_s=backoff_s
        )

    def close(self) -> None:
        """Close the connections; the store cannot be used after that."""
        self.database.close()

    # Submitting: each raises
    #     RequestIdReused: the tenant gave `request_id` to another request before.
    #     TooManyJobs: the tenant has as many jobs without an end as it may have.
    #     DatasetGone: it was deleted meanwhile.

    def submit(
        self,
        tenant: str,
        request_id: str,
        spec: Spec,
        options: Options | None = None,
        *,
        dataset_id: str | None = None,
    ) -> Job:
        """Store a job, QUEUED; or return the one that this request made before."""
        asked = Submission(tenant, request_id, spec, options or Options(), dataset_id)
        (made,) = self.submit_many([asked])
        if isinstance(made, Exception):
            raise made
        return made

    def submit_many(self, asked: Sequence[Submission]) -> list[Job | Refused]:
        """The same for several at once, each by itself: the job, or what `submit` would raise."""
        with self.database.writing() as connection:
            return submit(connection, asked, self._clock(), self._max_tenant_jobs)

    def submit_group(
        self,
        tenant: str,
        request_id: str,
        specs: Sequence[Spec],
        options: Options,
        *,
        axes: Sequence[str] = (),
        dataset_ids: Sequence[str | None],
    ) -> Group:
        """Store a job for each spec, as one group; or return the one that this request made."""
        asked = {"specs": [spec_to_json(spec) for spec in specs], "options": asdict(options)}
        request = json.dumps({"axes": list(axes), **asked}, sort_keys=True)
        same = (groups.c.tenant == tenant) & (groups.c.request_id == request_id)
        with self.database.writing() as connection:
            known = connection.execute(select(groups).where(same)).first()
            if known is not None and known.request != request:
                raise reused(request_id)
            group_id = uuid4().hex if known is None else known.id
            if known is None:
                now = self._clock()
                named = {"id": group_id, "tenant": tenant, "request_id": request_id}
                made = {"request": request, "create_time": now}
                connection.execute(insert(groups).values(**named, **made))
                members = [
                    Submission(tenant, f"group/{group_id}/{place}", spec, options, dataset_id)
                    for place, (spec, dataset_id) in enumerate(zip(specs, dataset_ids, strict=True))
                ]
                for job in submit(connection, members, now, self._max_tenant_jobs, group_id):
                    if isinstance(job, Exception):
                        raise job
        return self.group(tenant, group_id)

    # Reading: each raises JobNotFound if the tenant has none of that id.

    def get(self, tenant: str, job_id: str) -> Job:
        """Return the job as it is now."""
        with self.database.reading() as connection:
            return _with_labels(connection, [_find(connection, tenant, job_id)])[0]

    def page(
        self,
        tenant: str,
        *,
        states: Sequence[JobState] = (),
        kind: str = "",
        with_labels: Mapping[str, str] | None = None,
        group_id: str = "",
        before: int | None = None,
        limit: int = 100,
    ) -> tuple[list[Job], int | None]:
        """Return jobs without their results, the latest first, and what `before` is for more.

        Those of a state, kind and group, or of any where none is given, that have all labels of
        `with_labels`, where an empty value stands for any, and were submitted before the job of
        the number `before`.
        """
        query = select(jobs).where(jobs.c.tenant == tenant)
        if states:
            query = query.where(jobs.c.state.in_(states))
        if kind:
            query = query.where(jobs.c.kind == kind)
        if group_id:
            query = query.where(jobs.c.group_id == group_id)
        for key, value in (with_labels or {}).items():
            has = (labels.c.job_id == jobs.c.id) & (labels.c.key == key)
            has = has & (labels.c.value == value) if value else has
            query = query.where(select(labels.c.key).where(has).exists())
        if before is not None:
            query = query.where(jobs.c.number < before)
        query = query.order_by(jobs.c.number.desc()).limit(limit + 1)
        with self.database.reading() as connection:
            rows = connection.execute(query).all()
            page = rows[:limit]
            found = _with_labels(connection, page, with_result=False)
        return found, page[-1].number if len(rows) > limit else None

    def group(self, tenant: str, group_id: str) -> Group:
        """Return the group with its jobs and their results."""
        owned = (groups.c.id == group_id) & (groups.c.tenant == tenant)
        members = select(jobs).where(jobs.c.group_id == group_id).order_by(jobs.c.number)
        with self.database.reading() as connection:
            row = connection.execute(select(groups).where(owned)).first()
            if row is None:
                raise JobNotFound(f"group_id: must be a group of {tenant!r}; got {group_id!r}")
            found = _with_labels(connection, connection.execute(members).all())
        axes = tuple(json.loads(row.request)["axes"])
        return Group(row.id, to_time(row.create_time), axes, tuple(found))

    def events(
        self, tenant: str, job_id: str, after_sequence: int, limit: int = 100
    ) -> list[Event]:
        """Return the events of a job with a greater sequence number, in order."""
        later = (events.c.job_id == job_id) & (events.c.sequence > after_sequence)
        query = select(events).where(later).order_by(events.c.sequence).limit(limit)
        with self.database.reading() as connection:
            _find(connection, tenant, job_id)
            return [to_event(row) for row in connection.execute(query)]

    def attempts(self, tenant: str, job_id: str) -> tuple[AttemptRecord, ...]:
        """Return the attempts at a job, in order."""
        query = select(attempts).where(attempts.c.job_id == job_id).order_by(attempts.c.number)
        with self.database.reading() as connection:
            _find(connection, tenant, job_id)
            return tuple(to_attempt(row) for row in connection.execute(query))

    def series(
        self, tenant: str, job_id: str, names: Sequence[str] = (), after_step: int = -1
    ) -> dict[str, list[tuple[int, float | None]]]:
        """Return (step, value) pairs by the name of what was measured, ascending."""
        query = select(metrics).where(metrics.c.job_id == job_id, metrics.c.step > after_step)
        if names:
            query = query.where(metrics.c.name.in_(names))
        query = query.order_by(metrics.c.name, metrics.c.step)
        found: dict[str, list[tuple[int, float | None]]] = {}
        with self.database.reading() as connection:
            _find(connection, tenant, job_id)
            for row in connection.execute(query):
                found.setdefault(row.name, []).append((row.step, row.value))
        return found

    def artifacts(self, tenant: str, job_id: str) -> tuple[Artifact, ...]:
        """Return the files that a job left, by name."""
        query = select(artifacts).where(artifacts.c.job_id == job_id).order_by(artifacts.c.name)
        with self.database.reading() as connection:
            _find(connection, tenant, job_id)
            rows = connection.execute(query).all()
        return tuple(Artifact(r.name, r.size_bytes, r.sha256, r.media_type) for r in rows)

    # Asking for a change: each raises JobNotFound, or IllegalTransition if the job's state
    # does not allow it. What was asked for before is not asked for again.

    def cancel(self, tenant: str, job_id: str) -> Job:
        """End the job, or ask its attempt to."""
        return self._ask(tenant, job_id, JobState.CANCELLED, JobState.CANCELLING)

    def pause(self, tenant: str, job_id: str) -> Job:
        """Stop the job until it is resumed, or ask its attempt to."""
        return self._ask(tenant, job_id, JobState.PAUSED, JobState.PAUSING)

    def resume(self, tenant: str, job_id: str) -> Job:
        """Queue a PAUSED job again."""
        with self._changing(tenant, job_id) as change:
            if change.state is JobState.PAUSED:
                change.transition(JobState.QUEUED, "resumed", not_before=0.0)
            elif change.state not in (JobState.QUEUED, JobState.RUNNING):
                raise _illegal(change, "PAUSED", "to be resumed")
        return self.get(tenant, job_id)

    def retry(self, tenant: str, job_id: str) -> Job:
        """Queue a FAILED or CANCELLED job again, to go on from its last checkpoint."""
        with self._changing(tenant, job_id) as change:
            if change.state not in (JobState.FAILED, JobState.CANCELLED):
                raise _illegal(change, "FAILED or CANCELLED", "to be tried again")
            anew = {"failure_kind": None, "failure_message": "", "lost_attempts": 0, "blame": 0}
            change.transition(JobState.QUEUED, "tried again", run_s=0.0, not_before=0.0, **anew)
        return self.get(tenant, job_id)

    def delete(self, tenant: str, job_id: str) -> None:
        """Remove a job that has ended. Its files are for the caller to remove, after."""
        with self._changing(tenant, job_id) as change:
            if change.state not in ENDED:
                raise _illegal(change, "SUCCEEDED, FAILED or CANCELLED", "to be deleted")
            remove(change.connection, job_id)

    def _ask(self, tenant: str, job_id: str, done: JobState, asked: JobState) -> Job:
        with self._changing(tenant, job_id) as change:
            if change.state not in (done, asked):
                runs = change.row.lease_token is not None
                change.transition(asked if runs else done, "as asked")
        return self.get(tenant, job_id)

    @contextmanager
    def _changing(self, tenant: str, job_id: str) -> Iterator[Change]:
        with self.database.writing() as connection:
            yield Change(connection, _find(connection, tenant, job_id), self._clock())

    # For whom all jobs concern.

    def new_events(self, after_id: int, limit: int = 1000) -> list[StoredEvent]:
        """Return the events of all jobs with a greater id, in the order of their commits."""
        of_job = (jobs.c.tenant, jobs.c.kind.label("job_kind"), jobs.c.create_time)
        query = select(events, *of_job).join(jobs, events.c.job_id == jobs.c.id)
        query = query.where(events.c.id > after_id).order_by(events.c.id).limit(limit)
        with self.database.reading() as connection:
            rows = connection.execute(query).all()
        return [
            StoredEvent(
                id=row.id,
                job_id=row.job_id,
                tenant=row.tenant,
                kind=row.job_kind,
                create_time=to_time(row.create_time),
                event=to_event(row),
            )
            for row in rows
        ]

    def last_event_id(self) -> int:
        """Return the id of the latest event of all jobs; 0 if there is none."""
        with self.database.reading() as connection:
            return connection.execute(select(func.max(events.c.id))).scalar() or 0

    def census(self) -> Census:
        """Return which jobs there are now."""
        query = select(jobs.c.state, jobs.c.kind, func.count()).group_by(jobs.c.state, jobs.c.kind)
        held = select(jobs.c.id, jobs.c.kind).where(jobs.c.lease_token.is_not(None))
        with self.database.reading() as connection:
            found = {(JobState(s), kind): count for s, kind, count in connection.execute(query)}
            running = {row.id: row.kind for row in connection.execute(held)}
        return Census(found, running)


def _find(connection: Connection, tenant: str, job_id: str) -> Row[Any]:
    owned = (jobs.c.id == job_id) & (jobs.c.tenant == tenant)
    row = connection.execute(select(jobs).where(owned)).first()
    if row is None:
        raise JobNotFound(f"job_id: must be a job of {tenant!r}; got {job_id!r}")
    return row


def _with_labels(
    connection: Connection, rows: Sequence[Row[Any]], *, with_result: bool = True
) -> list[Job]:
    of_them = labels.c.job_id.in_([row.id for row in rows])
    found: dict[str, dict[str, str]] = {row.id: {} for row in rows}
    for label in connection.execute(select(labels).where(of_them)):
        found[label.job_id][label.key] = label.value
    return [to_job(row, found[row.id], with_result=with_result) for row in rows]


def _illegal(change: Change, must: str, what: str) -> IllegalTransition:
    return IllegalTransition(f"job {change.row.id}: must be {must} {what}; got {change.state}")
