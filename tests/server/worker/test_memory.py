"""Shared memory without a name: the same pages on both sides, and gone with its holders."""

import os
from pathlib import Path

import pytest

from khot_server.worker import memory


@pytest.fixture(params=["memfd", "temporary file"])
def kind(request, monkeypatch):
    if request.param == "temporary file":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    elif not hasattr(os, "memfd_create"):
        pytest.skip("needs memfd_create, which this system has not")
    return request.param


def test_both_sides_see_the_same_bytes(kind):
    fd = memory.create(4096)
    ours, theirs = memory.attach(os.dup(fd)), memory.attach(fd)
    ours[10:14] = b"khot"
    assert theirs[10:14] == b"khot" and len(theirs) == 4096


def test_it_has_no_name_and_no_descriptor_stays_open(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = [entries(folder) for folder in ("/proc/self/fd", "/dev/shm", str(tmp_path))]
    mapping = memory.attach(memory.create(4096))
    assert [entries("/dev/shm"), entries(str(tmp_path))] == before[1:]
    mapping.close()
    assert entries("/proc/self/fd") == before[0]


def entries(folder: str) -> int:
    return len(list(Path(folder).iterdir()))
