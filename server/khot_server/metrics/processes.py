"""The processes of the service as the system sees them, from /proc; elsewhere there are none.

The supervisor is our parent, and what it started is found below it. The processor time of an
attempt that has ended is told by its nursery or runner, which waited for it; of any other process
that has ended, what was last seen is kept, so that no counter ever falls.
"""

import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from khot_server.metrics.definitions import PROCESSES

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MODULES = {
    "khot_server.api.app": "api",
    "khot_server.worker.process": "engine",
    "khot_server.jobs.runner": "runner",
    "khot_server.jobs.nursery": "nursery",
    "khot_server.jobs.attempt": "attempt",
}


@dataclass(frozen=True)
class Usage:
    """What processes have used, by their name.

    Attributes:
        cpu_s: since the service started.
        memory: in bytes, resident, now.
    """

    cpu_s: dict[str, float]
    memory: dict[str, float]


class Processes:
    """The processes below `root`. May be asked by several threads."""

    def __init__(self, root: int, proc: Path = Path("/proc")) -> None:
        self._root, self._proc = root, proc
        self._names: dict[tuple[int, str], str] = {}
        self._seen: dict[tuple[int, str], dict[str, float]] = {}
        self._ended: defaultdict[str, float] = defaultdict(float)
        self._lock = threading.Lock()

    def usage(self) -> Usage:
        """What they use now; of nothing where there is no /proc."""
        with self._lock:
            found = list(self._tree(self._root, None))
            if not found:
                return Usage({}, {})
            self._forget({process.key for process in found})
            cpu_s, memory = dict.fromkeys(PROCESSES, 0.0), dict.fromkeys(PROCESSES, 0.0)
            for process in found:
                memory[process.name] += process.memory
                self._seen[process.key] = process.left_s
                for name, seconds in process.cpu_s.items():
                    cpu_s[name] += seconds
            return Usage({name: cpu_s[name] + self._ended[name] for name in PROCESSES}, memory)

    def _forget(self, alive: set[tuple[int, str]]) -> None:
        """Keep the times of those that have ended."""
        for key in self._seen.keys() - alive:
            for name, seconds in self._seen.pop(key).items():
                self._ended[name] += seconds
        for key in self._names.keys() - alive:
            del self._names[key]

    def _tree(self, pid: int, parent: "_Process | None") -> Iterator["_Process"]:
        folder = self._proc / str(pid)
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            resident = int((folder / "statm").read_text().split()[1]) * _PAGE
            key = pid, fields[19]  # with when it began: a pid may be given again
            name = self._names.get(key) or self._name(folder, parent)
            if parent is None or name != parent.name:  # else it may be about to become another
                self._names[key] = name
            own, reaped = (sum(map(int, fields[at : at + 2])) / _TICKS for at in (11, 13))
            process = _Process(key, name, resident, own, reaped, parent)
            children = " ".join(
                (task / "children").read_text() for task in (folder / "task").iterdir()
            )
        except (OSError, ValueError, IndexError):
            return  # it has ended meanwhile
        yield process
        for child in children.split():
            yield from self._tree(int(child), process)

    def _name(self, folder: Path, parent: "_Process | None") -> str:
        if parent is None:
            return "supervisor"
        if parent.name in ("nursery", "attempt"):
            return "attempt"
        command = (folder / "cmdline").read_text().split("\0")
        # a parser of uploads, say, is a part of what started it
        return next((_MODULES[part] for part in command if part in _MODULES), parent.name)


@dataclass(frozen=True)
class _Process:
    key: tuple[int, str]
    name: str
    memory: int
    own_s: float
    reaped_s: float
    parent: "_Process | None"

    @property
    def cpu_s(self) -> dict[str, float]:
        """Its time, and that of children it has waited for, by the name it counts under."""
        if self.name in ("nursery", "runner"):
            return {self.name: self.own_s, "attempt": self.reaped_s}
        return {self.name: self.own_s + (self.reaped_s if self.name == "api" else 0.0)}

    @property
    def left_s(self) -> dict[str, float]:
        """What is to be added once it has ended, for nobody else tells it."""
        if self.name == "nursery":  # the runner tells all of its time, as that of attempts
            return {"nursery": self.own_s, "attempt": -self.own_s}
        told = self.name == "attempt" or (self.parent is not None and self.parent.name == self.name)
        return {} if told else self.cpu_s
