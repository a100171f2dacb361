"""What is noted is counted once, in its order, whoever has it counted."""

import threading

from khot_server.metrics import Metrics
from khot_server.metrics.notes import MANY, Notes


def test_notes_are_counted_when_there_are_many_or_when_asked():
    counted = []
    notes = Notes(counted.append, threading.Lock())
    for number in range(MANY - 1):
        notes.note(number)
    assert counted == []
    notes.note(MANY - 1)
    assert counted == [list(range(MANY))]
    notes.settle()
    assert len(counted) == 1, "there is nothing to count"
    notes.note(MANY)
    notes.settle()
    assert counted[1:] == [[MANY]]


def test_none_is_lost_or_counted_twice_while_others_settle():
    total, counted, ended = 20_000, [], threading.Event()
    notes = Notes(counted.extend, threading.Lock())

    def settle() -> None:
        while not ended.is_set():
            notes.settle()

    others = [threading.Thread(target=settle) for _ in range(3)]
    for thread in others:
        thread.start()
    for number in range(total):
        notes.note(number)
    ended.set()
    for thread in others:
        thread.join()
    notes.settle()
    assert counted == list(range(total))


def test_a_page_tells_of_every_call_that_ended_before_it():
    metrics = Metrics(["Relax"])
    calls, value = metrics.of_method("Relax"), metrics.registry.get_sample_value
    for number in range(1, MANY + 3):
        calls.begin()
        calls.received(100)
        calls.end("OK" if number % 2 else "NOT_FOUND", 0.5)
        method = {"method": "Relax"}
        assert value("khot_request_duration_seconds_count", method) == number
        assert value("khot_request_duration_seconds_sum", method) == number / 2
        assert value("khot_request_message_bytes_sum", method) == 100 * number
    assert value("khot_requests_total", {"method": "Relax", "code": "NOT_FOUND"}) == MANY / 2 + 1
    assert value("khot_requests_in_flight", {"method": "Relax"}) == 0
