"""Open loop: calls at fixed times, also far more of them than the server can serve.

A caller that waits for its answer before it sends again slows down with the server, and so
hides how slow it is. Here every call has its time, and its latency counts from then. What the
queue cannot hold is refused at once, and what it holds is answered: so the latency of accepted
calls is bounded by the queue, however much is offered.

The work must be heavy for its bytes, or on two cores a generator in Python and the refusing of
calls would take from the engine what it is measured by: a call of 1x8000 scores, k = 4000, costs
`conditional_poisson` 65 ms of CPU in the library. 8x1000 scores, as many bytes, cost it 9 ms, and
`simple` 2 ms, which is hardly more than gRPC itself.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from load_generators import children_cpu_s, one_connection, open_loop
from load_report import Must
from load_runs import (
    GROWTH,
    REFUSED,
    Call,
    Phase,
    drained_s,
    medians,
    percentile,
    split,
    sustained,
)
from load_targets import Counted, Ours, sample_request
from load_watch import QUIET, Look, Meter, Patience, Watch

OPERATOR, ROWS, N, K = "conditional_poisson", 1, 8000, 4000
METHOD, REPLY = "Sample", "SampleResponse"
CHANNELS = 8
WHAT = f"Sample, {OPERATOR}, {ROWS}x{N}, k = {K}; {CHANNELS} connections, calls at fixed times"
CALLERS = 16  # under way when the closed loop finds about what can be served
QUEUE_S = 0.75  # of work that may be under way
KEPT = 0.7  # refusing takes some of the engine's two cores, but not more
STEPS = (0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.7, 2.0)  # of the closed rate
BEYOND = (1.25, 1.5, 2.0, 3.0, 5.0)  # of the sustainable rate, for the picture
UNDER, OVER, REST_S = 0.8, 5.0, 1.0
AT_ONCE_S = 0.1
FLAT = 0.05  # of the memory once the queue is full
RECOVERED = 2.0  # of the p99 before the burst
LATE_S = 0.05  # a generator later than this measures itself
MOST_CALLS = 60_000
TRIES = 3


@dataclass(frozen=True)
class Effort:
    """How long each part is."""

    closed_requests: int
    step_s: float
    under_s: float
    over_s: float
    steps: Sequence[float] = STEPS
    beyond: Sequence[float] = BEYOND
    growth: float = GROWTH  # of the latency within a step that is kept up with
    patience: Patience = field(default_factory=lambda: Patience(0.0))


@dataclass(frozen=True)
class Point:
    """What became of one phase."""

    phase: Phase
    calls: Sequence[Call]
    stages: Sequence[Mapping[str, float]]
    looks: Sequence[Look]
    elsewhere: float

    def latencies(self, code: str) -> list[float]:
        return [call.latency_s for call in self.calls if call.code == code]

    @property
    def accepted_p50_s(self) -> float:
        return percentile(self.latencies("OK"), 0.5)

    @property
    def accepted_p99_s(self) -> float:
        return percentile(self.latencies("OK"), 0.99)

    @property
    def refused_share(self) -> float:
        return len(self.latencies(REFUSED)) / max(1, len(self.calls))

    def row(self) -> dict[str, object]:
        accepted, refused = self.latencies("OK"), self.latencies(REFUSED)
        cpu_us = {
            f"{name} us": 1e6
            * (self.looks[-1].cpu_s[name] - self.looks[0].cpu_s[name])
            / max(1, len(self.calls))
            for name in self.looks[0].cpu_s
        }
        return {
            "phase": self.phase.name,
            "offered/s": self.phase.rate,
            "served": len(accepted),
            "refused": len(refused),
            "other": len(self.calls) - len(accepted) - len(refused),
            "p50 ms": 1e3 * self.accepted_p50_s,
            "p99 ms": 1e3 * self.accepted_p99_s,
            "refused p50 ms": 1e3 * percentile(refused, 0.5),
            "refused p99 ms": 1e3 * percentile(refused, 0.99),
            "late p99 ms": 1e3 * percentile((call.late_s for call in self.calls), 0.99),
            **medians(self.stages),
            **cpu_us,
            **{f"{name} MB": most_mb(self.looks, name) for name in self.looks[0].rss_bytes},
            "cores elsewhere": self.elsewhere,
        }


def most_mb(looks: Sequence[Look], name: str) -> float:
    return max(look.rss_bytes[name] for look in looks) / 1e6


def request() -> bytes:
    return sample_request(OPERATOR, ROWS, N, K)


def closed_rate(ours: Ours, effort: Effort) -> float:
    """About what can be served: the rate of some callers who always wait for an answer."""
    path, count = ours.path(METHOD, 0), effort.closed_requests
    effort.patience.wait()
    return one_connection("closed", ours.address, path, request(), REPLY, CALLERS, count).rate


def queue_calls(rate: float) -> int:
    """How many calls make a queue of `QUEUE_S` of work."""
    return math.ceil(QUEUE_S * rate)


def queue_flags(calls: int) -> tuple[str, ...]:
    """What gives the server that queue."""
    return ("--max-queue-elements", str(calls * ROWS * N))


def run(ours: Ours, phases: Sequence[Phase], patience: Patience) -> list[Point]:
    """One generator through the phases, with the server's processes watched."""
    patience.wait()
    if sum(phase.rate * phase.seconds for phase in phases) > MOST_CALLS:
        raise ValueError(f"run: phases must have at most {MOST_CALLS} calls; got {phases}")
    with Counted(ours, METHOD) as answered:
        with Watch(ours.pids()) as watch, Meter(ours.pids(), children_cpu_s) as meter:
            start, calls, stages = open_loop(
                ours.address, ours.path(METHOD, 0), request(), REPLY, phases, CHANNELS
            )
        answered.seen = dict(Counter(call.code for call in calls))
    points, at = [], start
    accepted = iter(stages)
    # replies and accepted calls come in one order, so that each phase can have its own
    of_call = {id(call): next(accepted) for call in calls if call.code == "OK"}
    for phase, mine in zip(phases, split(calls, phases), strict=True):
        looks = watch.between(at, at + phase.seconds)
        told = [of_call[id(call)] for call in mine if call.code == "OK"]
        points.append(Point(phase, mine, told, looks, meter.usage.elsewhere))
        at += phase.seconds
    return points


def find_sustainable(ours: Ours, rate: float, effort: Effort) -> tuple[float, list[Point]]:
    """The highest rate, of steps upwards, that is kept up with. A step that fails while others
    keep the machine busy has not failed, and is tried again, up to a limit.

    Raises:
        ValueError: not even the first was.
    """
    points: list[Point] = []
    for step in effort.steps:
        phase = Phase(f"{step:g} closed", step * rate, effort.step_s)
        for _ in range(TRIES):
            (point,) = run(ours, [phase], effort.patience)
            held = sustained(point.calls, effort.growth)
            if held or point.elsewhere <= QUIET:
                break
        if not held:
            break
        points.append(point)
    if not points:
        raise ValueError(f"find_sustainable: {phase.rate:.0f}/s must be kept up with; got less")
    return points[-1].phase.rate, points


def beyond(ours: Ours, rate: float, effort: Effort) -> list[Point]:
    """Points above the sustainable rate, for the picture, each once the queue has had time to
    fill, and with a rest after it.
    """
    points = []
    for step in effort.beyond:
        phase = Phase(f"{step:g}x", step * rate, effort.step_s)
        rest = Phase("rest", 0.0, 2 * REST_S)
        points.append(run(ours, [phase, phase, rest], effort.patience)[1])
    return points


def burst(ours: Ours, rate: float, queue: int, effort: Effort) -> tuple[list[Point], list[Must]]:
    """0.8x, then 5x, a rest, and 0.8x again.

    Args:
        rate: the sustainable one.
        queue: how many calls the server holds at most.
    """
    phases = [
        Phase(f"{UNDER:g}x before", UNDER * rate, effort.under_s),
        Phase(f"{OVER:g}x", OVER * rate, effort.over_s),
        Phase("rest", 0.0, REST_S),
        Phase(f"{UNDER:g}x after", UNDER * rate, effort.under_s),
    ]
    before, over, _, after = points = run(ours, phases, effort.patience)
    return [before, over, after], musts(rate, queue, points)


def musts(rate: float, queue: int, points: Sequence[Point]) -> list[Must]:
    """What must hold of the four phases of a burst."""
    before, over, _, after = points
    served = len(over.latencies("OK")) / over.phase.seconds
    # all that may be under way goes before a call, and its answer comes with that of its batch
    batch = max((told["batch rows"] for told in over.stages), default=0.0) / ROWS
    queue_s, batch_s = queue / rate, batch / rate
    bound, p99 = queue_s + batch_s, over.accepted_p99_s
    refused = over.latencies(REFUSED)
    other = sum(call.code not in ("OK", REFUSED) for point in points for call in point.calls)
    drained = drained_s(over.calls, before.phase.seconds + over.phase.seconds)
    late = percentile((call.late_s for call in over.calls), 0.99)
    case = f"{over.phase.name} of {rate:.0f}/s"
    # the first quarter fills the queue and brings the first large batches
    quarter = len(over.looks) // 4
    filled, last = over.looks[quarter : 2 * quarter + 1], over.looks[-quarter - 1 :]
    mb = {name: most_mb(filled, name) for name in over.looks[0].rss_bytes}
    more = {name: most_mb(last, name) - was for name, was in mb.items()}
    refused_p99 = percentile(refused, 0.99)
    after_p99 = after.accepted_p99_s
    slower = after_p99 / before.accepted_p99_s

    def one(what: str, value: float, must: str, holds: bool) -> Must:
        return Must(case, what, value, value, value, must).judged(holds)

    return [
        one(
            "p99 of accepted, s",
            p99,
            f"<= {bound:.2f} = a queue of {queue_s:.2f} + a batch of {batch_s:.2f}",
            p99 <= bound,
        ),
        one("served of the sustainable rate", served / rate, f">= {KEPT}", served >= KEPT * rate),
        one("refused p99, s", refused_p99, f"<= {AT_ONCE_S}", refused_p99 <= AT_ONCE_S),
        one("neither OK nor refused", other, "0", other == 0),
        *(
            one(
                f"{name} MB more at its end",
                more[name],
                f"<= {FLAT * was:.0f}",
                more[name] <= FLAT * was,
            )
            for name, was in mb.items()
        ),
        one("s until all answered", drained, "<= 1", drained <= 1),
        one("refused after it", len(after.latencies(REFUSED)), "0", not after.refused_share),
        one("p99 at 0.8x after it, s", after_p99, f"<= {queue_s:.2f}", after_p99 <= queue_s),
        one("p99 at 0.8x after it / before it", slower, f"<= {RECOVERED:g}", slower <= RECOVERED),
        one("generator late p99, s", late, f"<= {LATE_S}", late <= LATE_S),
        one("cores busy elsewhere", over.elsewhere, f"<= {QUIET}", over.elsewhere <= QUIET),
    ]
