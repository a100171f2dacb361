"""What expressions measure: whether a panel's unit fits what it shows.

The dimension of every metric of the service is known, by its name or by the tables below, and
followed through an expression. So rows a second shown as calls, bytes as seconds, or a share
that divides rows by calls are found without a server.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from promql import Binary, Call, Node, Number, Series, Text, parse, walk

from khot_server.metrics.definitions import BY_NAME

# What is counted, where the name has no unit.
NOUNS = {
    "khot_requests_total": "request",
    "khot_requests_in_flight": "request",
    "khot_queue_items": "item",
    "khot_queue_scores": "score",
    "khot_queue_limit_scores": "score",
    "khot_batch_rows": "row",
    "khot_batch_scores": "score",
    "khot_rows_total": "row",
    "khot_draws_total": "draw",
    "khot_root_iterations": "iteration",
    "khot_root_fallback_rows_total": "row",
    "khot_root_nonconverged_rows_total": "row",
    "khot_engine_up": "engine",
    "khot_engine_losses_total": "engine",
    "khot_engine_info": "info",
    "khot_build_info": "info",
    "khot_jobs": "job",
    "khot_jobs_submitted_total": "job",
    "khot_jobs_ended_total": "job",
    "khot_job_epochs_total": "epoch",
    "khot_job_rows_total": "row",
    "khot_attempts_total": "attempt",
    "khot_job_loss": "loss",
    "khot_nan_losses_total": "job",
}
# Of what a histogram has a value each.
EVENTS = {
    "khot_request_duration_seconds": "request",
    "khot_request_message_bytes": "message",
    "khot_response_message_bytes": "message",
    "khot_queue_wait_seconds": "item",
    "khot_batch_rows": "batch",
    "khot_batch_scores": "batch",
    "khot_batch_compute_seconds": "batch",
    "khot_root_iterations": "row",
    "khot_root_residual": "row",
    "khot_job_duration_seconds": "job",
    "khot_checkpoint_seconds": "checkpoint",
    "khot_store_seconds": "transaction",
}
PHYSICAL = {"second", "byte"}
UNCOUNTED = {*PHYSICAL, "info", "loss"}
PLURALS = {"batch": "batches"}
# Of Prometheus itself.
THEIRS = {"up": "target", "ALERTS": "alert", "scrape_duration_seconds": "second"}
ALERT_LABELS = {"alertname", "alertstate"}
TARGET_LABELS = {"instance", "job"}


class Unfit(ValueError):
    """An expression that makes no sense, or does not measure what is said."""


@dataclass(frozen=True)
class Unit:
    """A product of powers of nouns, and a factor; nothing but a factor: a bare number."""

    powers: Mapping[str, int] = field(default_factory=dict)
    scale: float = 1.0
    literal: bool = False

    def times(self, other: "Unit", sign: int = 1) -> "Unit":
        names = dict.fromkeys((*self.powers, *other.powers))
        powers = {n: self.powers.get(n, 0) + sign * other.powers.get(n, 0) for n in names}
        kept = {name: power for name, power in powers.items() if power}
        scale = self.scale * other.scale**sign
        return Unit(kept, scale, self.literal and other.literal)

    def like(self, other: "Unit") -> bool:
        """Whether the two may be compared and added."""
        if self.literal or other.literal:
            return True
        return self.powers == other.powers and self.scale == other.scale

    @property
    def shown(self) -> dict[str, int]:
        """The powers, without what it is a mean over: rows of a batch are rows."""
        return {n: p for n, p in self.powers.items() if p > 0 or n in PHYSICAL}


PER_SECOND = Unit({"second": -1})
GRAFANA = {"s": {"second": 1}, "bytes": {"byte": 1}, "percentunit": {}, "sci": {}}
GRAFANA |= {"Bps": {"byte": 1, "second": -1}, "reqps": {"request": 1, "second": -1}}


def check_unit(
    expression: str, unit: str, records: Mapping[str, str], *, buckets: bool = False
) -> None:
    """Return if the expression measures what the unit, in Grafana's words, says.

    Args:
        records: the expressions of recorded names.
        buckets: whether it is of a heatmap, whose unit is that of the buckets' bounds.

    Raises:
        Unfit: it does not, or asks for what no server exports.
    """
    tree = parse(expression)
    found = _Reading(records).unit(tree)
    if buckets:
        found = _bounds(tree)
    if not _fits(found, unit):
        times = "" if found.scale == 1 else f", times {found.scale:g}"
        raise Unfit(f"{expression}: must have unit {unit!r}; got {dict(found.powers)}{times}")


def check(expression: str, records: Mapping[str, str]) -> None:
    """Return if the expression makes sense.

    Raises:
        Unfit: it asks for what no server exports, or compares what cannot be.
    """
    _Reading(records).unit(parse(expression))


def _fits(found: Unit, unit: str) -> bool:
    if found.literal or found.scale != 1:
        return False
    shown = found.shown
    if unit == "none":
        return shown in ({"info": 1}, {"loss": 1})
    if unit == "short":
        return len(shown) == 1 and set(shown.values()) == {1} and not UNCOUNTED & {*shown}
    if unit.startswith("si:"):
        plural = {PLURALS.get(noun, f"{noun}s"): noun for noun in shown}
        named = plural.get(unit.removeprefix("si:").removesuffix("/s"))
        return unit.endswith("/s") and shown == {named: 1, "second": -1}
    return shown == GRAFANA[unit]


class _Reading:
    def __init__(self, records: Mapping[str, str]) -> None:
        self._records = records

    def unit(self, node: Node, *, counted: bool = False) -> Unit:
        """Return what the node measures; `counted`: something looks at its growth."""
        match node:
            case Number(value=value):
                return Unit(scale=value, literal=True)
            case Text():
                return Unit(literal=True)
            case Series():
                return self._series(node, counted)
            case Call():
                return self._call(node)
            case Binary(mark=mark, left=left, right=right):
                return self._binary(mark, self.unit(left), self.unit(right))

    def _series(self, node: Series, counted: bool) -> Unit:
        labels = {label for label, _, _ in node.matchers}
        if node.name in self._records:
            _among(node.name, labels, {*node.name.partition(":")[0].split("_")})
            if counted:
                raise Unfit(f"{node.name}: must not grow; got it in a rate")
            return self.unit(parse(self._records[node.name]))
        if node.name in THEIRS:
            _among(node.name, labels, TARGET_LABELS | ALERT_LABELS)
            return Unit({THEIRS[node.name]: 1})
        base, part = _split(node.name)
        definition = BY_NAME[base]
        _among(node.name, labels, _labels(base, part))
        if counted != (definition.kind != "gauge"):
            must = "must not be" if counted else "must be"
            raise Unfit(f"{node.name}: a {definition.kind} {must} in a rate or an increase")
        if part in ("_count", "_bucket"):
            return Unit({EVENTS[base]: 1})
        return _value(base)

    def _call(self, node: Call) -> Unit:
        grows = node.name in ("rate", "increase")
        if node.by:
            _among(node.name, {*node.by}, self._labels(node))
        if node.name == "time":
            return Unit({"second": 1})
        if node.name == "histogram_quantile":
            _, rates = node.arguments
            self.unit(rates)
            return _bounds(rates)
        if node.name not in ("rate", "increase", "sum", "max", "min", "count", "absent", "vector"):
            raise Unfit(f"{node.name}: must be a function whose unit is known")
        (unit,) = (self.unit(each, counted=grows) for each in node.arguments)
        if node.name == "count" and unit.powers != {"alert": 1}:
            raise Unfit("count: must be of alerts")
        return unit.times(PER_SECOND) if node.name == "rate" else unit

    def _labels(self, node: Node) -> set[str]:
        """The labels that series below may have."""
        found = set(TARGET_LABELS)
        for each in walk(node):
            if isinstance(each, Series) and each.name in self._records:
                found |= {*each.name.partition(":")[0].split("_")}
            elif isinstance(each, Series) and each.name not in THEIRS:
                found |= _labels(*_split(each.name))
        return found

    def _binary(self, mark: str, left: Unit, right: Unit) -> Unit:
        if mark in "*/":
            return left.times(right, 1 if mark == "*" else -1)
        if not left.like(right):
            got = f"{dict(left.powers)} and {dict(right.powers)}"
            raise Unfit(f"{mark}: must be between the same units; got {got}")
        return right if left.literal else left


def _among(name: str, labels: set[str], known: set[str]) -> None:
    if labels - known:
        raise Unfit(f"{name}: labels must be among {sorted(known)}; got {sorted(labels - known)}")


def _labels(name: str, part: str) -> set[str]:
    return {*BY_NAME[name].labels, *TARGET_LABELS, *(("le",) if part == "_bucket" else ())}


def _split(name: str) -> tuple[str, str]:
    """The metric of a series, and which part of a histogram it is."""
    if name in BY_NAME and BY_NAME[name].kind != "histogram":
        return name, ""
    for part in ("_bucket", "_count", "_sum"):
        base = name.removesuffix(part)
        if base != name and base in BY_NAME and BY_NAME[base].kind == "histogram":
            return base, part
    raise Unfit(f"{name}: must be a metric of the service")


def _value(name: str) -> Unit:
    if name in NOUNS:
        return Unit({NOUNS[name]: 1})
    stem = name.removesuffix("_total")
    for suffix, powers in (("_seconds", {"second": 1}), ("_bytes", {"byte": 1}), ("_ratio", {})):
        if stem.endswith(suffix):
            return Unit(powers)
    if name == "khot_root_residual":
        return Unit()  # relative
    raise Unfit(f"{name}: must have a unit in its name, or a noun in tests/support/units.py")


def _bounds(tree: Node) -> Unit:
    """What the bounds of the buckets measure that an expression has kept apart."""
    buckets = [node for node in walk(tree) if isinstance(node, Series)]
    if len(buckets) != 1 or not buckets[0].name.endswith("_bucket"):
        raise Unfit(f"{buckets}: must be the buckets of one histogram")
    if not any(isinstance(node, Call) and "le" in node.by for node in walk(tree)):
        raise Unfit(f"{buckets[0].name}: must be summed by le")
    return _value(_split(buckets[0].name)[0])
