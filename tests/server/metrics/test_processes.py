"""Processor time and memory of a tree of processes: of real ones, and of a /proc made up."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from khot_server.metrics.processes import Processes

TICK_S, PAGE = 1 / os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
API, RUNNER, NURSERY = "khot_server.api.app", "khot_server.jobs.runner", "khot_server.jobs.nursery"
ENGINE = "khot_server.worker.process"


class Proc:
    """A /proc with processes as the test wants them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, pid, module="", *, own=0, reaped=0, children=(), pages=10, began=1):
        """A process with these ticks; its name in brackets may hold anything."""
        here = self.folder / str(pid)
        (here / "task" / str(pid)).mkdir(parents=True, exist_ok=True)
        ticks = [own, 0, reaped, 0]
        fields = ["S", *["0"] * 10, *map(str, ticks), *["0"] * 4, str(began), "0"]
        (here / "stat").write_text(f"{pid} (a) b) {' '.join(fields)}\n")
        (here / "statm").write_text(f"99 {pages} 0 0 0 0 0\n")
        (here / "cmdline").write_text("\0".join(["python", "-m", module, "--x", ""]))
        listed = " ".join(map(str, children))
        (here / "task" / str(pid) / "children").write_text(f"{listed} ")


@pytest.fixture
def proc(tmp_path):
    return Proc(tmp_path)


@pytest.fixture
def processes(proc):
    return Processes(1, proc.folder)


def cpu(processes: Processes) -> dict[str, int]:
    """In ticks, of those that had some."""
    times = {name: round(s / TICK_S) for name, s in processes.usage().cpu_s.items()}
    return {name: ticks for name, ticks in times.items() if ticks}


def test_every_process_is_counted_under_its_name(proc, processes):
    proc.put(1, "khot_server", own=1, children=[2, 3, 4, 5])
    proc.put(2, API, own=10, reaped=4, children=[9])
    proc.put(3, ENGINE, own=20)
    proc.put(4, ENGINE, own=22)
    proc.put(5, RUNNER, own=30, children=[6])
    proc.put(6, NURSERY, own=40, reaped=50, children=[7, 8])
    proc.put(7, NURSERY, own=60)  # what a nursery has forked looks as it does
    proc.put(8, NURSERY, own=70, pages=7)
    proc.put(9, "khot_server.datasets.child", own=5)
    wanted = {"supervisor": 1, "api": 19, "engine": 42, "runner": 30, "nursery": 40, "attempt": 180}
    assert cpu(processes) == wanted
    memory = processes.usage().memory
    assert memory["attempt"] == 17 * PAGE and memory["api"] == 20 * PAGE


def test_no_counter_falls_whatever_ends_and_nothing_is_counted_twice(proc, processes):
    proc.put(1, "khot_server", children=[2, 3, 5])
    proc.put(2, API, own=10)
    proc.put(3, ENGINE, own=20)
    proc.put(5, RUNNER, own=30, children=[6])
    proc.put(6, NURSERY, own=40, children=[7])
    proc.put(7, NURSERY, own=60)
    assert cpu(processes) == {"api": 10, "engine": 20, "runner": 30, "nursery": 40, "attempt": 60}
    # the attempt took 5 more, and ended; its nursery has waited for it
    proc.put(6, NURSERY, own=40, reaped=65)
    assert cpu(processes) == {"api": 10, "engine": 20, "runner": 30, "nursery": 40, "attempt": 65}
    # an engine died, and another has its pid; a nursery died, and the runner has waited for it
    proc.put(3, ENGINE, own=2, began=2)
    proc.put(5, RUNNER, own=30, reaped=40 + 65)
    assert cpu(processes) == {"api": 10, "engine": 22, "runner": 30, "nursery": 40, "attempt": 65}
    # the runner died with what it knew of attempts
    proc.put(1, "khot_server", children=[2, 3])
    assert cpu(processes) == {"api": 10, "engine": 22, "runner": 30, "nursery": 40, "attempt": 65}


def test_a_process_that_was_only_forked_gets_its_name_once_it_has_one(proc, processes):
    """Until then it looks as its parent does."""
    proc.put(1, "khot_server", children=[5])
    proc.put(5, RUNNER, own=30, children=[6])
    proc.put(6, RUNNER, own=1)
    assert cpu(processes) == {"runner": 31}
    proc.put(6, "khot_server.jobs.attempt", own=9)
    assert cpu(processes) == {"runner": 30, "attempt": 9}


# A child that works for 0.3 s and waits, and its parent, who tells when it does, and when it ended.
CHILD = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
PARENT = """
import subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(flush=True)
input()
child.communicate(b"\\n")
print(flush=True)
input()
"""


def test_real_processes_are_seen_with_their_time_and_memory():
    """A root of our own, for a test's process has other children; an engine by name below it."""
    command = [sys.executable, "-c", PARENT, sys.executable, "-c", CHILD, ENGINE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as root:
        processes = Processes(root.pid)
        root.stdout.readline()
        usage = processes.usage()
        assert 0.25 <= usage.cpu_s["engine"] < 5 and usage.memory["engine"] > 1 << 20
        assert 0 <= usage.cpu_s["supervisor"] < 5 and usage.memory["supervisor"] > 1 << 20
        root.stdin.write(b"\n")
        root.stdin.flush()
        root.stdout.readline()
        ended = processes.usage()
        assert ended.memory["engine"] == 0
        assert ended.cpu_s["engine"] == usage.cpu_s["engine"], "kept, once it has ended"
        root.communicate(b"\n")


def test_without_proc_there_is_nothing(tmp_path):
    assert Processes(1, tmp_path).usage().cpu_s == {}
