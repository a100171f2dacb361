"""Which entries make the next batch: a pure function of what waits and of the time.

Greedy, and without a timer unless one is asked for: whatever waits when an engine is free
is its next batch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Generic, Protocol, TypeVar

INTERACTIVE, BULK = 0, 1


class Waiting(Protocol):
    """What the policy must know of an entry."""

    rows: int
    elements: int  # scores, of all samples
    arrival: float  # seconds, on any clock
    deadline: float  # on the same clock


E = TypeVar("E", bound=Waiting)
K = TypeVar("K")
# Entries in the order they came, by priority and by what they must agree in to share a batch.
Groups = Mapping[tuple[int, K], Mapping[E, None]]


@dataclass(frozen=True)
class Limits:
    """How much may be in one batch, and how much may be under way.

    Attributes:
        batch_rows: rows of a batch.
        batch_elements: scores of a batch; an entry above it runs alone.
        ahead_elements: a batch prepared while another runs has at least so many. A
            smaller one is better filled than early: copying it takes no time.
        queue_elements: scores that may wait or be with an engine.
        tenant_elements: the same of one tenant.
        max_wait_s: how long an entry may wait for others to fill its batch.
        bulk_patience_s: how much later an interactive entry may come than a bulk entry
            and still go before it.
    """

    batch_rows: int = 4096
    batch_elements: int = 1 << 18
    ahead_elements: int = 1 << 15
    queue_elements: int = 1 << 26
    tenant_elements: int = 1 << 26
    max_wait_s: float = 0.0
    bulk_patience_s: float = 0.5


@dataclass(frozen=True)
class Plan(Generic[E]):
    """What to do now.

    Attributes:
        batch: the entries of the next batch, in their order; empty if there is none yet.
        expired: entries whose deadline has passed, found on the way. They are not in the batch.
        ready_at: when to ask again although nothing changed; None: not before something does.
    """

    batch: list[E]
    expired: list[E]
    ready_at: float | None = None


def plan(groups: "Groups[K, E]", limits: Limits, now: float, *, ahead: bool = False) -> Plan[E]:
    """Return the next batch of what waits.

    The entry that is due first leads: interactive ones when they came, bulk ones some
    patience later, so that they yield but never starve. All that can share its batch and
    fit come along, those of its priority first. An entry that does not fit keeps those
    behind it waiting too, so that none is overtaken for ever.

    Args:
        groups: what waits; empty groups are passed over.
        limits: of a batch.
        now: the time, on the clock of the entries.
        ahead: the engine is busy, and this batch would wait for it.
    """
    expired: list[E] = []
    if len(groups) == 1 and not limits.max_wait_s and not ahead:
        # most often one entry waits for an engine that does nothing
        ((_, entries),) = groups.items()
        if len(entries) == 1:
            (entry,) = entries
            alive = entry.deadline > now
            return Plan([entry] if alive else [], [] if alive else [entry])
    heads = {}
    for key, entries in groups.items():
        head = next(_alive(entries, now, expired), None)
        if head is not None:
            heads[key] = head
    if not heads:
        return Plan([], expired)
    patience = {INTERACTIVE: 0.0, BULK: limits.bulk_patience_s}
    first, call = min(heads, key=lambda key: heads[key].arrival + patience[key[0]])
    batch: list[E] = []
    rows = elements = 0
    full = False
    sources = (groups.get((priority, call), {}) for priority in (first, 1 - first))
    for entry in chain.from_iterable(_alive(entries, now, expired) for entries in sources):
        rows, elements = rows + entry.rows, elements + entry.elements
        full = rows > limits.batch_rows or elements > limits.batch_elements
        if batch and full:
            break
        batch.append(entry)
    expired = list(dict.fromkeys(expired))
    if full or rows == limits.batch_rows or elements == limits.batch_elements:
        return Plan(batch, expired)
    if ahead and elements < limits.ahead_elements:
        return Plan([], expired)
    ready_at = min(entry.arrival for entry in batch) + limits.max_wait_s
    if now < ready_at:
        return Plan([], expired, ready_at)
    return Plan(batch, expired)


def _alive(entries: Mapping[E, None], now: float, expired: list[E]) -> Iterator[E]:
    for entry in entries:
        if entry.deadline <= now:
            expired.append(entry)
        else:
            yield entry
