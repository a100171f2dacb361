"""How much memory a call needs at its peak, whoever allocates it: torch, autograd or a kernel.

The kernel of Linux keeps the greatest resident size of a process, and forgets it on request.
"""

import ctypes
import statistics
from collections.abc import Callable
from pathlib import Path

PROCESS = Path("/proc/self")
MMAP_THRESHOLD = -3  # of mallopt


def measurable() -> bool:
    return (PROCESS / "clear_refs").exists()


def peak_bytes(run: Callable[[], object]) -> int:
    """The greatest resident size during the call, less that before it: the median of five."""
    # a tensor that is freed is gone, and not kept for later
    ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 1 << 16)
    run()
    return int(statistics.median(_peak(run) for _ in range(5)))


def _peak(run: Callable[[], object]) -> int:
    ctypes.CDLL(None).malloc_trim(0)
    (PROCESS / "clear_refs").write_text("5")
    before = _status("VmRSS")
    run()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    lines = (PROCESS / "status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
