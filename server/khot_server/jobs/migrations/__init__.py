"""How a database of an older version comes to have the tables of today, by Alembic."""
