"""Whether the system has ended a process for want of memory.

A process that the kernel kills so cannot say why it died, and looks like one that somebody
killed. The kernel counts them: for the memory cgroup we are in, which is the container's, or else
for the machine.
"""

import re
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


class OomKills:
    """Counts them from now on."""

    def __init__(self) -> None:
        self._seen = _count()

    def happened(self) -> bool:
        """Whether there were any since this was last asked."""
        before, self._seen = self._seen, _count()
        return self._seen > before


def _count() -> int:
    for path in (*_cgroup_files(), Path("/proc/vmstat")):
        try:
            found = _COUNT.search(path.read_text())
        except OSError:
            continue
        if found:
            return int(found[1])
    return 0  # a system that does not count them


def _cgroup_files() -> list[Path]:
    """Where the count of our cgroup may be: of version 2, then of version 1."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if not controllers:
            found.append(_ROOT / path.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            found.append(_ROOT / "memory" / path.lstrip("/") / "memory.oom_control")
    return found
