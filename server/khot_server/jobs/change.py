"""The change of one job: its row and the event that tells of it, in one transaction."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from khot_server.jobs.records import LeaseLost
from khot_server.jobs.rows import state_changed
from khot_server.jobs.schema import artifacts, attempts, events, jobs, labels, metrics
from khot_server.jobs.states import JobState, check_transition


class Change:
    """What is written about the job of `row`, as it was read in the transaction of `connection`.

    Args:
        now: seconds since 1970.
    """

    def __init__(self, connection: Connection, row: Row[Any], now: float) -> None:
        self.connection, self.row, self.now = connection, row, now

    @property
    def state(self) -> JobState:
        return JobState(self.row.state)

    def write(self, event: dict[str, Any] | None = None, **values: Any) -> None:
        """Change the row, and append an event, if state and lease are still as they were read.

        Raises:
            LeaseLost: they are not.
        """
        if event is not None:
            values |= {"last_sequence": jobs.c.last_sequence + 1, "update_time": self.now}
        unchanged = (
            jobs.c.id == self.row.id,
            jobs.c.state == self.row.state,
            jobs.c.lease_token.is_not_distinct_from(self.row.lease_token),
        )
        change = update(jobs).where(*unchanged).values(**values)
        sequence = self.connection.execute(change.returning(jobs.c.last_sequence)).scalar()
        if sequence is None:
            must = "must be as it was read; got one changed by another"
            raise LeaseLost(f"job {self.row.id}: {must}")
        if event is not None:
            told = {"job_id": self.row.id, "sequence": sequence, "time": self.now}
            self.connection.execute(insert(events).values(**told, **event))

    def transition(
        self,
        state: JobState,
        message: str = "",
        details: Mapping[str, Any] = MappingProxyType({}),
        /,
        **values: Any,
    ) -> None:
        """Change the state: the one place where it happens."""
        check_transition(f"job {self.row.id}", self.state, state)
        self.write(state_changed(state, message, **details), state=state, **values)

    def end_attempt(
        self,
        state: JobState,
        message: str,
        checkpoints_s: Sequence[float],
        outcome: str | None = None,
        /,
        **values: Any,
    ) -> None:
        """End the attempt: the job passes to `state`, and nobody holds it.

        Its outcome has the state's name, if no other is given. `checkpoints_s` is what it took
        to write those checkpoints of which no event has told.
        """
        outcome = outcome or state
        this = (attempts.c.job_id == self.row.id) & (attempts.c.number == self.row.attempts)
        began = self.connection.execute(select(attempts.c.start_time).where(this)).scalar()
        ran_s = max(0.0, self.now - (self.now if began is None else began))
        values |= {"lease_token": None, "lease_expires": None, "run_s": self.row.run_s + ran_s}
        details = {
            "attempt_outcome": outcome,
            "failure_kind": values.get("failure_kind"),
            "counted": {"checkpoints_s": list(checkpoints_s)},
        }
        self.transition(state, message, details, **values)
        ended = {"outcome": outcome, "message": message, "end_time": self.now}
        self.connection.execute(update(attempts).where(this).values(**ended))


def remove(connection: Connection, job_id: str) -> None:
    """Remove all rows of a job."""
    for table in (labels, artifacts, metrics, events, attempts):
        connection.execute(delete(table).where(table.c.job_id == job_id))
    connection.execute(delete(jobs).where(jobs.c.id == job_id))
