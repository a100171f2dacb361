"""Closed loops: our server against the echo of the same bytes, in turn, round by round.

A round is a run of each, now ours first and now the echo, and what counts is the median over the
rounds of the ratio within a round: the machine may be shared, and is never as quick twice. Ours is
three processes with threads that wait for each other, the echo one, so what others do meanwhile
costs us more: a round in which they kept a tenth of a core busy is repeated, up to a limit.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from load_generators import children_cpu_s, closed, one_connection, one_connection_checked
from load_report import Must
from load_runs import Run, median_ratio, medians, percentile
from load_targets import Counted, Ours, Target, Trickle, relax_request, reply_size, scores
from load_watch import Meter, Patience, Usage

import khot

METHOD = "Relax"
FEWEST = 3  # quiet rounds, or all count


@dataclass(frozen=True)
class Case:
    """Callers that relax rows by sigmoid_topk, and how we must compare with the echo.

    Attributes:
        must: at least this multiple of the echo's requests/s; with `in_process` the time of a
            call at most this multiple of the echo's and the library's together.
        every_s: between the calls of the trickle, a small part of the load.
    """

    name: str
    rows: int
    n: int
    k: int
    callers: int
    must: float
    in_process: bool = False
    every_s: float = 0.1


CASES = (
    Case("1x784, 64 callers", 1, 784, 50, 64, 0.65),
    Case("1x784, 1 caller", 1, 784, 50, 1, 0.45),
    Case("64x784, 8 callers", 64, 784, 50, 8, 0.4),
    Case("256x10000, 1 caller", 256, 10_000, 1000, 1, 1.6, in_process=True, every_s=1.0),
)
STREAM_CALLERS, STREAM_MUST = 32, 1.3
STREAM_FLAGS = ("--max-stream-calls", str(STREAM_CALLERS))


@dataclass(frozen=True)
class Effort:
    """How long a run is, how many quiet rounds there are to be, after how many of any kind those
    seen have to do, and how long to wait, in each case, for others to be quiet.
    """

    run_s: float
    rounds: int
    most_rounds: int
    patience_s: float


@dataclass
class Side:
    """What was seen of one server, or one way to call it, over the rounds.

    Attributes:
        checked: a run beside them for latencies and stages, where those of the rounds have none.
    """

    name: str
    runs: list[Run] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)
    stages: list[Sequence[dict[str, float]]] = field(default_factory=list)
    checked: Run | None = None

    def add(self, run: Run, usage: Usage, stages: Sequence[dict[str, float]]) -> None:
        self.runs.append(run)
        self.usages.append(usage)
        self.stages.append(stages)

    def only(self, rounds: Sequence[int]) -> "Side":
        """What was seen in these rounds."""
        return Side(
            self.name,
            [self.runs[number] for number in rounds],
            [self.usages[number] for number in rounds],
            [self.stages[number] for number in rounds],
            self.checked,
        )

    @property
    def rates(self) -> list[float]:
        return [run.rate for run in self.runs]

    @property
    def times_s(self) -> list[float]:
        """The median latency of each round."""
        return [statistics.median(run.latencies_s) for run in self.runs]

    def row(self, case: str) -> dict[str, object]:
        latencies = [latency for run in self.runs for latency in run.latencies_s]
        stages = [stage for stages in self.stages for stage in stages]
        if self.checked is not None:
            latencies, stages = list(self.checked.latencies_s), list(self.checked.stages)
        served = sum(run.answered for run in self.runs)
        cpu = {
            name: 1e6 * sum(usage.cpu_s[name] for usage in self.usages) / served
            for name in self.usages[0].cpu_s
            if name != "bench"
        }
        return {
            "case": case,
            "side": self.name,
            "requests/s": statistics.median(self.rates),
            "p50 ms": 1e3 * percentile(latencies, 0.5),
            "p99 ms": 1e3 * percentile(latencies, 0.99),
            "served": served,
            "refused": 0,  # or the run would have been given up
            **medians(stages),
            **{f"{name} us": microseconds for name, microseconds in cpu.items()},
            "cores elsewhere": statistics.median(usage.elsewhere for usage in self.usages),
        }


def compare(case: Case, ours: Target, echo: Target, effort: Effort) -> tuple[Must, list[Side]]:
    request = relax_request(case.rows, case.n, case.k)
    size = reply_size(ours, METHOD, request)
    targets = {target.name: target for target in (echo, ours)}
    sides = {name: Side(name) for name in targets}
    counts = dict.fromkeys(targets, 2 * case.callers)
    compute_s: list[float] = []

    def one(target: Target) -> tuple[Run, Usage, list[dict[str, float]]]:
        trickle = Trickle(target, METHOD, request, size, case.every_s)
        path, count = target.path(METHOD, size), counts[target.name]
        run, usage = watched(
            target, trickle, lambda: closed(target.address, path, request, case.callers, count)
        )
        counts[target.name] = max(2 * case.callers, round(run.rate * effort.run_s))
        return run, usage, trickle.stages

    for _ in range(2):  # to warm up, and to learn how many requests make a run
        for target in targets.values():
            one(target)
    for names in turns(sides, effort):
        for name in names:
            sides[name].add(*one(targets[name]))
        if case.in_process:
            compute_s.append(in_process_s(case))
    quiet = quiet_rounds(sides)
    ours_seen, echo_seen = sides["ours"].only(quiet), sides["echo"].only(quiet)
    rounds = f"{len(_quiet(sides))} of {len(sides['ours'].runs)}"
    if not case.in_process:
        ratios = median_ratio(ours_seen.rates, echo_seen.rates)
        must = Must(case.name, "requests/s of the echo's", *ratios, f">= {case.must}", rounds)
        return must.judged(ratios[0] >= case.must), [ours_seen, echo_seen]
    compute_s = [compute_s[number] for number in quiet]
    floor = [a + b for a, b in zip(echo_seen.times_s, compute_s, strict=True)]
    ratios = median_ratio(ours_seen.times_s, floor)
    what = f"time of the echo's + {1e3 * statistics.median(compute_s):.0f} ms in process"
    must = Must(case.name, what, *ratios, f"<= {case.must}", rounds)
    return must.judged(ratios[0] <= case.must), [ours_seen, echo_seen]


def turns(sides: Mapping[str, Side], effort: Effort) -> Iterator[list[str]]:
    """The sides in the order of each round, until there were enough quiet ones."""
    patience = Patience(effort.patience_s)
    for number in range(effort.most_rounds):
        patience.wait()
        yield list(sides) if number % 2 else list(sides)[::-1]
        if len(_quiet(sides)) == effort.rounds:
            return


def quiet_rounds(sides: Mapping[str, Side]) -> list[int]:
    """The rounds to count: those in which the machine was ours, or all if those are too few."""
    quiet = _quiet(sides)
    return quiet if len(quiet) >= FEWEST else list(range(len(next(iter(sides.values())).runs)))


def _quiet(sides: Mapping[str, Side]) -> list[int]:
    rounds = zip(*(side.usages for side in sides.values()), strict=True)
    return [number for number, usages in enumerate(rounds) if all(u.quiet for u in usages)]


def watched(target: Target, trickle: Trickle, load: Callable[[], Run]) -> tuple[Run, Usage]:
    """The load under a trickle of real calls, with what the server says it answered.

    Raises:
        ValueError: the server counts other calls than were made, or other codes than OK.
    """
    with Counted(target, trickle.method) as answered:
        with trickle, Meter(target.pids(), children_cpu_s) as meter:
            run = load()
        answered.seen = {"OK": len(run.latencies_s) + trickle.calls}
    return run, meter.usage


def in_process_s(case: Case) -> float:
    """The median time of the library itself, with the threads that torch takes by itself, as
    an engine that has the machine's cores does.
    """
    x, times = torch.from_numpy(scores(case.rows, case.n)), []
    with torch.inference_mode():
        khot.sigmoid_topk(x, case.k)
        for _ in range(5):
            start = time.perf_counter()
            khot.sigmoid_topk(x, case.k)
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def compare_stream(ours: Ours, effort: Effort) -> tuple[Must, list[Side]]:
    """A Stream against unary calls, both 32 under way on one connection.

    Args:
        ours: started with `STREAM_FLAGS`.
        effort: as in `compare`.
    """
    case = f"1x784, {STREAM_CALLERS} in flight"
    request = relax_request(1, 784, 50)
    size = reply_size(ours, METHOD, request)
    ways = {"unary": ("closed", METHOD), "stream": ("stream", "Stream")}
    sides = {name: Side(name) for name in ways}
    counts = dict.fromkeys(ways, 2 * STREAM_CALLERS)

    def run_of(name: str, connection: Callable[..., Run]) -> Run:
        loop, method = ways[name]
        path, reply, before = ours.path(method, size), f"{method}Response", ours.rows()
        run = connection(loop, ours.address, path, request, reply, STREAM_CALLERS, counts[name])
        if (rows := ours.rows() - before) != counts[name]:
            raise ValueError(f"{case}: the server must serve {counts[name]} rows; got {rows}")
        counts[name] = max(2 * STREAM_CALLERS, round(run.rate * effort.run_s))
        return run

    def one(name: str) -> tuple[Run, Usage, Sequence[dict[str, float]]]:
        with Meter(ours.pids(), children_cpu_s) as meter:
            run = run_of(name, one_connection)
        return run, meter.usage, run.stages

    for _ in range(2):
        for name, side in sides.items():
            side.checked = run_of(name, one_connection_checked)
    for names in turns(sides, effort):
        for name in names:
            sides[name].add(*one(name))
    quiet = quiet_rounds(sides)
    unary, stream = sides["unary"].only(quiet), sides["stream"].only(quiet)
    ratios = median_ratio(stream.rates, unary.rates)
    rounds = f"{len(_quiet(sides))} of {len(sides['unary'].runs)}"
    must = Must(case, "requests/s of unary calls'", *ratios, f">= {STREAM_MUST}", rounds)
    return must.judged(ratios[0] >= STREAM_MUST), [stream, unary]
