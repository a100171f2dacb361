"""An SQLite database opened so that what was committed stays: WAL, every commit synced.

Several processes and many threads share the file. A transaction that will write takes
the write lock when it begins (BEGIN IMMEDIATE): one that began by reading could find,
when it comes to write, that another wrote meanwhile, and no waiting would help it.
"""

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import ConnectionPoolEntry

from khot_server.jobs.schema import migrate

# How long to wait for the write lock of another process.
BUSY_S = 10.0


class DatabaseUnavailable(OSError):
    """The disk is full, cannot be written, or another holds the lock; nothing was stored."""


# Told of each transaction that has ended whether it was a `read` or a `write`, and its seconds.
Observe = Callable[[str, float], None]


class Database:
    """The transactions of one process on one file, which is made or migrated if need be.

    Args:
        observe: told of each, with its wait for the lock, by whatever thread had it.
    """

    def __init__(self, path: Path, observe: Observe | None = None) -> None:
        self._observe = observe
        path.parent.mkdir(parents=True, exist_ok=True)
        self._engine = _engine(path)
        self._writer = Lock()
        with _alone_in(path.parent):
            _use_wal(path)
            with self.writing() as connection:
                migrate(connection)

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one moment of the database."""
        with (
            self._timed("read"),
            _available(),
            self._engine.connect() as connection,
            connection.begin(),
        ):
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that may write, and is durable once the block has ended."""
        # SQLite has one writer. Its own waiting is a sleep and a new try; threads that
        # wait here instead are woken in turn.
        with (
            self._timed("write"),
            _available(),
            self._writer,
            self._engine.connect() as connection,
        ):
            connection.execution_options(khot_writes=True)
            with connection.begin():
                yield connection

    @contextmanager
    def _timed(self, operation: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            if self._observe is not None:
                self._observe(operation, time.perf_counter() - start)


@contextmanager
def _available() -> Iterator[None]:
    try:
        yield
    except OperationalError as error:
        must = "must be on a disk with room, that can be written, and locked by nobody for long"
        raise DatabaseUnavailable(f"database: {must}; got: {error.orig}") from error


def _engine(path: Path) -> Engine:
    url = URL.create("sqlite", database=str(path))
    # The overflow is unlimited because the threads of the process are not.
    engine = create_engine(url, connect_args={"timeout": BUSY_S}, max_overflow=-1)
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _on_begin)
    return engine


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Wait for other processes that open a database in `directory`."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # let go when it is closed, or we die
        yield
    finally:
        os.close(descriptor)


def _use_wal(path: Path) -> None:
    """Make the file one with a write-ahead log, which it then stays.

    Two that do so at once would not wait for each other, as they do for all else:
    SQLite says at once that the database is locked.
    """
    with closing(sqlite3.connect(path, timeout=BUSY_S)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")


def _on_connect(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # transactions begin in `_on_begin` alone
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _on_begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("khot_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
