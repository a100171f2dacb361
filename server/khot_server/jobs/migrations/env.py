"""Run by Alembic: `schema.migrate` passes the connection, and its transaction is all of ours.

So a migration happens wholly or not at all, and processes that open the same database
at once wait for each other.
"""

from alembic import context

from khot_server.jobs.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
