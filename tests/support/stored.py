"""What tests of the job store share: progress in the store's words, and a look at its tables."""

import sqlite3

from khot_server.jobs.records import Counted, Point, Progress
from khot_server.jobs.states import JobState

LEASE_S = 30.0


def told(step, total_steps, metrics, iterations):
    """What `Leases.progress` is told at one step, after its token."""
    progress = Progress(step=step, total_steps=total_steps, metrics=metrics, epoch=1)
    counted = Counted(operator="pi_st", iterations=iterations, rows=64)
    return progress, [Point(step, 1, "selection", metrics)], counted


def counts(store):
    """How many jobs there are in every state."""
    found = dict.fromkeys(JobState, 0)
    for (state, _), number in store.census().jobs.items():
        found[state] += number
    return found


def query(tmp_path, text, *values):
    """Run SQL on the store of a test, beside it."""
    connection = sqlite3.connect(tmp_path / "jobs.sqlite3")
    try:
        with connection:
            return connection.execute(text, values).fetchall()
    finally:
        connection.close()
