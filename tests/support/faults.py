"""Disks that are full, memory that is short, and clocks that jump: for real."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(path: Path, size_bytes: int, *, read_only: bool = False) -> Iterator[Path]:
    """A disk of its own at `path`."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small disk")
    path.mkdir()
    options = f"size={size_bytes}" + (",ro" if read_only else "")
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "khot", str(path)], check=True)
    try:
        yield path
    finally:
        # lazily: what is killed just now may hold a file for a moment
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@contextlib.contextmanager
def full(disk: Path) -> Iterator[None]:
    """The disk has no room."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
    try:
        yield
    finally:
        filler.unlink()


@contextlib.contextmanager
def little_memory(size_bytes: int) -> Iterator[None]:
    """We, and what is started in here and ends in here, have so much memory in all."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    ours = next((line.partition(":memory:/")[2] for line in lines if ":memory:" in line), None)
    if ours is None or os.geteuid() != 0:
        pytest.skip("needs root and memory cgroups of version 1, to make memory short")
    parent = Path("/sys/fs/cgroup/memory") / ours
    group = parent / f"khot-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(size_bytes))
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (parent / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


class Clock:
    """The clock of the processes that are started with `environment`."""

    def __init__(self, path: Path) -> None:
        found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
        if not found:
            pytest.skip("needs libfaketime, to step a clock: apt install faketime")
        self._path = path
        self.step(0)
        self.environment = {
            "LD_PRELOAD": str(found[0]),
            "FAKETIME_TIMESTAMP_FILE": str(path),
            "FAKETIME_CACHE_DURATION": "1",  # seconds
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
        }

    def step(self, seconds: int) -> None:
        """Let it be so much ahead of ours."""
        new = self._path.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(self._path)
