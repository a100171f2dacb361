"""The policy: greedy, in order, within the limits, and nobody starves."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest

from khot_server.batching.policy import BULK, INTERACTIVE, Limits, Plan, plan

LIMITS = Limits(batch_rows=8, batch_elements=100, ahead_elements=40, bulk_patience_s=5.0)


@dataclass(frozen=True)
class Entry:
    """Named by its number; two of the same call share a batch."""

    number: int
    call: str = "a"
    rows: int = 1
    elements: int = 10
    arrival: float = 0.0
    deadline: float = float("inf")
    priority: int = INTERACTIVE

    @property
    def due(self) -> float:
        """When it leads before those that come later."""
        return self.arrival + (LIMITS.bulk_patience_s if self.priority == BULK else 0.0)


def grouped(entries: Iterable[Entry]) -> dict[tuple[int, str], dict[Entry, None]]:
    groups: dict[tuple[int, str], dict[Entry, None]] = {}
    for entry in entries:
        groups.setdefault((entry.priority, entry.call), {})[entry] = None
    return groups


def planned(
    *entries: Entry, now: float = 0.0, limits: Limits = LIMITS, ahead: bool = False
) -> Plan[Entry]:
    return plan(grouped(entries), limits, now, ahead=ahead)


def numbers(entries: Iterable[Entry]) -> list[int]:
    return [entry.number for entry in entries]


def test_nothing_gives_nothing():
    assert planned() == Plan([], [], None)
    assert plan({(INTERACTIVE, "a"): {}}, LIMITS, 0.0) == Plan([], [], None)


def test_all_of_a_call_go_together_at_once():
    assert numbers(planned(Entry(0), Entry(1), Entry(2)).batch) == [0, 1, 2]


def test_the_oldest_leads_and_takes_only_its_own_call():
    waiting = (
        Entry(0, "a", arrival=2.0),
        Entry(1, "b", arrival=1.0),
        Entry(2, "a", arrival=2.5),
        Entry(3, "b", arrival=3.0),
    )
    assert numbers(planned(*waiting, now=3.0).batch) == [1, 3]


@pytest.mark.parametrize(
    ("sizes", "first"),
    [
        ([(4, 1), (4, 1), (1, 1)], [0, 1]),  # rows: the limit itself is within it
        ([(4, 1), (5, 1), (1, 1)], [0]),
        ([(1, 50), (1, 50), (1, 1)], [0, 1]),  # elements
        ([(1, 50), (1, 51), (1, 1)], [0]),
        ([(9, 1), (1, 1)], [0]),  # above a limit: alone
        ([(1, 101), (1, 1)], [0]),
        ([(1, 1), (1, 101)], [0]),
    ],
)
def test_a_batch_is_within_both_limits_and_what_does_not_fit_is_not_overtaken(sizes, first):
    waiting = [
        Entry(number, rows=rows, elements=elements) for number, (rows, elements) in enumerate(sizes)
    ]
    assert numbers(planned(*waiting).batch) == first


def test_interactive_goes_before_bulk_until_its_patience_ends():
    bulk = Entry(0, "a", arrival=0.0, priority=BULK)
    before = Entry(1, "b", arrival=4.9)
    after = Entry(2, "b", arrival=5.1)
    assert numbers(planned(bulk, before, now=10.0).batch) == [1]
    assert numbers(planned(bulk, after, now=10.0).batch) == [0]


def test_bulk_comes_along_behind_interactive_of_its_call():
    bulk = [Entry(number, arrival=0.0, priority=BULK) for number in range(2)]
    late = Entry(2, arrival=1.0)
    assert numbers(planned(*bulk, late, now=1.0).batch) == [2, 0, 1]


def test_impatient_bulk_leads_within_its_call_too():
    bulk = Entry(0, rows=5, arrival=0.0, priority=BULK)
    interactive = [Entry(number, rows=4, arrival=3.9 + number) for number in (1, 2)]
    # 1 came in time to pass, 2 did not; and 0 fits with neither
    assert numbers(planned(bulk, *interactive, now=6.0).batch) == [1, 2]
    assert numbers(planned(bulk, interactive[1], now=6.0).batch) == [0]


def test_bulk_alone_is_sent_without_patience():
    assert numbers(planned(Entry(0, priority=BULK)).batch) == [0]


@pytest.mark.parametrize(
    ("sizes", "sent"),
    [
        ([39], 0),
        ([40], 1),
        ([20, 20], 2),
        ([30, 80], 1),  # the second does not fit, so the first cannot be better filled
    ],
)
def test_a_batch_for_a_busy_engine_must_be_worth_it(sizes, sent):
    waiting = [Entry(number, elements=size) for number, size in enumerate(sizes)]
    ahead = planned(*waiting, ahead=True)
    assert (len(ahead.batch), ahead.ready_at) == (sent, None)
    assert planned(*waiting).batch, "a free engine takes anything"


def test_with_a_wait_a_batch_is_ready_when_its_oldest_has_waited():
    limits = replace(LIMITS, max_wait_s=2.0)
    waiting = (Entry(0, arrival=1.0), Entry(1, arrival=2.0))
    assert planned(*waiting, now=2.9, limits=limits) == Plan([], [], 3.0)
    assert numbers(planned(*waiting, now=3.0, limits=limits).batch) == [0, 1]


def test_with_a_wait_the_oldest_counts_whatever_its_priority():
    limits = replace(LIMITS, max_wait_s=2.0)
    waiting = (Entry(0, arrival=1.0, priority=BULK), Entry(1, arrival=2.0))
    assert planned(*waiting, now=2.5, limits=limits).ready_at == 3.0


@pytest.mark.parametrize("rows", [[8], [4, 4], [4, 5], [9]])
def test_a_full_batch_waits_for_nothing(rows):
    limits = replace(LIMITS, max_wait_s=2.0)
    waiting = [Entry(number, rows=each) for number, each in enumerate(rows)]
    assert planned(*waiting, limits=limits).batch
    assert planned(*waiting, limits=limits, ahead=True).batch


def test_who_has_expired_is_told_once_and_not_sent():
    late = [Entry(0, deadline=1.0), Entry(1, "b", deadline=0.5), Entry(3, deadline=1.0)]
    found = planned(late[0], late[1], Entry(2, deadline=1.1), late[2], now=1.0)
    assert numbers(found.batch) == [2]
    assert sorted(numbers(found.expired)) == [0, 1, 3]


def test_expired_entries_take_no_room_and_lead_nothing():
    late = Entry(0, rows=8, arrival=0.0, deadline=1.0)
    other, same = Entry(1, "b", arrival=0.5), Entry(2, rows=8, arrival=0.7)
    found = planned(late, other, same, now=1.0)
    assert (numbers(found.batch), numbers(found.expired)) == ([1], [0])
    assert numbers(planned(late, same, now=1.0).batch) == [2]


def test_only_expired_entries_give_no_batch():
    assert planned(Entry(0, deadline=1.0), now=2.0) == Plan([], [Entry(0, deadline=1.0)], None)


def test_planning_changes_nothing():
    groups = grouped([Entry(0), Entry(1, deadline=0.0), Entry(2, priority=BULK)])
    before = {key: dict(entries) for key, entries in groups.items()}
    assert plan(groups, LIMITS, 1.0) == plan(groups, LIMITS, 1.0)
    assert groups == before


class Walk:
    """What waits, and what became of it, while a hand-made clock moves."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.limits = replace(LIMITS, max_wait_s=self.chance.choice([0.0, 1.0]))
        self.now = 0.0
        self.made = 0
        self.waiting: list[Entry] = []
        self.taken: list[Entry] = []
        self.expired: list[Entry] = []
        self.left: list[Entry] = []

    def push(self) -> None:
        chance = self.chance
        lives = chance.choice([1.0, 8.0, float("inf"), float("inf")])
        self.waiting.append(
            Entry(
                self.made,
                chance.choice("abc"),
                chance.randint(1, 10),
                chance.randint(1, 120),
                self.now,
                self.now + lives,
                chance.choice([INTERACTIVE, BULK]),
            )
        )
        self.made += 1

    def discard(self) -> None:
        if self.waiting:
            self.left.append(self.waiting.pop(self.chance.randrange(len(self.waiting))))

    def take(self) -> None:
        found = plan(grouped(self.waiting), self.limits, self.now, ahead=False)
        alive = [entry for entry in self.waiting if entry.deadline > self.now]
        assert all(entry.deadline <= self.now for entry in found.expired)
        if found.batch:
            self.check(found.batch, alive)
        elif alive:
            assert found.ready_at is not None and found.ready_at > self.now
        for entry in (*found.batch, *found.expired):
            self.waiting.remove(entry)  # so none can be in both, or come again
        self.taken += found.batch
        self.expired += found.expired

    def check(self, batch: list[Entry], alive: list[Entry]) -> None:
        """In particular: who leads was due before everybody, so that whoever waits is passed,
        once he is due, only by batches whose leaders were due before him.
        """
        assert batch[0].due == min(entry.due for entry in alive)
        assert len({entry.call for entry in batch}) == 1
        assert len(batch) == 1 or (
            sum(entry.rows for entry in batch) <= LIMITS.batch_rows
            and sum(entry.elements for entry in batch) <= LIMITS.batch_elements
        )
        for priority in (INTERACTIVE, BULK):
            mine = [entry for entry in batch if entry.priority == priority]
            of_call = [e for e in alive if (e.priority, e.call) == (priority, batch[0].call)]
            assert mine == of_call[: len(mine)], "in the order they came"


@pytest.mark.parametrize("seed", range(20))
def test_every_entry_is_taken_or_expires_or_leaves_exactly_once(seed):
    walk = Walk(seed)
    for _ in range(300):
        walk.chance.choice([walk.push, walk.push, walk.take, walk.discard])()
        walk.now += walk.chance.choice([0.0, 0.1, 1.0])
    while walk.waiting:
        walk.take()
        walk.now += 1.0
    fates = walk.taken + walk.expired + walk.left
    assert sorted(numbers(fates)) == list(range(walk.made))
    assert walk.taken and walk.expired and walk.left
    assert all(entry.deadline < float("inf") for entry in walk.expired)


@pytest.mark.parametrize("seed", range(20))
def test_bulk_waits_for_its_patience_and_for_what_was_before_it_but_no_longer(seed):
    """The interactive load is without end: at every step more comes than a batch takes."""
    chance = random.Random(seed)
    bulk = Entry(-1, chance.choice("ab"), chance.randint(1, 8), 10, 0.0, priority=BULK)
    waiting, now, number, waited = [bulk], 0.0, 0, 0
    before: set[int] | None = None
    while bulk in waiting:
        for _ in range(3):
            waiting.append(Entry(number, chance.choice("ab"), 8, 10, now))
            number += 1
        if now >= bulk.due and before is None:
            before = {entry.number for entry in waiting if entry.due < bulk.due}
        batch = plan(grouped(waiting), LIMITS, now).batch
        waiting = [entry for entry in waiting if entry not in batch]
        if before is not None and bulk not in batch:
            waited += 1
            assert waited <= len(before)
        now += 0.5
    assert before is not None, "bulk was overtaken while it was patient"
    assert not [n for n in numbers(waiting) if n in before], "and overtook nobody who was due"
