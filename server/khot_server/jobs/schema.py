"""The tables of the job store, and how a database comes to have them.

The tables here are what the code of today expects; `migrations/` is how any older
database gets there, and a test compares the two. Times are seconds since 1970 in UTC.
"""

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import (
    Column,
    Connection,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

# Constraints with names, so that a later migration can speak of them.
metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

jobs = Table(
    "jobs",
    metadata,
    Column("number", Integer, primary_key=True),  # the order of submission
    Column("id", String(32), nullable=False, unique=True),
    Column("tenant", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("spec", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("failure_kind", Text),
    Column("failure_message", Text, nullable=False),
    Column("result", Text),
    Column("attempts", Integer, nullable=False),
    Column("lost_attempts", Integer, nullable=False),
    Column("last_sequence", Integer, nullable=False),
    Column("checkpoint", Text),
    Column("checkpoint_step", Integer),
    # Both are set while an attempt runs, and only then.
    Column("lease_token", String(32), unique=True),
    Column("lease_expires", Double),
    Column("create_time", Double, nullable=False),
    Column("update_time", Double, nullable=False),
    UniqueConstraint("tenant", "request_id"),
    sqlite_autoincrement=True,
)
Index(None, jobs.c.state, jobs.c.number)

attempts = Table(
    "attempts",
    metadata,
    Column("job_id", ForeignKey(jobs.c.id), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("runner", Text, nullable=False),
    Column("outcome", Text),  # SUCCEEDED, FAILED, STOPPED or LOST; none while it runs
    Column("message", Text, nullable=False),
    Column("start_time", Double, nullable=False),
    Column("end_time", Double),
)

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("job_id", ForeignKey(jobs.c.id), nullable=False),
    Column("sequence", Integer, nullable=False),
    Column("time", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("state", Text),
    Column("message", Text, nullable=False),
    Column("step", Integer, nullable=False),
    Column("total_steps", Integer, nullable=False),
    Column("metrics", Text, nullable=False),
    Column("iterations", Text, nullable=False),
    UniqueConstraint("job_id", "sequence"),
    # An id is never given twice, so "after this id" stays true when rows are deleted.
    sqlite_autoincrement=True,
)

metrics = Table(
    "metrics",
    metadata,
    Column("job_id", ForeignKey(jobs.c.id), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("step", Integer, primary_key=True, autoincrement=False),
    Column("value", Double),  # none: it was not a number, which SQLite cannot hold
)


def migrate(connection: Connection) -> None:
    """Bring the database to the tables of today, in the transaction of `connection`.

    Raises:
        RuntimeError: a later version of khot has been here.
    """
    config = Config()
    config.set_main_option("script_location", "khot_server.jobs:migrations")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        must = "database must be of this version of khot or an older one"
        raise RuntimeError(f"job store: {must}; got: {error}") from error
