"""Rows of an item: every one is in one chunk, with its own bytes, and its caller is told once."""

import random

import numpy as np
import pytest

from khot_server.batching.policy import INTERACTIVE
from khot_server.batching.work import Entry, Item, chunks
from khot_server.errors import EngineDied
from khot_server.messages import Call


def call_of(n: int, samples: int | None = None, ranks: int | None = None) -> Call:
    return Call("pi_st", "{}", n, "float32", samples=samples, ranks=ranks, pulled="cotangent")


@pytest.mark.parametrize("seed", range(20))
def test_chunks_cover_every_row_once_within_the_limits(seed):
    chance = random.Random(seed)
    for _ in range(50):
        rows, n = chance.randint(1, 200), chance.randint(1, 50)
        samples = chance.choice([None, 1, chance.randint(2, 9)])
        call = call_of(n, samples, chance.choice([None, 0, 3]))
        most_rows, most_elements = chance.randint(1, 100), chance.randint(1, 2000)
        pieces = chunks(rows, call, most_rows, most_elements)
        covered = [row for first, count in pieces for row in range(first, first + count)]
        assert covered == list(range(rows))
        for _, count in pieces:
            assert 0 < count <= most_rows
            assert count == 1 or count * call.elements <= most_elements
        # as few as can be: all but the last are as large as the limits let them be
        for _, count in pieces[:-1]:
            assert count == most_rows or (count + 1) * call.elements > most_elements


def test_an_item_within_the_limits_is_one_piece():
    assert chunks(8, call_of(10), 8, 80) == [(0, 8)]


def test_a_row_above_the_limit_is_a_piece_of_its_own():
    assert chunks(3, call_of(10), 8, 5) == [(0, 1), (1, 1), (2, 1)]


@pytest.mark.parametrize("samples", [None, 1, 4])
@pytest.mark.parametrize(("first", "rows"), [(0, 6), (0, 2), (2, 3), (5, 1)])
def test_the_bytes_of_rows_are_those_of_the_array(samples, first, rows):
    draws = 1 if samples is None else samples
    random_numbers = np.random.default_rng(0)
    arrays = {
        "k": random_numbers.normal(size=6),
        "scores": random_numbers.normal(size=(6, 5)).astype("float32"),
        "cotangent": random_numbers.normal(size=(draws, 6, 5)).astype("float32"),
        "losses": random_numbers.normal(size=(draws, 6)).astype("float32"),
        "baseline": random_numbers.normal(size=(draws, 6)).astype("float32"),
    }
    item = Item(call_of(5, samples), 6, {name: array.tobytes() for name, array in arrays.items()})
    for name, array in arrays.items():
        pieces = item.of_rows(name, first, rows)
        of_rows = slice(first, first + rows)
        wanted = array[of_rows] if name in ("k", "scores") else array[:, of_rows]
        assert b"".join(pieces) == wanted.tobytes()


def test_the_bytes_of_all_rows_are_not_copied_and_those_of_some_are_views():
    data = bytes(range(48))
    item = Item(call_of(2), 6, {"scores": data})
    assert item.of_rows("scores", 0, 6)[0] is data
    (view,) = item.of_rows("scores", 2, 3)
    assert isinstance(view, memoryview) and view.obj is data


def test_an_entry_is_its_whole_item_unless_it_is_a_chunk():
    item = Item(call_of(5, samples=3), 6, {})
    whole = Entry(item, lambda entry, outcome: None)
    assert (whole.first, whole.rows, whole.elements) == (0, 6, 90)
    assert (whole.priority, whole.deadline) == (INTERACTIVE, float("inf"))
    chunk = Entry(item, lambda entry, outcome: None, first=4, rows=2)
    assert (chunk.first, chunk.rows, chunk.elements) == (4, 2, 30)


def test_a_listener_is_told_once_and_not_after_it_left():
    told: list[object] = []
    item, died = Item(call_of(5), 1, {}), EngineDied("engine: died")
    entry = Entry(item, lambda entry, outcome: told.append((entry, outcome)))
    entry.tell(died)
    entry.tell(died)
    assert told == [(entry, died)]
    gone = Entry(item, lambda entry, outcome: told.append(entry))
    gone.listener = None
    gone.tell(died)
    assert len(told) == 1
