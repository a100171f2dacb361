"""A sampling profiler for processes that know nothing of it: standard library only.

Put on the PYTHONPATH of a service as `sitecustomize.py`, it is imported by every Python process
at its start, and does something only in those named below, and only once they get SIGUSR2: from
then on every 5 ms of the process's CPU time the stack of its main thread is counted, until the
next SIGUSR2 writes the counts to `$KHOT_LOAD_PROFILE/<process>.json`. CPU time of other threads
shows as whatever the main thread was doing, which is mostly waiting.
"""

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

FOLDER = "KHOT_LOAD_PROFILE"
PROCESSES = {"khot_server.api.app": "api", "khot_server.worker.process": "engine"}
EVERY_S = 0.005

_counts: Counter[str] = Counter()


def main() -> None:
    folder = os.environ.get(FOLDER)
    name = next((PROCESSES[arg] for arg in sys.orig_argv if arg in PROCESSES), None)
    if folder and name:
        target = Path(folder, f"{name}.json")
        signal.signal(signal.SIGUSR2, lambda number, frame: _toggle(target))


def _toggle(target: Path) -> None:
    if signal.getitimer(signal.ITIMER_PROF)[0] == 0.0:
        _counts.clear()
        signal.signal(signal.SIGPROF, _sample)
        signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
        return
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    part = target.with_suffix(".part")
    part.write_text(json.dumps(_counts))
    part.rename(target)  # whole, or not there


def _sample(number: int, frame: FrameType | None) -> None:
    stack = []
    while frame is not None:
        code = frame.f_code
        stack.append(f"{code.co_filename}:{code.co_qualname}")
        frame = frame.f_back
    _counts[";".join(reversed(stack))] += 1


main()
