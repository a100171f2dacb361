"""Seconds of candidates that take turns, in as many rounds as a budget of time allows.

Of processor time: on one thread it is what a quiet machine would take, and on a shared one the
others do not count. A turn is two calls, and the second counts: in a training too a step follows
one of its own kind, with its memory and its caches.
"""

import statistics
import time
from collections.abc import Callable, Mapping

Seconds = dict[str, list[float]]  # by candidate and round


def taken(
    candidates: Mapping[str, Callable[[], object]], budget_s: float, *, least: int = 3
) -> Seconds:
    """One turn of each to be warm, then from `least` to 50 rounds."""
    total = 2 * sum(_turn(run) for run in candidates.values())
    rounds = min(50, max(least, int(budget_s / total)))
    seconds: Seconds = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            seconds[name].append(_turn(run))
    return seconds


def milliseconds(seconds: Seconds, name: str) -> float:
    return 1e3 * statistics.median(seconds[name])


def ratio(seconds: Seconds, name: str, baseline: str) -> float:
    """The median over rounds of one candidate's time over the other's."""
    pairs = zip(seconds[name], seconds[baseline], strict=True)
    return statistics.median(a / b for a, b in pairs)


def _turn(run: Callable[[], object]) -> float:
    run()
    start = time.process_time()
    run()
    return time.process_time() - start
