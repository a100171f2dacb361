"""Load on the service: what it serves, next to a bare gRPC echo of the same bytes, and what it does
with more than it can serve.

Loopback only, bounded in time and calls. Every figure is a median over rounds in which our server
and the echo take turns (load_closed.py), or comes from an open loop with fixed times of sending
(load_overload.py). Statuses are checked by a real client before, during and after each run, and
by the server's own counters; a call that failed ends the benchmark.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import load_closed
import load_overload
import load_picture
import load_profile
from load_closed import Side
from load_generators import has_h2load
from load_picture import Seen
from load_report import Must, show, show_musts
from load_targets import Echo, Ours
from load_watch import Patience

CASES = ("closed", "stream", "overload")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="tiny counts, to see that it runs")
    parser.add_argument("--out", type=Path, help="folder for the CSVs; none is written without it")
    parser.add_argument("--picture", type=Path, help="file for latency against load, an SVG")
    parser.add_argument("--only", choices=CASES, help="one part of it")
    parser.add_argument(
        "--profile", action="store_true", help="only say where the time of 64 callers goes"
    )
    options = parser.parse_args()
    if not has_h2load():
        print(
            "load_grpc: no h2load here; closed loops by a Python client, which costs as much CPU "
            "as a server"
        )
    if options.profile:
        load_profile.main(smoke=options.smoke)
        return
    parts = (options.only,) if options.only else CASES
    smoke, out = options.smoke, options.out
    musts: list[Must] = []
    effort = load_overload.Effort(400, 6.0, 10.0, 20.0, patience=Patience(120.0))
    if smoke:
        effort = load_overload.Effort(16, 1.0, 1.0, 1.0, (0.3, 0.5), (2.0,), growth=1e9)
    with Ours(*load_closed.STREAM_FLAGS) as ours:
        if "closed" in parts or "stream" in parts:
            musts += closed(ours, parts, smoke, out)
        rate = load_overload.closed_rate(ours, effort) if "overload" in parts else None
    if rate is not None:
        musts += overload(rate, effort, out, options.picture)
    show_musts("load_musts", musts, out)


def closed(ours: Ours, parts: Sequence[str], smoke: bool, out: Path | None) -> list[Must]:
    effort = load_closed.Effort(0.05, 1, 1, 0.0) if smoke else load_closed.Effort(1.5, 9, 18, 60.0)
    found: list[tuple[str, Must, list[Side]]] = []
    if "closed" in parts:
        with Echo() as echo:
            for case in load_closed.CASES:
                found.append((case.name, *load_closed.compare(case, ours, echo, effort)))
    if "stream" in parts:
        must, sides = load_closed.compare_stream(ours, effort)
        found.append((must.case, must, sides))
    rows = [side.row(name) for name, _, sides in found for side in sides]
    show("load_closed", rows, out)
    return [must for _, must, _ in found]


def overload(
    rate: float, effort: load_overload.Effort, out: Path | None, picture: Path | None
) -> list[Must]:
    """With a server whose queue is made for about `rate` calls a second."""
    queue = load_overload.queue_calls(rate)
    with Ours(*load_overload.queue_flags(queue)) as ours:
        sustainable, points = load_overload.find_sustainable(ours, rate, effort)
        points += load_overload.beyond(ours, sustainable, effort)
        burst, musts = load_overload.burst(ours, sustainable, queue, effort)
    show("load_overload", [point.row() for point in [*points, *burst]], out)
    if picture:
        seen = [
            Seen(p.phase.rate, p.accepted_p50_s, p.accepted_p99_s, p.refused_share) for p in points
        ]
        picture.write_text(
            load_picture.svg(seen, sustainable, queue / sustainable, load_overload.WHAT)
        )
    return musts


def end(number: int, frame: FrameType | None) -> None:
    """On SIGTERM leave as on Ctrl-C: what was started here ends with it."""
    sys.exit(128 + number)


if __name__ == "__main__":
    before = signal.signal(signal.SIGTERM, end)
    try:
        main()
    finally:
        signal.signal(signal.SIGTERM, before)
