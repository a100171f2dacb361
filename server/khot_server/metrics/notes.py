"""What is noted at a call, and counted later with others of its kind.

A call's numbers go into ten instruments. Counted one after the other that takes a few microseconds,
but between the steps of a call, with none of it in the processor's caches, several times as long.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
MANY = 64  # are soon counted, and are worth it


class Notes(Generic[T]):
    """Numbers of one kind that wait to be counted.

    Args:
        count: is given them, in their order, by one thread at a time.
        lock: of all whose instruments are the same.
    """

    __slots__ = ("_count", "_held", "_lock")

    def __init__(self, count: Callable[[Sequence[T]], None], lock: threading.Lock) -> None:
        self._count, self._lock = count, lock
        self._held: list[T] = []

    def note(self, number: T) -> None:
        """Have this counted soon. For one thread, the event loop's."""
        self._held.append(number)
        if len(self._held) >= MANY:
            self.settle()

    def settle(self) -> None:
        """Count what was noted. For any thread."""
        if not self._held:
            return
        with self._lock:
            # two steps, each of them whole: what is noted between them stays for the next time
            taken = self._held[:]
            del self._held[: len(taken)]
            if taken:
                self._count(taken)
