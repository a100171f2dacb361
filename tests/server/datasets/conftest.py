"""What the tests of data sets share: a store in a directory of its own, and small files."""

import hashlib
import io
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from khot_server.datasets.limits import Limits
from khot_server.datasets.records import Format, Header
from khot_server.datasets.store import DatasetStore
from khot_server.jobs.database import Database


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def database(tmp_path):
    made = Database(tmp_path / "jobs.sqlite3")
    yield made
    made.close()


@pytest.fixture
def store(database, tmp_path, clock):
    return DatasetStore(database, tmp_path, clock=clock, max_tenant_bytes=1 << 20)


@pytest.fixture
def read(tmp_path):
    """A reader's table, and its summary, of a file with these bytes."""
    numbers = iter(range(1000))

    def run(reader, data: bytes, limits: Limits | None = None) -> SimpleNamespace:
        from khot_server.datasets.stored import read_table

        number = next(numbers)
        path, out = tmp_path / f"file{number}", tmp_path / f"table{number}"
        path.write_bytes(data)
        summary = reader(path, out, "ab" * 32, limits or Limits())
        table = read_table(out)
        assert table.summary == summary and table.sha256 == "ab" * 32
        return SimpleNamespace(table=table, summary=summary, columns=summary.by_name)

    return run


@pytest.fixture
def npz():
    """The bytes of an npz file."""

    def make(**arrays) -> bytes:
        file = io.BytesIO()
        np.savez(file, **arrays)
        return file.getvalue()

    return make


@pytest.fixture
def header():
    """The header of an upload of these bytes."""

    def make(data: bytes, *, name: str = "t", kind: Format = Format.CSV) -> Header:
        sha256 = hashlib.sha256(data).hexdigest()
        return Header(name=name, format=kind, size_bytes=len(data), sha256=sha256)

    return make


@pytest.fixture
def data_dir() -> Path:
    """Where the real files of MNIST and Fashion-MNIST are."""
    return Path(os.environ["KHOT_DATA_DIR"])
