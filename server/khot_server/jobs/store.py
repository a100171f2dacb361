"""Where jobs are kept: the store is the truth, and every process about it may die.

One transaction per change: the row of the job, its attempt and the event that tells of
it are written together or not at all. A runner holds a job by a lease: a token that
only it knows, and a time until which it promises to be heard of. Whatever it writes is
guarded by the token, so a runner that was given up changes 0 rows and learns it
(`LeaseLost`). Every change of state goes through `_transition`.

Methods block, and may be called from any thread and process.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Row, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from khot_server.jobs.database import Database
from khot_server.jobs.records import (
    Claim,
    Event,
    Job,
    JobNotFound,
    LeaseLost,
    RequestIdReused,
    StoredEvent,
    TooManyJobs,
)
from khot_server.jobs.rows import progressed, state_changed, to_event, to_job
from khot_server.jobs.schema import attempts, events, jobs, metrics
from khot_server.jobs.spec import Result, Spec, result_to_json, spec_from_json, spec_to_json
from khot_server.jobs.states import AFTER_STOP, TERMINAL, FailureKind, JobState, check_transition

__all__ = [
    "DATABASE_NAME",
    "Claim",
    "Event",
    "FailureKind",
    "Job",
    "JobNotFound",
    "JobState",
    "JobStore",
    "LeaseLost",
    "RequestIdReused",
    "StoredEvent",
    "TooManyJobs",
]

# The file in the state directory.
DATABASE_NAME = "jobs.sqlite3"


class JobStore:
    """The jobs in the database at `path`, which is made or migrated if need be.

    Args:
        path: of the SQLite file.
        clock: seconds since 1970; tests bring their own.
        max_lost_attempts: with that many attempts lost, a job has failed.
        max_tenant_jobs: how many jobs of one tenant may be without an end.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        max_lost_attempts: int = 5,
        max_tenant_jobs: int = 1000,
    ) -> None:
        self._clock = clock
        self._max_lost_attempts = max_lost_attempts
        self._max_tenant_jobs = max_tenant_jobs
        self._database = Database(path)

    def close(self) -> None:
        """Close the connections; the store cannot be used after that."""
        self._database.close()

    # For the API.

    def submit(self, tenant: str, request_id: str, spec: Spec) -> Job:
        """Store a job, QUEUED; or return the one that this request made before.

        Raises:
            RequestIdReused: the tenant gave `request_id` to another spec before.
            TooManyJobs: the tenant has as many jobs without an end as it may have.
        """
        try:
            with self._database.writing() as connection:
                # First the row: a request that is repeated is no new job.
                job = to_job(self._insert(connection, tenant, request_id, spec))
                self._refuse_too_many(connection, tenant)
                return job
        except IntegrityError:
            # Not looked for beforehand: two that submit at once would both find nothing.
            same = (jobs.c.tenant == tenant) & (jobs.c.request_id == request_id)
            with self._database.reading() as connection:
                job = to_job(connection.execute(select(jobs).where(same)).one())
        if job.spec != spec:
            must = "must be new, or come with the spec it came with before"
            raise RequestIdReused(f"request_id: {must}; got {request_id!r} with another spec")
        return job

    def get(self, tenant: str, job_id: str) -> Job:
        """Return the job as it is now.

        Raises:
            JobNotFound: the tenant has none of that id.
        """
        with self._database.reading() as connection:
            return to_job(_find(connection, tenant, job_id))

    def events(
        self, tenant: str, job_id: str, after_sequence: int, limit: int = 100
    ) -> list[Event]:
        """Return the events of a job with a greater sequence number, in order.

        Raises:
            JobNotFound: the tenant has none of that id.
        """
        later = (events.c.job_id == job_id) & (events.c.sequence > after_sequence)
        query = select(events).where(later).order_by(events.c.sequence).limit(limit)
        with self._database.reading() as connection:
            _find(connection, tenant, job_id)
            return [to_event(row) for row in connection.execute(query)]

    def new_events(self, after_id: int, limit: int = 1000) -> list[StoredEvent]:
        """Return the events of all jobs with a greater id, in the order of their commits."""
        query = select(events).where(events.c.id > after_id).order_by(events.c.id).limit(limit)
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return [StoredEvent(row.id, row.job_id, to_event(row)) for row in rows]

    def last_event_id(self) -> int:
        """Return the id of the latest event of all jobs; 0 if there is none."""
        with self._database.reading() as connection:
            return connection.execute(select(func.max(events.c.id))).scalar() or 0

    def counts(self) -> dict[JobState, int]:
        """Return how many jobs there are in every state."""
        query = select(jobs.c.state, func.count()).group_by(jobs.c.state)
        with self._database.reading() as connection:
            found = {JobState(state): count for state, count in connection.execute(query)}
        return {state: found.get(state, 0) for state in JobState}

    # For the runner: each raises LeaseLost when `token` does not hold a job any more.

    def claim(self, runner: str, lease_s: float) -> Claim | None:
        """Give the oldest QUEUED job to `runner`; None if there is none."""
        # Locking and skipping are for databases with several writers; SQLite ignores them.
        oldest = select(jobs).where(jobs.c.state == JobState.QUEUED).order_by(jobs.c.number)
        oldest = oldest.limit(1).with_for_update(skip_locked=True)
        with self._database.writing() as connection:
            job = connection.execute(oldest).first()
            if job is None:
                return None
            number, token = job.attempts + 1, uuid4().hex
            self._transition(
                connection,
                job,
                JobState.RUNNING,
                f"attempt {number}",
                attempts=number,
                lease_token=token,
                lease_expires=self._clock() + lease_s,
            )
            connection.execute(
                insert(attempts).values(
                    job_id=job.id,
                    number=number,
                    runner=runner,
                    message="",
                    start_time=self._clock(),
                )
            )
        spec = spec_from_json(job.spec)
        return Claim(job.id, job.tenant, number, token, spec, job.checkpoint)

    def heartbeat(self, token: str, lease_s: float) -> JobState:
        """Renew the lease, and return the job's state: what is asked of the attempt."""
        with self._leased(token) as (connection, job):
            self._write(connection, job, lease_expires=self._clock() + lease_s)
            return JobState(job.state)

    def progress(
        self,
        token: str,
        step: int,
        total_steps: int,
        metrics: dict[str, float],
        iterations: dict[int, int],
    ) -> None:
        """Tell how far the attempt is. A step told of before gets no second point of a metric."""
        points = [{"name": name, "step": step, "value": value} for name, value in metrics.items()]
        with self._leased(token) as (connection, job):
            event = progressed(step, total_steps, metrics, iterations)
            self._write(connection, job, event)
            _put_points(connection, job.id, points)

    def checkpointed(self, token: str, path: str, step: int) -> None:
        """Make the next attempt go on from `path`, a file that is durable already."""
        with self._leased(token) as (connection, job):
            self._write(connection, job, checkpoint=path, checkpoint_step=step)

    def succeed(self, token: str, result: Result) -> None:
        """End the job with a result."""
        with self._leased(token) as (connection, job):
            self._end(connection, job, JobState.SUCCEEDED, result=result_to_json(result))

    def fail(self, token: str, kind: FailureKind, message: str) -> None:
        """End the job without a result."""
        with self._leased(token) as (connection, job):
            self._fail(connection, job, kind, message)

    def requeue(self, token: str, message: str) -> None:
        """Give the job back after its attempt has stopped; nothing is charged.

        A job that was asked to pause or to end is PAUSED or CANCELLED by that.
        """
        with self._leased(token) as (connection, job):
            self._end(connection, job, AFTER_STOP[JobState(job.state)], message, "STOPPED")

    def lost(self, token: str, message: str) -> None:
        """Give the job back after its attempt has died; too many of those and it has failed."""
        with self._leased(token) as (connection, job):
            self._lose(connection, job, message)

    def expire_leases(self) -> int:
        """Give back all jobs whose runner was not heard of in time; return how many."""
        late = select(jobs).where(jobs.c.lease_expires < self._clock())
        with self._database.reading() as connection:
            tokens = [job.lease_token for job in connection.execute(late)]
        expired = 0
        for token in tokens:
            with self._database.writing() as connection:
                job = connection.execute(late.where(jobs.c.lease_token == token)).first()
                if job is not None:
                    self._lose(connection, job, "its runner was not heard of")
                    expired += 1
        return expired

    # One transaction each; `job` is the row as it was read in the same transaction.

    @contextmanager
    def _leased(self, token: str) -> Iterator[tuple[Connection, Row[Any]]]:
        with self._database.writing() as connection:
            held = select(jobs).where(jobs.c.lease_token == token)
            job = connection.execute(held).first()
            if job is None:
                raise LeaseLost("lease: token must hold a job; got one that holds none")
            yield connection, job

    def _insert(self, connection: Connection, tenant: str, request_id: str, spec: Spec) -> Row[Any]:
        now = self._clock()
        row = insert(jobs).values(
            id=uuid4().hex,
            tenant=tenant,
            request_id=request_id,
            spec=spec_to_json(spec),
            state=JobState.QUEUED,
            failure_message="",
            attempts=0,
            lost_attempts=0,
            last_sequence=1,
            create_time=now,
            update_time=now,
        )
        job = connection.execute(row.returning(*jobs.c)).one()
        first = state_changed(JobState.QUEUED, "")
        connection.execute(insert(events).values(job_id=job.id, sequence=1, time=now, **first))
        return job

    def _refuse_too_many(self, connection: Connection, tenant: str) -> None:
        live = (jobs.c.tenant == tenant) & jobs.c.state.not_in(TERMINAL)
        count = connection.execute(select(func.count()).where(live)).scalar() or 0
        if count > self._max_tenant_jobs:
            most = f"{tenant!r} may have at most {self._max_tenant_jobs} without an end"
            raise TooManyJobs(f"jobs: {most}; got one more")

    def _transition(
        self, connection: Connection, job: Row[Any], state: JobState, message: str, **values: Any
    ) -> None:
        """Change the state: the one place where it happens."""
        check_transition(f"job {job.id}", JobState(job.state), state)
        event = state_changed(state, message)
        self._write(connection, job, event, state=state, **values)

    def _write(
        self,
        connection: Connection,
        job: Row[Any],
        event: dict[str, Any] | None = None,
        **values: Any,
    ) -> None:
        """Change the row, and append an event, if state and lease are still as they were read."""
        now = self._clock()
        if event is not None:
            values |= {"last_sequence": jobs.c.last_sequence + 1, "update_time": now}
        unchanged = (
            jobs.c.id == job.id,
            jobs.c.state == job.state,
            jobs.c.lease_token.is_not_distinct_from(job.lease_token),
        )
        change = update(jobs).where(*unchanged).values(**values)
        sequence = connection.execute(change.returning(jobs.c.last_sequence)).scalar()
        if sequence is None:
            raise LeaseLost(f"job {job.id}: must be as it was read; got one changed by another")
        if event is not None:
            row = insert(events).values(job_id=job.id, sequence=sequence, time=now, **event)
            connection.execute(row)

    def _end(
        self,
        connection: Connection,
        job: Row[Any],
        state: JobState,
        message: str = "",
        outcome: str | None = None,
        **values: Any,
    ) -> None:
        """End the attempt: the job passes to `state`, and nobody holds it."""
        values |= {"lease_token": None, "lease_expires": None}
        self._transition(connection, job, state, message, **values)
        this = (attempts.c.job_id == job.id, attempts.c.number == job.attempts)
        ended = {"outcome": outcome or state, "message": message, "end_time": self._clock()}
        connection.execute(update(attempts).where(*this).values(**ended))

    def _fail(
        self,
        connection: Connection,
        job: Row[Any],
        kind: FailureKind,
        message: str,
        outcome: str | None = None,
        **values: Any,
    ) -> None:
        values |= {"failure_kind": kind, "failure_message": message}
        self._end(connection, job, JobState.FAILED, message, outcome, **values)

    def _lose(self, connection: Connection, job: Row[Any], message: str) -> None:
        lost = job.lost_attempts + 1
        if job.state == JobState.RUNNING and lost >= self._max_lost_attempts:
            message = f"{lost} attempts were lost; the last: {message}"
            kind = FailureKind.WORKER_LOST
            self._fail(connection, job, kind, message, "LOST", lost_attempts=lost)
        else:
            state = AFTER_STOP[JobState(job.state)]
            self._end(connection, job, state, message, "LOST", lost_attempts=lost)


def _find(connection: Connection, tenant: str, job_id: str) -> Row[Any]:
    owned = (jobs.c.id == job_id) & (jobs.c.tenant == tenant)
    row = connection.execute(select(jobs).where(owned)).first()
    if row is None:
        raise JobNotFound(f"job_id: must be a job of {tenant!r}; got {job_id!r}")
    return row


def _put_points(connection: Connection, job_id: str, points: list[dict[str, Any]]) -> None:
    """Insert points, in place of those there are; the lease makes us their only writer."""
    for point in points:
        same = (metrics.c.name == point["name"]) & (metrics.c.step == point["step"])
        connection.execute(delete(metrics).where(metrics.c.job_id == job_id, same))
        connection.execute(insert(metrics).values(job_id=job_id, **point))
