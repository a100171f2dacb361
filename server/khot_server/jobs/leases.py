"""What a runner does with jobs: it claims them, keeps its leases, and tells how they go.

A lease is a token that only the runner knows, and a time until which it promises to be
heard of. Whatever it writes is guarded by the token, so a runner that was given up changes
0 rows and learns it (`LeaseLost`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import groupby
from json import dumps
from typing import Any
from uuid import uuid4

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from khot_server.jobs.change import Change
from khot_server.jobs.database import Database
from khot_server.jobs.records import Artifact, Claim, Counted, LeaseLost, Point, Progress
from khot_server.jobs.results import Result, result_to_json
from khot_server.jobs.rows import progressed
from khot_server.jobs.schema import artifacts, attempts, jobs, metrics
from khot_server.jobs.spec import spec_from_json
from khot_server.jobs.states import AFTER_STOP, INFRASTRUCTURE, FailureKind, JobState

MAX_BACKOFF_S = 60.0
# How much a lost attempt speaks against its job. One that died with its runner is rarely to
# blame; but a job that takes all of its machine down, by its memory say, must end one day.
DIED_ALONE, DIED_WITH_RUNNER = 4, 1


class Leases:
    """The jobs of a database, for runners.

    Each method with a token raises LeaseLost when it does not hold a job any more.

    Args:
        clock: seconds since 1970.
        max_lost_attempts: with that many lost without a checkpoint between, a job has failed; one
            that was lost with its runner counts a quarter.
        backoff_s: how long a job waits after the first lost attempt, and twice that after each.
    """

    def __init__(
        self,
        database: Database,
        clock: Callable[[], float],
        *,
        max_lost_attempts: int,
        backoff_s: float,
    ) -> None:
        self._database, self._clock = database, clock
        self._max_lost_attempts, self._backoff_s = max_lost_attempts, backoff_s

    def claim(self, runner: str, lease_s: float) -> Claim | None:
        """Give a QUEUED job to `runner`; None if there is none.

        The tenant with the fewest running jobs goes first, or the one that was served least
        recently; of its jobs the one with the greatest priority, or the oldest.
        """
        now = self._clock()
        with self._database.writing() as connection:
            row = _next(connection, now)
            if row is None:
                return None
            number, token = row.attempts + 1, uuid4().hex
            lease = {"lease_token": token, "lease_expires": now + lease_s, "claim_time": now}
            change = Change(connection, row, now)
            change.transition(JobState.RUNNING, f"attempt {number}", attempts=number, **lease)
            began = row.checkpoint_step or 0
            attempt = {"job_id": row.id, "number": number, "runner": runner, "message": ""}
            steps = {"first_step": began, "last_step": began}
            connection.execute(insert(attempts).values(**attempt, start_time=now, **steps))
        remaining_s = None if row.max_run_s is None else max(0.0, row.max_run_s - row.run_s)
        spec = spec_from_json(row.spec)
        return Claim(row.id, row.tenant, number, token, spec, row.checkpoint, remaining_s)

    def ready_in(self) -> float | None:
        """Return the seconds until a QUEUED job may be claimed; None if none is queued."""
        now = self._clock()
        soonest = select(func.min(jobs.c.not_before)).where(jobs.c.state == JobState.QUEUED)
        with self._database.reading() as connection:
            if connection.execute(select(jobs.c.id).where(_ready(now)).limit(1)).first():
                return 0.0
            at = connection.execute(soonest).scalar()
        return None if at is None else at - now

    def history(self, job_id: str) -> tuple[Point, ...]:
        """Return what was measured up to the last checkpoint, in the order of the steps."""
        row = select(jobs.c.checkpoint_step).where(jobs.c.id == job_id)
        of_job = (metrics.c.job_id == job_id) & (metrics.c.step <= row.scalar_subquery())
        query = select(metrics).where(of_job).order_by(metrics.c.step)
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        points = []
        for step, at in groupby(rows, lambda row: row.step):
            known = list(at)
            values = {row.name: row.value for row in known if row.value is not None}
            points.append(Point(step, known[0].epoch, known[0].stage, values))
        return tuple(points)

    def heartbeat(self, token: str, lease_s: float) -> JobState:
        """Renew the lease, and return the job's state: what is asked of the attempt."""
        with self._held(token) as change:
            change.write(lease_expires=change.now + lease_s)
            return change.state

    def states(self, tokens: Iterable[str]) -> dict[str, JobState]:
        """Return the state of each job that these tokens hold."""
        held = select(jobs.c.lease_token, jobs.c.state).where(jobs.c.lease_token.in_(list(tokens)))
        with self._database.reading() as connection:
            return {row.lease_token: JobState(row.state) for row in connection.execute(held)}

    def began(self, token: str, step: int) -> None:
        """Tell from which step the attempt goes on."""
        with self._held(token) as change:
            _attempt(change, first_step=step, last_step=step)

    def progress(
        self,
        token: str,
        progress: Progress,
        points: Sequence[Point],
        counted: Counted,
    ) -> None:
        """Tell how far the attempt is. A step told of before gets no second point of a metric."""
        with self._held(token) as change:
            change.write(progressed(progress, counted), progress=dumps(asdict(progress)))
            _attempt(change, last_step=progress.step)
            _put_points(change.connection, change.row.id, points)

    def checkpointed(self, token: str, path: str, step: int) -> None:
        """Make the next attempt go on from `path`, a file that is durable already."""
        with self._held(token) as change:
            change.write(checkpoint=path, checkpoint_step=step, lost_attempts=0, blame=0)
            _attempt(change, last_step=step)

    # How an attempt ends. `checkpoints_s`: what it took to write those of which no event has told.

    def succeed(
        self,
        token: str,
        result: Result,
        files: Sequence[Artifact] = (),
        *,
        checkpoints_s: Sequence[float] = (),
    ) -> None:
        """End the job with a result and its files, which are durable already."""
        with self._held(token) as change:
            told = result_to_json(result)
            change.end_attempt(JobState.SUCCEEDED, "", checkpoints_s, result=told)
            of_job = artifacts.c.job_id == change.row.id
            change.connection.execute(delete(artifacts).where(of_job))
            if files:
                rows = [{"job_id": change.row.id, **asdict(file)} for file in files]
                change.connection.execute(insert(artifacts), rows)

    def fail(
        self,
        token: str,
        kind: FailureKind,
        message: str,
        *,
        checkpoints_s: Sequence[float] = (),
    ) -> None:
        """End the job without a result; or try it again, if the fault was not its own."""
        with self._held(token) as change:
            if kind in INFRASTRUCTURE:
                self._lose(change, kind, message, checkpoints_s)
            else:
                failed = {"failure_kind": kind, "failure_message": message}
                change.end_attempt(JobState.FAILED, message, checkpoints_s, **failed)

    def requeue(self, token: str, message: str, *, checkpoints_s: Sequence[float] = ()) -> None:
        """Give the job back after its attempt has stopped; nothing is charged.

        A job that was asked to pause or to end is PAUSED or CANCELLED by that.
        """
        with self._held(token) as change:
            after = AFTER_STOP[change.state]
            change.end_attempt(after, message, checkpoints_s, "STOPPED")

    def lost(self, token: str, message: str, *, checkpoints_s: Sequence[float] = ()) -> None:
        """Give the job back after its attempt has died; too many of those and it has failed."""
        with self._held(token) as change:
            self._lose(change, FailureKind.WORKER_LOST, message, checkpoints_s)

    def expire(self, lease_s: float) -> int:
        """Give back all jobs whose runner was not heard of in time; return how many.

        A lease that ends later than any could is of a time when the clock was ahead.
        """
        now = self._clock()
        late = (jobs.c.lease_expires < now) | (jobs.c.lease_expires > now + 2 * lease_s)
        return self._give_back(late, "its runner was not heard of")

    def abandon(self, runner: str) -> int:
        """Give back all jobs that `runner` holds, which is known to be dead; return how many."""
        ran_by = (attempts.c.job_id == jobs.c.id) & (attempts.c.number == jobs.c.attempts)
        its = select(attempts.c.job_id).where(ran_by, attempts.c.runner == runner).exists()
        return self._give_back(jobs.c.lease_token.is_not(None) & its, "its runner died")

    def _give_back(self, which: Any, message: str) -> int:
        with self._database.reading() as connection:
            tokens = [row.lease_token for row in connection.execute(select(jobs).where(which))]
        given = 0
        for token in tokens:
            with self._database.writing() as connection:
                still = select(jobs).where(which, jobs.c.lease_token == token)
                row = connection.execute(still).first()
                if row is not None:
                    change = Change(connection, row, self._clock())
                    self._lose(change, FailureKind.WORKER_LOST, message, blame=DIED_WITH_RUNNER)
                    given += 1
        return given

    @contextmanager
    def _held(self, token: str) -> Iterator[Change]:
        with self._database.writing() as connection:
            row = connection.execute(select(jobs).where(jobs.c.lease_token == token)).first()
            if row is None:
                raise LeaseLost("lease: token must hold a job; got one that holds none")
            yield Change(connection, row, self._clock())

    def _lose(
        self,
        change: Change,
        kind: FailureKind,
        message: str,
        checkpoints_s: Sequence[float] = (),
        *,
        blame: int = DIED_ALONE,
    ) -> None:
        lost, blamed = change.row.lost_attempts + 1, change.row.blame + blame
        counts = {"lost_attempts": lost, "blame": blamed}
        if change.state is JobState.RUNNING and blamed >= DIED_ALONE * self._max_lost_attempts:
            message = f"{lost} attempts were lost; the last: {message}"
            failed = {"failure_kind": kind, "failure_message": message, **counts}
            change.end_attempt(JobState.FAILED, message, checkpoints_s, "LOST", **failed)
            return
        wait_s = min(self._backoff_s * 2.0 ** (lost - 1), MAX_BACKOFF_S)
        later = {"not_before": change.now + wait_s, **counts}
        after = AFTER_STOP[change.state]
        change.end_attempt(after, message, checkpoints_s, "LOST", **later)


def _ready(now: float) -> ColumnElement[bool]:
    """Which jobs may be claimed.

    One that is to wait longer than any has to is of a time when the clock was ahead.
    """
    waits = jobs.c.not_before.between(now, now + MAX_BACKOFF_S) & (jobs.c.not_before != now)
    return (jobs.c.state == JobState.QUEUED) & ~waits


def _next(connection: Connection, now: float) -> Row[Any] | None:
    """The job to claim."""
    ready = _ready(now)
    waiting = select(jobs.c.tenant).where(ready).distinct()
    tenants = connection.execute(waiting).scalars().all()
    if not tenants:
        return None
    running = func.count(jobs.c.lease_token)
    served = func.coalesce(func.max(jobs.c.claim_time), 0.0)
    of_them = select(jobs.c.tenant).where(jobs.c.tenant.in_(tenants)).group_by(jobs.c.tenant)
    fairest = of_them.order_by(running, served, jobs.c.tenant).limit(1)
    tenant = tenants[0] if len(tenants) == 1 else connection.execute(fairest).scalar()
    first = select(jobs).where(ready, jobs.c.tenant == tenant)
    # Locking and skipping are for databases with several writers; SQLite ignores them.
    first = first.order_by(jobs.c.priority.desc(), jobs.c.number).limit(1)
    return connection.execute(first.with_for_update(skip_locked=True)).first()


def _attempt(change: Change, **values: Any) -> None:
    this = (attempts.c.job_id == change.row.id) & (attempts.c.number == change.row.attempts)
    change.connection.execute(update(attempts).where(this).values(**values))


def _put_points(connection: Connection, job_id: str, points: Sequence[Point]) -> None:
    """Insert points, in place of those there are; the lease makes us their only writer."""
    rows = [
        {"name": name, "step": point.step, "value": value, "epoch": point.epoch}
        | {"stage": point.stage, "job_id": job_id}
        for point in points
        for name, value in point.metrics.items()
    ]
    if not rows:
        return
    same = (
        metrics.c.job_id == job_id,
        metrics.c.name == bindparam("this_name"),
        metrics.c.step == bindparam("this_step"),
    )
    keys = [{"this_name": row["name"], "this_step": row["step"]} for row in rows]
    connection.execute(delete(metrics).where(*same), keys)
    connection.execute(insert(metrics), rows)
