"""How much memory there is and is left: of the machine, or of the container where that has less.

A container with a limit sees the machine's numbers in /proc/meminfo, and is ended at its own.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# The files of a cgroup: its limit, what it uses, and what of that can be had back, of version 2
# and of version 1.
_SECOND = ("memory.max", "memory.current", "inactive_file")
_FIRST = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


@dataclass(frozen=True)
class Memory:
    """In bytes.

    Attributes:
        available: what can be had without swapping.
    """

    total: float
    available: float


def memory(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> Memory | None:
    """Return what there is now; None where there is no /proc."""
    try:
        lines = _numbers((proc / "meminfo").read_text().replace(":", ""))
        machine = Memory(1024 * lines["MemTotal"], 1024 * lines["MemAvailable"])
    except (OSError, KeyError):
        return None
    for limited in _limited(proc, cgroups):
        if limited.total < machine.total:
            return Memory(limited.total, min(limited.available, machine.available))
    return machine


def _limited(proc: Path, cgroups: Path) -> Iterator[Memory]:
    """What our cgroup may have, as each place where that may stand says."""
    for folder, (limit, used, inactive) in _cgroups(proc, cgroups):
        with contextlib.suppress(OSError, ValueError):  # not there, or "max"
            most = int((folder / limit).read_text())
            files = _numbers((folder / "memory.stat").read_text()).get(inactive, 0)
            yield Memory(most, max(0, most - int((folder / used).read_text()) + files))


def _cgroups(proc: Path, cgroups: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if controllers and "memory" not in controllers.split(","):
            continue
        root, names = (cgroups / "memory", _FIRST) if controllers else (cgroups, _SECOND)
        yield root / path.lstrip("/"), names
        yield root, names  # a container may be told its path on the machine, and see its own only


def _numbers(text: str) -> dict[str, int]:
    """The lines of a name and a number, whatever follows."""
    return {words[0]: int(words[1]) for words in map(str.split, text.splitlines())}
