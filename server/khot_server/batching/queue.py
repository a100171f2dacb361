"""The queue: entries by priority and call, bounded, and left in a moment."""

from collections import Counter
from collections.abc import Iterable

from khot_server.batching.policy import Limits, Plan, plan
from khot_server.batching.work import Entry
from khot_server.errors import InvalidArgument, QueueFull
from khot_server.messages import Call


class Queue:
    """What waits for an engine. Sums are kept, so nothing here grows with its length.

    Attributes:
        entries: how many wait.
        elements: their scores.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.entries = self.elements = 0
        self._groups: dict[tuple[int, Call], dict[Entry, None]] = {}
        self._of_tenant: Counter[str] = Counter()

    def push(self, entries: list[Entry]) -> None:
        """Add the entries of one request, all or none.

        Raises:
            QueueFull: more would wait than may.
            InvalidArgument: they are more than may ever wait.
        """
        tenant, more = entries[0].tenant, sum(entry.elements for entry in entries)
        for whose, waiting, most in (
            ("", self.elements, self.limits.queue_elements),
            (f" of {tenant!r}", self._of_tenant[tenant], self.limits.tenant_elements),
        ):
            if more > most:
                must = f"at most {most} scores{whose} may wait"
                raise InvalidArgument("items", f"items: {must}; got {more} in one request")
            if waiting + more > most:
                raise QueueFull(
                    f"queue: at most {most} scores{whose} may wait; "
                    f"got {waiting} waiting and {more} more"
                )
        for entry in entries:
            group = self._groups.setdefault((entry.priority, entry.item.call), {})
            group[entry] = None
            self._count(entry, 1)

    def discard(self, entries: Iterable[Entry]) -> None:
        """Remove those of the entries that still wait."""
        for entry in entries:
            key = entry.priority, entry.item.call
            group = self._groups.get(key, {})
            if entry not in group:
                continue
            del group[entry]
            if not group:
                del self._groups[key]
            self._count(entry, -1)

    def take(self, now: float, *, ahead: bool) -> Plan[Entry]:
        """Remove and return the next batch, and what expired."""
        taken = plan(self._groups, self.limits, now, ahead=ahead)
        self.discard(taken.batch)
        self.discard(taken.expired)
        return taken

    def clear(self) -> list[Entry]:
        """Remove and return everything."""
        left = [entry for group in self._groups.values() for entry in group]
        self.discard(left)
        return left

    def _count(self, entry: Entry, sign: int) -> None:
        self.entries += sign
        self.elements += sign * entry.elements
        self._of_tenant[entry.tenant] += sign * entry.elements
        if not self._of_tenant[entry.tenant]:
            del self._of_tenant[entry.tenant]
