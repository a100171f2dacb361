"""Where the time goes under 64 callers: by thread, by our functions, and by what they call.

The server is not touched and has no switch for this: a folder with load_sampler.py under the
name `sitecustomize.py` on its PYTHONPATH puts the sampler into its processes.
"""

import json
import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import load_sampler
from load_closed import CASES, METHOD
from load_generators import closed
from load_report import show
from load_targets import Ours, Trickle, relax_request, reply_size
from load_watch import thread_cpu_s

WRITTEN_S = 10.0
SHOWN = 15
PACKAGES = {"khot", "khot_server", "khot_proto"}


def main(*, smoke: bool) -> None:
    case = CASES[0]
    request = relax_request(case.rows, case.n, case.k)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(load_sampler.__file__, Path(folder, "sitecustomize.py"))
        path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        environment = {"PYTHONPATH": path, load_sampler.FOLDER: folder}
        with Ours(**environment) as ours:
            pids = {name: pids[0] for name, pids in ours.pids().items()}
            size = reply_size(ours, METHOD, request)

            def load(requests: int) -> None:
                target = ours.path(METHOD, size)
                closed(ours.address, target, request, case.callers, requests)

            load(2 * case.callers)
            with Trickle(ours, METHOD, request, size, case.every_s):
                before = {name: thread_cpu_s(pid) for name, pid in pids.items()}
                for pid in pids.values():
                    os.kill(pid, signal.SIGUSR2)
                start = time.perf_counter()
                count = 1000 if smoke else 8000  # fewer would hardly be sampled
                load(count)
                seconds = time.perf_counter() - start
                for pid in pids.values():
                    os.kill(pid, signal.SIGUSR2)
                after = {name: thread_cpu_s(pid) for name, pid in pids.items()}
            counts = {name: _written(Path(folder, f"{name}.json")) for name in pids}
    print(f"{case.name}: {count / seconds:.0f} requests/s with the profiler on")
    show("load_profile_threads", _threads(before, after, count), None)
    for name, stacks in counts.items():
        for called in (False, True):
            show(f"load_profile_{name}", shares(stacks, called=called)[:SHOWN], None)


def _written(path: Path) -> dict[str, int]:
    end = time.monotonic() + WRITTEN_S
    while not path.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"load_profile: {path.name} must be written; got nothing")
        time.sleep(0.02)
    counts: dict[str, int] = json.loads(path.read_text())
    return counts


def _threads(
    before: Mapping[str, Mapping[str, float]], after: Mapping[str, Mapping[str, float]], count: int
) -> list[dict[str, object]]:
    """CPU time by process and thread name, of those that had any."""
    rows = []
    for process, threads in after.items():
        for thread, seconds in threads.items():
            took = seconds - before[process].get(thread, 0.0)
            row = {"process": process, "thread": thread, "us a request": 1e6 * took / count}
            rows.append((took, row))
    return [row for took, row in sorted(rows, key=lambda pair: -pair[0]) if took > 0]


def shares(stacks: Mapping[str, int], *, called: bool) -> list[dict[str, object]]:
    """By the innermost function of ours on the stack, most first; `called` tells what is at the
    top of the stack apart, such as what that function has called.
    """
    total, counts = sum(stacks.values()), Counter[tuple[str, ...]]()
    for stack, number in stacks.items():
        frames = stack.split(";")
        ours = next(filter(_is_ours, reversed(frames)), "")
        counts[tuple(map(_short, (ours, frames[-1]) if called else (ours,)))] += number
    return [
        {"%": round(100 * number / total, 1), **dict(zip(("ours", "in"), names, strict=False))}
        for names, number in counts.most_common()
    ]


def _is_ours(frame: str) -> bool:
    """Whether it is of one of our packages, wherever they are: a checkout may be named as one."""
    inner = frame.rpartition("site-packages/")[2]
    return not PACKAGES.isdisjoint(Path(inner).parts)


def _short(frame: str) -> str:
    """`worker/engine.py:Engine.run` of a frame, as much as tells it apart."""
    path, _, function = frame.rpartition(":")
    return f"{'/'.join(Path(path).parts[-2:])}:{function}" if path else "-"
