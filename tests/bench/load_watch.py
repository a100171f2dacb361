"""Watching processes from outside, by /proc: their CPU time and memory, and the machine's.

CPU time there counts in hundredths of a second, so it is taken over a second or more.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
EVERY_S = 0.1
PROC = Path("/proc")
GLANCE_S = 0.3
QUIET = 0.1  # cores that others may keep busy while we measure


def cpu_s(pid: int, proc: Path = PROC) -> float:
    """The CPU time of a process, user and system, all its threads."""
    return _ticks(proc / str(pid) / "stat") * TICK_S


def thread_cpu_s(pid: int, proc: Path = PROC) -> dict[str, float]:
    """The CPU time of a process by the names of its threads."""
    found: dict[str, float] = {}
    for task in (proc / str(pid) / "task").iterdir():
        name = (task / "comm").read_text().strip()
        found[name] = found.get(name, 0.0) + _ticks(task / "stat") * TICK_S
    return found


def _ticks(stat: Path) -> int:
    # the name, in brackets, may hold spaces and brackets itself
    fields = stat.read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def rss_bytes(pid: int, proc: Path = PROC) -> int:
    """The memory of a process, shared memory that it has touched included."""
    return int((proc / str(pid) / "statm").read_text().split()[1]) * PAGE


def machine_busy_s(proc: Path = PROC) -> float:
    """The CPU time that all processes of the machine together have had."""
    user, nice, system, _, _, irq, softirq = map(
        int, (proc / "stat").read_text().splitlines()[0].split()[1:8]
    )
    return (user + nice + system + irq + softirq) * TICK_S


class Patience:
    """So many seconds, in all, to wait for others to leave the machine alone."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds

    def wait(self) -> None:
        """While nothing of ours runs: until the machine is quiet, or patience is at its end."""
        start = time.monotonic()
        while (waited := time.monotonic() - start) < self._left:
            busy, at = machine_busy_s(), time.monotonic()
            time.sleep(GLANCE_S)
            if machine_busy_s() - busy <= QUIET * (time.monotonic() - at):
                break
        self._left -= waited


@dataclass
class Usage:
    """CPU time by process, and how many of the machine's cores others kept busy meanwhile."""

    cpu_s: dict[str, float] = field(default_factory=dict)
    elsewhere: float = 0.0

    @property
    def quiet(self) -> bool:
        return self.elsewhere <= QUIET


class Meter:
    """Between enter and exit: the CPU time of named processes, and of all others."""

    def __init__(self, pids: Mapping[str, Sequence[int]], generator_s: Callable[[], float]) -> None:
        self._pids, self._generator_s = pids, generator_s
        self.usage = Usage()

    def __enter__(self) -> Self:
        self._start = self._now()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        time_was, busy_was, was = self._start
        time_is, busy_is, now = self._now()
        self.usage.cpu_s = {name: now[name] - was[name] for name in was}
        ours = sum(self.usage.cpu_s.values())
        self.usage.elsewhere = max(0.0, (busy_is - busy_was - ours) / (time_is - time_was))

    def _now(self) -> tuple[float, float, dict[str, float]]:
        cpu = {name: sum(map(cpu_s, pids)) for name, pids in self._pids.items()}
        cpu |= {"generator": self._generator_s(), "bench": time.process_time()}
        return time.perf_counter(), machine_busy_s(), cpu


@dataclass(frozen=True)
class Look:
    """Memory and CPU time of each process at one moment of `time.perf_counter`."""

    at: float
    rss_bytes: dict[str, int]
    cpu_s: dict[str, float]


class Watch:
    """A thread that looks at some processes ten times a second, from enter to exit."""

    def __init__(self, pids: Mapping[str, Sequence[int]]) -> None:
        self._pids = pids
        self.looks: list[Look] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        while not self._done.wait(EVERY_S):
            self._look()

    def _look(self) -> None:
        rss = {name: sum(map(rss_bytes, pids)) for name, pids in self._pids.items()}
        cpu = {name: sum(map(cpu_s, pids)) for name, pids in self._pids.items()}
        self.looks.append(Look(time.perf_counter(), rss, cpu))

    def between(self, start: float, end: float) -> list[Look]:
        """The looks of that time, or the one that is nearest to its middle."""
        inside = [look for look in self.looks if start <= look.at <= end]
        middle = (start + end) / 2
        return inside or [min(self.looks, key=lambda look: abs(look.at - middle))]
