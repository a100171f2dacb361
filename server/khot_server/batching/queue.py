"""The queue: entries by priority and call, bounded, and left in a moment."""

from collections import Counter
from collections.abc import Iterable

from khot_server.batching.policy import Limits, Plan, plan
from khot_server.batching.work import Entry
from khot_server.errors import InvalidArgument, QueueFull
from khot_server.messages import Call


class Queue:
    """What waits for an engine. Sums are kept, so nothing here grows with its length.

    What an engine has counts against the limits until it is released: so they bound how long
    whoever is let in must wait, whatever the batches are.

    Attributes:
        entries: how many wait.
        elements: their scores.
        held: the scores of those that wait and those that an engine has.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.entries = self.elements = self.held = 0
        self._groups: dict[tuple[int, Call], dict[Entry, None]] = {}
        self._of_tenant: Counter[str] = Counter()

    def push(self, entries: list[Entry]) -> None:
        """Add the entries of one request, all or none.

        Raises:
            QueueFull: more would be held than may.
            InvalidArgument: they are more than may ever be.
        """
        tenant, more = entries[0].tenant, sum(entry.elements for entry in entries)
        for whose, held, most in (
            ("", self.held, self.limits.queue_elements),
            (f" of {tenant!r}", self._of_tenant[tenant], self.limits.tenant_elements),
        ):
            if more > most:
                must = f"at most {most} scores{whose} may be under way"
                raise InvalidArgument("items", f"items: {must}; got {more} in one request")
            if held + more > most:
                raise QueueFull(
                    f"queue: at most {most} scores{whose} may be under way; "
                    f"got {held} under way and {more} more"
                )
        for entry in entries:
            group = self._groups.setdefault((entry.priority, entry.item.call), {})
            group[entry] = None
            self.entries += 1
            self.elements += entry.elements
        self._hold(tenant, more)

    def discard(self, entries: Iterable[Entry]) -> None:
        """Remove those of the entries that still wait."""
        self.release([entry for entry in entries if self._remove(entry)])

    def take(self, now: float, *, ahead: bool) -> Plan[Entry]:
        """Remove and return the next batch, which is still held, and what expired."""
        taken = plan(self._groups, self.limits, now, ahead=ahead)
        for entry in taken.batch:
            self._remove(entry)
        self.discard(taken.expired)
        return taken

    def release(self, entries: Iterable[Entry]) -> None:
        """No engine has these entries of batches any more."""
        for entry in entries:
            self._hold(entry.tenant, -entry.elements)

    def clear(self) -> list[Entry]:
        """Remove and return everything."""
        left = [entry for group in self._groups.values() for entry in group]
        self.discard(left)
        return left

    def _remove(self, entry: Entry) -> bool:
        """Whether it still waited."""
        key = entry.priority, entry.item.call
        group = self._groups.get(key)
        if group is None or entry not in group:
            return False
        del group[entry]
        if not group:
            del self._groups[key]
        self.entries -= 1
        self.elements -= entry.elements
        return True

    def _hold(self, tenant: str, elements: int) -> None:
        self.held += elements
        held = self._of_tenant[tenant] = self._of_tenant[tenant] + elements
        if not held:
            del self._of_tenant[tenant]
