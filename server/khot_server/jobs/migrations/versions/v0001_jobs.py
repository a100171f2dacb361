"""Jobs, their attempts, their events and their metrics."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("failure_kind", sa.Text),
        sa.Column("failure_message", sa.Text, nullable=False),
        sa.Column("result", sa.Text),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("lost_attempts", sa.Integer, nullable=False),
        sa.Column("last_sequence", sa.Integer, nullable=False),
        sa.Column("checkpoint", sa.Text),
        sa.Column("checkpoint_step", sa.Integer),
        sa.Column("lease_token", sa.String(32)),
        sa.Column("lease_expires", sa.Double),
        sa.Column("create_time", sa.Double, nullable=False),
        sa.Column("update_time", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_jobs"),
        sa.UniqueConstraint("id", name="uq_jobs_id"),
        sa.UniqueConstraint("lease_token", name="uq_jobs_lease_token"),
        sa.UniqueConstraint("tenant", "request_id", name="uq_jobs_tenant_request_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_jobs_state_number", "jobs", ["state", "number"])
    op.create_table(
        "attempts",
        sa.Column("job_id", sa.String(32), nullable=False),
        sa.Column("number", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("runner", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("start_time", sa.Double, nullable=False),
        sa.Column("end_time", sa.Double),
        sa.PrimaryKeyConstraint("job_id", "number", name="pk_attempts"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_attempts_job_id"),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("job_id", sa.String(32), nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("state", sa.Text),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("total_steps", sa.Integer, nullable=False),
        sa.Column("metrics", sa.Text, nullable=False),
        sa.Column("iterations", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        sa.UniqueConstraint("job_id", "sequence", name="uq_events_job_id_sequence"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_events_job_id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "metrics",
        sa.Column("job_id", sa.String(32), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("step", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("value", sa.Double),
        sa.PrimaryKeyConstraint("job_id", "name", "step", name="pk_metrics"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_metrics_job_id"),
    )
