"""What the load generators saw, and the arithmetic on it: no clock, no process, no I/O."""

import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

REFUSED = "RESOURCE_EXHAUSTED"
GROWTH = 1.5  # of the latency, from the first third to the last, where nothing piles up
PREFIX = 5  # bytes of gRPC before a message: not compressed, and its length


@dataclass(frozen=True)
class Run:
    """A closed loop: every caller sends its next request when it has the answer to the last.

    Attributes:
        latencies_s: of every request; none where the generator cannot tell.
        seconds: from the first request sent to the last answer.
        stages: what the replies say of their time, where the generator reads them.
        requests: how many there were, if their latencies are not there.
    """

    latencies_s: Sequence[float]
    seconds: float
    stages: Sequence[dict[str, float]] = ()
    requests: int = 0

    @property
    def answered(self) -> int:
        return len(self.latencies_s) or self.requests

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.answered / self.seconds


@dataclass(frozen=True)
class Call:
    """A call of an open loop. Times are seconds since the start of its schedule.

    Attributes:
        at: when it was to be sent, whatever had become of those before it.
        late_s: how much later the generator sent it.
        latency_s: from `at` to its answer, so that waiting to be sent counts as waiting.
        code: its gRPC status.
    """

    at: float
    late_s: float
    latency_s: float
    code: str

    @property
    def answered(self) -> float:
        return self.at + self.latency_s


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest of the values that at least this share of them do not exceed; NaN of none."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """The median over rounds of ours over theirs in the same round, with the least and the most."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)


@dataclass(frozen=True)
class Phase:
    """Some seconds of an open loop at one rate; rate 0 is a rest."""

    name: str
    rate: float
    seconds: float


def schedule(phases: Iterable[Phase]) -> Iterator[float]:
    """When each call is to be sent: evenly spaced within a phase, phases back to back."""
    start = 0.0
    for phase in phases:
        for number in range(round(phase.rate * phase.seconds)):
            yield start + number / phase.rate
        start += phase.seconds


def split(calls: Iterable[Call], phases: Sequence[Phase]) -> list[list[Call]]:
    """The calls of each phase, by when they were to be sent."""
    parts: list[list[Call]] = [[] for _ in phases]
    ends, end = [], 0.0
    for phase in phases:
        end += phase.seconds
        ends.append(end)
    for call in calls:
        # the last call of a phase may round to its very end
        place = next((i for i, end in enumerate(ends) if call.at < end - 1e-9), len(ends) - 1)
        parts[place].append(call)
    return parts


def sustained(calls: Sequence[Call], growth: float = GROWTH) -> bool:
    """Whether an open loop of one phase was kept up with: none failed, and those of its last third
    did not take much longer than those of its first, so nothing had piled up.
    """
    third = max(1, len(calls) // 3)
    in_order = sorted(calls, key=lambda call: call.at)
    first, last = (
        statistics.median(call.latency_s for call in part)
        for part in (in_order[:third], in_order[-third:])
    )
    return all(call.code == "OK" for call in calls) and last <= growth * first


def drained_s(calls: Iterable[Call], end: float) -> float:
    """How long after `end` the last of the calls was answered."""
    return max(0.0, max((call.answered for call in calls), default=end) - end)


_REQUESTS = re.compile(
    r"^requests: (\d+) total, .* (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", re.M
)


def from_h2load(output: str, log: str) -> Run:
    """The run that h2load tells of in its output and its log file.

    It knows HTTP only: a failed RPC is status 200 to it, so that must be looked for elsewhere.

    Raises:
        ValueError: it says that not all requests were answered, or the log is of others.
    """
    found = _REQUESTS.search(output)
    if found is None:
        raise ValueError(f"from_h2load: output must have a line of requests; got {output!r}")
    total, succeeded, failed, errored, timeout = map(int, found.groups())
    if succeeded != total or failed or errored or timeout:
        raise ValueError(f"from_h2load: all requests must succeed; got {found[0]!r}")
    lines = [tuple(map(int, line.split("\t")[:3])) for line in log.splitlines()]
    if len(lines) != total or any(status != 200 for _, status, _ in lines):
        raise ValueError(f"from_h2load: log must have {total} lines of 200; got {len(lines)} lines")
    seconds = (max(start + took for start, _, took in lines) - min(line[0] for line in lines)) / 1e6
    return Run([took / 1e6 for _, _, took in lines], seconds)


def framed(message: bytes) -> bytes:
    """The message as the body of a gRPC call."""
    return bytes(1) + len(message).to_bytes(PREFIX - 1, "big") + message


def stream_request(number: int, relax: bytes) -> bytes:
    """A StreamRequest by hand: id 1 and up, and the bytes of a RelaxRequest as they are."""
    return b"\x08" + _varint(number) + b"\x12" + _varint(len(relax)) + relax


def stream_id(response: bytes) -> int:
    """The id of a StreamResponse, which is its first field."""
    if response[:1] != b"\x08":
        raise ValueError(f"stream_id: response must begin with its id; got {response[:8]!r}")
    number = shift = 0
    for byte in response[1:]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return number


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def stages(timing: Any) -> dict[str, float]:
    """What a reply says of its time, by the names of its fields: nanoseconds as milliseconds
    (`queue_ns` becomes `queue ms`), counts as they are.
    """
    found = {}
    for field in timing.DESCRIPTOR.fields:
        value, stem = getattr(timing, field.name), field.name.removesuffix("_ns")
        if stem != field.name:
            found[f"{stem} ms"] = value / 1e6
        else:
            found[stem.replace("_", " ")] = float(value)
    return found


def medians(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each column."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: statistics.median(row[name] for row in rows if name in row) for name in names}


def counted(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """What came to the counts, without what did not change."""
    return {code: count - before[code] for code, count in after.items() if count != before[code]}


def rows_served(metrics: str) -> int:
    """The rows of all batches, by the text of /metrics."""
    (rows,) = re.findall(r"^khot_batch_rows_sum (\S+)$", metrics, re.M)
    return round(float(rows))


def requests_by_code(metrics: str, method: str) -> dict[str, int]:
    """How many calls of the method ended with each code, by the text of /metrics."""
    line = re.compile(r"^khot_requests_total\{([^}]*)\} (\S+)$", re.M)
    counts: dict[str, int] = {}
    for labels, value in line.findall(metrics):
        of = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if of["method"] == method:
            counts[of["code"]] = round(float(value))
    return counts
