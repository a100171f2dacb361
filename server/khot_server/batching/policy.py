"""Which entries go into the next batch: a pure function, without a clock and without I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar


class Batchable(Protocol):
    """What the policy must know of an entry."""

    @property
    def key(self) -> tuple[object, ...]:
        """Entries of one key can share a batch."""

    @property
    def elements(self) -> int:
        """How many scores it has."""


E = TypeVar("E", bound=Batchable)


@dataclass(frozen=True)
class Limits:
    """How much may be in one batch, and how much may wait, of all and of one tenant, in scores."""

    batch_elements: int
    queue_elements: int
    tenant_elements: int


def plan(entries: Sequence[E], limits: Limits) -> tuple[list[E], list[E]]:
    """Return the entries of the next batch and those that stay, both in their order.

    Greedy: the oldest entry leads, and all that can share its batch and were waiting
    with it come along, up to the limit. An entry above the limit runs alone. An entry
    that did not fit keeps later ones of its kind behind it, so that none is overtaken
    for ever.
    """
    batch: list[E] = []
    rest: list[E] = []
    room, full = limits.batch_elements, False
    for entry in entries:
        fits = not full and (not batch or entry.elements <= room)
        if batch and entry.key != batch[0].key:
            rest.append(entry)
        elif fits:
            batch.append(entry)
            room -= entry.elements
        else:
            full = True
            rest.append(entry)
    return batch, rest
