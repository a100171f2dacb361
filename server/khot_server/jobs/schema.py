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
    Column("kind", Text, nullable=False),
    Column("dataset_id", ForeignKey("datasets.id")),  # none: a built-in one
    Column("group_id", ForeignKey("groups.id")),
    Column("priority", Integer, nullable=False),
    Column("max_run_s", Double),
    Column("run_s", Double, nullable=False),  # of the attempts that have ended
    Column("state", Text, nullable=False),
    Column("failure_kind", Text),
    Column("failure_message", Text, nullable=False),
    Column("result", Text),
    Column("attempts", Integer, nullable=False),
    Column("lost_attempts", Integer, nullable=False),  # since the last checkpoint
    Column("blame", Integer, nullable=False),  # how much these speak against the job
    Column("last_sequence", Integer, nullable=False),
    Column("checkpoint", Text),
    Column("checkpoint_step", Integer),
    Column("progress", Text),  # the last event of that kind, as JSON
    # Not claimed before; after attempts that were lost.
    Column("not_before", Double, nullable=False),
    Column("claim_time", Double),  # the last
    # Both are set while an attempt runs, and only then.
    Column("lease_token", String(32), unique=True),
    Column("lease_expires", Double),
    Column("create_time", Double, nullable=False),
    Column("update_time", Double, nullable=False),
    UniqueConstraint("tenant", "request_id"),
    sqlite_autoincrement=True,
)
Index(None, jobs.c.state, jobs.c.number)
Index(None, jobs.c.tenant, jobs.c.number)
Index(None, jobs.c.tenant, jobs.c.claim_time)
Index(None, jobs.c.group_id)
Index(None, jobs.c.dataset_id)

labels = Table(
    "labels",
    metadata,
    Column("job_id", ForeignKey(jobs.c.id), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

# Jobs that were submitted together. The request_id is of another namespace than the jobs'.
groups = Table(
    "groups",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("request", Text, nullable=False),  # JSON, to tell a repetition from another
    Column("create_time", Double, nullable=False),
    UniqueConstraint("tenant", "request_id"),
)

datasets = Table(
    "datasets",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("format", Text, nullable=False),
    Column("size_bytes", Integer, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("summary", Text, nullable=False),
    Column("create_time", Double, nullable=False),
)
Index(None, datasets.c.tenant, datasets.c.create_time)

uploads = Table(
    "uploads",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("upload_id", Text, primary_key=True),
    Column("header", Text, nullable=False),  # JSON
    Column("file", String(32), nullable=False),  # where its bytes are gathered
    Column("dataset_id", String(32)),  # once it was completed
    Column("update_time", Double, nullable=False),
)

artifacts = Table(
    "artifacts",
    metadata,
    Column("job_id", ForeignKey(jobs.c.id), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("size_bytes", Integer, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("media_type", Text, nullable=False),
)

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
    Column("first_step", Integer, nullable=False),
    Column("last_step", Integer, nullable=False),
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
    Column("details", Text, nullable=False),  # JSON of what else a progress tells
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
    Column("epoch", Integer, nullable=False),
    Column("stage", Text, nullable=False),
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
