"""How much memory there is: of this machine, and of containers made up."""

import os
from pathlib import Path

import pytest

from khot_server.metrics.memory import Memory, memory

MEMINFO = "MemTotal:  4000 kB\nMemFree:  100 kB\nMemAvailable:  3000 kB\nHugePages_Total:  0\n"
KB = 1024


class Machine:
    """A /proc and cgroups as a test wants them."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.cgroups = folder / "proc", folder / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "meminfo").write_text(MEMINFO)

    def put(self, line: str, folder: str, **files: str) -> None:
        """Our cgroup is that of the line, and has these files; `_` stands for a dot."""
        (self.proc / "self/cgroup").write_text(f"7:cpu:/elsewhere\n{line}\n")
        here = self.cgroups / folder
        here.mkdir(parents=True)
        for name, text in files.items():
            (here / name.replace("_", ".", 1)).write_text(text)

    def memory(self) -> Memory | None:
        return memory(self.proc, self.cgroups)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


SECOND = {"memory_current": f"{900 * KB}", "memory_stat": f"anon 5\ninactive_file {300 * KB}\n"}
FIRST = {"memory_usage_in_bytes": f"{900 * KB}"}
FIRST |= {"memory_stat": f"cache 5\ntotal_inactive_file {300 * KB}\n"}


def test_without_a_container_it_is_that_of_the_machine(machine):
    assert machine.memory() == Memory(4000 * KB, 3000 * KB)


@pytest.mark.parametrize("folder", ["a/b", ""], ids=["its path", "the root"])
def test_in_a_container_it_is_that_of_its_limit(machine, folder):
    machine.put("0::/a/b", folder, memory_max=f"{1000 * KB}\n", **SECOND)
    assert machine.memory() == Memory(1000 * KB, 400 * KB)


@pytest.mark.parametrize("folder", ["memory/a", "memory"], ids=["its path", "the root"])
def test_so_it_is_in_a_container_of_the_first_version(machine, folder):
    machine.put("3:cpu,memory:/a", folder, memory_limit_in_bytes=f"{1000 * KB}\n", **FIRST)
    assert machine.memory() == Memory(1000 * KB, 400 * KB)


@pytest.mark.parametrize("limit", ["max\n", f"{1 << 63}\n"])
def test_a_limit_beyond_the_machine_is_none(machine, limit):
    machine.put("0::/a", "a", memory_max=limit, **SECOND)
    assert machine.memory() == Memory(4000 * KB, 3000 * KB)


def test_a_container_has_no_more_left_than_the_machine(machine):
    machine.put("0::/a", "a", memory_max=f"{3999 * KB}\n", **SECOND)
    assert machine.memory() == Memory(3999 * KB, 3000 * KB)


def test_where_there_is_no_proc_nothing_is_known(tmp_path):
    assert memory(tmp_path) is None


def test_of_this_machine_it_is_in_bytes():
    found = memory()
    assert found is not None
    assert found.total <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 1 << 20 < found.available < found.total
