"""What jobs as a service need: data sets, uploads, groups, labels, artifacts, limits."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


# Columns are added with defaults, and references in SQL, because SQLite could do more only by
# copying the table, which its foreign keys forbid while others refer to it.
COLUMNS = (
    ("jobs", sa.Column("kind", sa.Text, nullable=False, server_default="feature_selection")),
    ("jobs", sa.Column("priority", sa.Integer, nullable=False, server_default="0")),
    ("jobs", sa.Column("max_run_s", sa.Double)),
    ("jobs", sa.Column("run_s", sa.Double, nullable=False, server_default="0")),
    ("jobs", sa.Column("progress", sa.Text)),
    ("jobs", sa.Column("not_before", sa.Double, nullable=False, server_default="0")),
    ("jobs", sa.Column("claim_time", sa.Double)),
    ("jobs", sa.Column("blame", sa.Integer, nullable=False, server_default="0")),
    ("attempts", sa.Column("first_step", sa.Integer, nullable=False, server_default="0")),
    ("attempts", sa.Column("last_step", sa.Integer, nullable=False, server_default="0")),
    ("metrics", sa.Column("epoch", sa.Integer, nullable=False, server_default="0")),
    ("metrics", sa.Column("stage", sa.Text, nullable=False, server_default="")),
    ("events", sa.Column("details", sa.Text, nullable=False, server_default="{}")),
)
INDEXES = (["tenant", "number"], ["tenant", "claim_time"], ["group_id"], ["dataset_id"])


def upgrade() -> None:
    _create_tables()
    for table, column in COLUMNS:
        op.add_column(table, column)
    for name, other in (("dataset_id", "datasets"), ("group_id", "groups")):
        reference = f"CONSTRAINT fk_jobs_{name} REFERENCES {other} (id)"
        op.execute(f"ALTER TABLE jobs ADD COLUMN {name} VARCHAR(32) {reference}")
    for column_names in INDEXES:
        op.create_index(f"ix_jobs_{'_'.join(column_names)}", "jobs", column_names)
    _translate()


def _create_tables() -> None:
    op.create_table(
        "groups",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("create_time", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_groups"),
        sa.UniqueConstraint("tenant", "request_id", name="uq_groups_tenant_request_id"),
    )
    op.create_table(
        "datasets",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("format", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.Integer, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("summary", sa.Text, nullable=False),
        sa.Column("create_time", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_datasets"),
    )
    op.create_index("ix_datasets_tenant_create_time", "datasets", ["tenant", "create_time"])
    op.create_table(
        "uploads",
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("upload_id", sa.Text, nullable=False),
        sa.Column("header", sa.Text, nullable=False),
        sa.Column("file", sa.String(32), nullable=False),
        sa.Column("dataset_id", sa.String(32)),
        sa.Column("update_time", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "upload_id", name="pk_uploads"),
    )
    op.create_table(
        "labels",
        sa.Column("job_id", sa.String(32), nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "key", name="pk_labels"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_labels_job_id"),
    )
    op.create_table(
        "artifacts",
        sa.Column("job_id", sa.String(32), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.Integer, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("media_type", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "name", name="pk_artifacts"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_artifacts_job_id"),
    )


def _translate() -> None:
    """Bring results to the form of today; specs of old are still understood."""
    connection = op.get_bind()
    jobs = sa.table("jobs", sa.column("id"), sa.column("result"))
    done = sa.select(jobs).where(jobs.c.result.is_not(None))
    for row in connection.execute(done).all():
        old = json.loads(row.result)["feature_selection"]
        new = {
            "features": old["features"],
            "names": [f"pixel{index}" for index in old["features"]],
            "scores": old["scores"],
            "inclusion_probabilities": [],
            "feature_shape": old["feature_shape"],
            "test": {"loss": old["test_loss"], "accuracy": old["test_accuracy"]},
            "validation": {},
            "stability": 0.0,
            "epochs_run": 0,
        }
        text = json.dumps({"feature_selection": new}, sort_keys=True, separators=(",", ":"))
        connection.execute(sa.update(jobs).where(jobs.c.id == row.id).values(result=text))
