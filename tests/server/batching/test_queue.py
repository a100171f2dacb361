"""The queue: its sums are true, it refuses all or nothing, and it keeps nothing."""

import random
from collections import Counter
from typing import Any

import pytest

from khot_server.batching.policy import BULK, INTERACTIVE, Limits
from khot_server.batching.queue import Queue
from khot_server.batching.work import Entry, Item
from khot_server.errors import InvalidArgument, QueueFull
from khot_server.messages import Call

UNBOUNDED = Limits()


def entry(rows: int = 1, n: int = 10, **of: Any) -> Entry:
    call = Call("sigmoid_topk", "{}", n, "float32")
    return Entry(Item(call, rows, {}), lambda entry, outcome: None, **of)


def is_empty(queue: Queue) -> bool:
    sums = (queue.entries, queue.elements, queue.held)
    return sums == (0, 0, 0) and not (queue._groups or queue._of_tenant)


def test_what_is_pushed_is_taken_in_order_by_call():
    queue = Queue(UNBOUNDED)
    first, other, second = entry(2), entry(n=7, arrival=1.0), entry(3)
    queue.push([first, other, second])
    assert (queue.entries, queue.elements) == (3, 57)
    assert queue.take(1.0, ahead=False).batch == [first, second]
    assert (queue.entries, queue.elements, queue.held) == (1, 7, 57)
    queue.release([first, second])
    assert (queue.entries, queue.elements, queue.held) == (1, 7, 7)
    assert queue.take(1.0, ahead=False).batch == [other]
    queue.release([other])
    assert is_empty(queue)


def test_what_expired_is_taken_out_with_the_batch():
    queue = Queue(UNBOUNDED)
    late, live = entry(deadline=1.0), entry(deadline=2.0)
    queue.push([late, live])
    taken = queue.take(1.0, ahead=False)
    assert (taken.batch, taken.expired) == ([live], [late])
    assert queue.held == live.elements
    queue.release([live])
    assert is_empty(queue)


def test_what_must_wait_stays():
    queue = Queue(Limits(ahead_elements=100))
    waiting = entry()
    queue.push([waiting])
    assert queue.take(0.0, ahead=True).batch == []
    assert (queue.entries, queue.elements) == (1, 10)


def test_who_left_or_was_never_there_can_be_discarded_again():
    queue = Queue(UNBOUNDED)
    gone, stays = entry(), entry()
    queue.push([gone, stays])
    for _ in range(2):
        queue.discard([gone, entry(), entry(n=3)])
        assert (queue.entries, queue.elements) == (1, 10)
    assert queue.clear() == [stays]
    assert is_empty(queue)


def test_an_empty_queue_gives_nothing():
    queue = Queue(UNBOUNDED)
    taken = queue.take(0.0, ahead=False)
    assert (taken.batch, taken.expired, taken.ready_at) == ([], [], None)
    assert queue.clear() == []
    assert is_empty(queue)


def test_a_request_that_does_not_fit_is_refused_whole():
    queue = Queue(Limits(queue_elements=100))
    queue.push([entry(5), entry(3)])
    must = "queue: at most 100 scores may be under way; got 80 under way and 30 more"
    with pytest.raises(QueueFull, match=f"^{must}$"):
        queue.push([entry(1), entry(2)])
    assert (queue.entries, queue.elements) == (2, 80)
    queue.push([entry(2)])  # up to the limit
    with pytest.raises(QueueFull, match="got 100 under way and 10 more"):
        queue.push([entry(1)])
    queue.clear()
    assert is_empty(queue)


def test_a_tenant_who_floods_the_queue_leaves_room_for_others():
    queue = Queue(Limits(queue_elements=1000, tenant_elements=50))
    queue.push([entry(5, tenant="a")])
    must = "queue: at most 50 scores of 'a' may be under way; got 50 under way and 10 more"
    with pytest.raises(QueueFull, match=f"^{must}$"):
        queue.push([entry(1, tenant="a")])
    queue.push([entry(5, tenant="b")])
    batch = queue.take(0.0, ahead=False).batch
    assert len(batch) == 2, "tenants share batches"
    with pytest.raises(QueueFull, match=f"^{must}$"):
        queue.push([entry(1, tenant="a")])
    queue.release(batch)
    queue.push([entry(1, tenant="a")])


@pytest.mark.parametrize("waiting", [0, 1])
@pytest.mark.parametrize(
    ("limits", "whose"),
    [(Limits(queue_elements=50), ""), (Limits(tenant_elements=50), " of 'a'")],
    ids=["all", "tenant"],
)
def test_a_request_that_could_never_wait_is_not_told_to_come_again(waiting, limits, whose):
    queue = Queue(limits)
    if waiting:
        queue.push([entry(tenant="a")])
    must = f"items: at most 50 scores{whose} may be under way; got 60 in one request"
    with pytest.raises(InvalidArgument, match=f"^{must}$") as caught:
        queue.push([entry(2, tenant="a"), entry(4, tenant="a")])
    assert caught.value.field == "items"
    assert queue.entries == waiting
    queue.clear()
    queue.push([entry(5, tenant="a")])


def test_a_row_counts_with_its_samples_and_even_without_a_result():
    """Without ranks the result is empty, but the scores wait and fill memory all the same."""
    sampled = Call("pivotal", "{}", 10, "float32", samples=7, form="bits")
    ranked = Call("sorted_soft_topk", "{}", 10, "float32", 3.0, ranks=3)
    empty = ranked._replace(k=0.0, ranks=0)
    for call, elements in ((sampled, 70), (ranked, 30), (empty, 10)):
        queue = Queue(UNBOUNDED)
        queue.push([Entry(Item(call, 2, {}), lambda entry, outcome: None)])
        assert queue.elements == 2 * elements


class Twin:
    """A queue, and a plain record of what must be in it."""

    LIMITS = Limits(
        batch_rows=20, batch_elements=300, queue_elements=2000, tenant_elements=900, max_wait_s=1.0
    )

    def __init__(self, seed: int) -> None:
        self.chance, self.now = random.Random(seed), 0.0
        self.queue = Queue(self.LIMITS)
        self.waiting: dict[Entry, None] = {}
        self.batches: list[list[Entry]] = []
        self.seen: Counter[str] = Counter()

    def of_tenants(self) -> Counter[str]:
        held: Counter[str] = Counter()
        for each in (*self.waiting, *(each for batch in self.batches for each in batch)):
            held[each.tenant] += each.elements
        return held

    def push(self) -> None:
        chance, held = self.chance, self.of_tenants()
        tenant, priority = chance.choice("ab"), chance.choice([INTERACTIVE, BULK])
        request = [
            entry(
                chance.randint(1, 9),
                chance.choice([1, 10, 20]),
                deadline=self.now + chance.choice([2.0, 1e9]),
                tenant=tenant,
                priority=priority,
                arrival=self.now,
            )
            for _ in range(chance.randint(1, 4))
        ]
        more = sum(each.elements for each in request)
        fits = held.total() + more <= self.LIMITS.queue_elements
        fits = fits and held[tenant] + more <= self.LIMITS.tenant_elements
        try:
            self.queue.push(request)
        except QueueFull:
            assert not fits
            self.seen["refused"] += 1
        else:
            assert fits
            self.waiting.update(dict.fromkeys(request))

    def discard(self) -> None:
        most = min(len(self.waiting), self.chance.randint(0, 3))
        leaving = self.chance.sample(list(self.waiting), most)
        self.queue.discard([*leaving, entry()])
        for each in leaving:
            del self.waiting[each]

    def take(self) -> None:
        taken = self.queue.take(self.now, ahead=self.chance.random() < 0.5)
        self.seen.update(batch=len(taken.batch), expired=len(taken.expired))
        for each in (*taken.batch, *taken.expired):
            del self.waiting[each]
        self.batches.append(taken.batch)

    def release(self) -> None:
        if self.batches:
            self.queue.release(self.batches.pop(0))

    def clear(self) -> None:
        assert set(self.queue.clear()) == set(self.waiting)
        self.waiting.clear()
        while self.batches:
            self.release()
        assert is_empty(self.queue)

    def step(self) -> None:
        steps = [self.push, self.discard, self.take, self.release, self.clear]
        (step,) = self.chance.choices(steps, [60, 15, 20, 20, 1])
        step()
        self.now += self.chance.choice([0.0, 0.2])


@pytest.mark.parametrize("seed", range(10))
def test_the_sums_stay_right_whatever_happens(seed):
    twin = Twin(seed)
    for _ in range(400):
        twin.step()
        queue, held = twin.queue, twin.of_tenants()
        assert queue.entries == len(twin.waiting)
        assert queue.elements == sum(each.elements for each in twin.waiting)
        assert queue.held == held.total()
        assert queue._of_tenant == held
        assert all(queue._groups.values()), "no group is empty"
    assert twin.seen["refused"] and twin.seen["batch"] and twin.seen["expired"]
    twin.clear()
