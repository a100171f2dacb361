"""The policy: greedy, in order, within the limits, and nobody starves."""

import random
from dataclasses import dataclass

import pytest

from khot_server.batching.policy import Limits, plan


@dataclass(frozen=True)
class Entry:
    key: tuple[str, ...]
    elements: int
    number: int = 0


def entries(*pairs: tuple[str, int]) -> list[Entry]:
    return [Entry((key,), elements, number) for number, (key, elements) in enumerate(pairs)]


LIMITS = Limits(batch_elements=10, queue_elements=100, tenant_elements=100)


def planned(*pairs: tuple[str, int]) -> tuple[list[int], list[int]]:
    batch, rest = plan(entries(*pairs), LIMITS)
    return [entry.number for entry in batch], [entry.number for entry in rest]


def test_nothing_gives_nothing():
    assert planned() == ([], [])


def test_all_of_a_kind_go_together():
    assert planned(("a", 3), ("a", 3), ("a", 4)) == ([0, 1, 2], [])


def test_the_oldest_leads_and_others_stay_in_order():
    assert planned(("b", 1), ("a", 1), ("b", 1), ("c", 1)) == ([0, 2], [1, 3])


def test_an_entry_above_the_limit_runs_alone():
    assert planned(("a", 50), ("a", 1)) == ([0], [1])


def test_what_does_not_fit_is_not_overtaken():
    assert planned(("a", 6), ("a", 6), ("a", 1)) == ([0], [1, 2])


@pytest.mark.parametrize("seed", range(20))
def test_every_entry_runs_once_in_the_order_of_its_kind(seed):
    chance = random.Random(seed)
    left = entries(*((chance.choice("abc"), chance.randint(1, 15)) for _ in range(50)))
    done: list[Entry] = []
    while left:
        batch, rest = plan(left, LIMITS)
        assert batch[0] == left[0], "the oldest goes first"
        assert len({entry.key for entry in batch}) == 1
        assert len(batch) == 1 or sum(entry.elements for entry in batch) <= 10
        done, left = done + batch, rest
    assert sorted(entry.number for entry in done) == list(range(50))
    for key in "abc":
        numbers = [entry.number for entry in done if entry.key == (key,)]
        assert numbers == sorted(numbers)
