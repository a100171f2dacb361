"""The batcher: greedy batches on several engines, and callers who leave."""

import numpy as np
import pytest
from room import OPERATOR, Caller, Room, run, turns

from khot_server.batching.work import Entry, Item
from khot_server.errors import DeadlineExceeded, EngineFailed, QueueFull
from khot_server.messages import Call


@run
async def test_whatever_waited_is_the_next_batch():
    room = Room()
    engine = await room.connect()
    first = room.submit()
    running = await engine.batch()
    others = [room.submit(rows, float(rows)) for rows in (1, 2, 3)]
    await turns()
    assert not engine.sent, "what is small is better filled than early"
    engine.answer(running)
    together = await engine.batch()
    assert (running.rows, running.items, together.rows, together.items) == (1, 1, 6, 3)
    engine.answer(together)
    assert first.served and all(other.served for other in others)
    assert [batch.request for batch in room.observer.batches] == [running, together]
    assert [len(batch.entries) for batch in room.observer.batches] == [1, 3]
    assert room.is_empty


@run
async def test_items_of_one_request_share_a_batch_if_their_calls_agree():
    room = Room()
    engine = await room.connect()
    callers = [Caller(1, float(value), n) for value, n in enumerate((4, 7, 4, 7, 4))]
    room.batcher.submit([caller.entry for caller in callers])
    first = await engine.batch()
    engine.answer(first)
    second = await engine.batch()
    engine.answer(second)
    assert [(batch.items, batch.call.n) for batch in (first, second)] == [(3, 4), (2, 7)]
    assert all(caller.served for caller in callers)


@run
async def test_everybody_is_told_where_the_time_went():
    room, now = Room(), 10.0
    room.batcher.clock = lambda: now
    engine = await room.connect()
    room.submit()
    running = await engine.batch()
    first = room.submit(2)
    now = 11.0
    second = room.submit(3)
    now = 13.0
    engine.answer(running)
    batch = await engine.batch()
    now = 13.5
    engine.answer(batch)
    assert first.times == (3_000_000_000, 499_999_500, 500, 5)
    assert second.times == (2_000_000_000, 499_999_500, 500, 5)
    _, done = room.observer.batches
    assert (done.start, done.end) == (13.0, 13.5)


@run
async def test_the_slot_has_the_items_and_their_rows_entry_by_entry():
    room = Room()
    engine = await room.connect()
    call = Call("imle", "{}", 3, "float32", samples=2, pulled="cotangent", form="soft")
    draw = np.random.default_rng(0)
    seeds, rows = (2**64 - 1, 7), (4, 1)
    given = [
        {
            "k": draw.normal(size=count),
            "tau": draw.normal(size=count),
            "scores": draw.normal(size=(count, 3)).astype("float32"),
            "cotangent": draw.normal(size=(2, count, 3)).astype("float32"),
        }
        for count in rows
    ]
    whole, other = (
        Item(call, count, {name: array.tobytes() for name, array in arrays.items()}, seed)
        for count, arrays, seed in zip(rows, given, seeds, strict=True)
    )

    def ignore(entry: Entry, outcome: object) -> None:
        del entry, outcome

    pieces = ((1, 2), (3, 1))  # two chunks of the first item, not all of it
    chunks = [Entry(whole, ignore, first=first, rows=count) for first, count in pieces]
    room.batcher.submit([*chunks, Entry(other, ignore)])
    batch = await engine.batch()
    assert (batch.rows, batch.items, batch.call) == (4, 3, call)
    table = np.frombuffer(engine.slots[batch.slot], "uint64", 9).reshape(3, 3)
    assert table.tolist() == [[2, seeds[0], 1], [1, seeds[0], 3], [1, seeds[1], 0]]
    for name in ("k", "tau", "scores"):
        dtype = "float32" if name == "scores" else "float64"
        wanted = np.concatenate([given[0][name][1:], given[1][name]])
        assert engine.array(batch, name, dtype).tolist() == wanted.ravel().tolist()
    first, second = (arrays["cotangent"] for arrays in given)
    wanted = np.concatenate([part.ravel() for part in (first[:, 1:3], first[:, 3:], second)])
    assert engine.array(batch, "cotangent").tolist() == wanted.tolist()


@run
async def test_a_second_batch_is_prepared_only_if_it_is_large_and_a_third_never():
    room = Room(ahead_elements=40, batch_elements=100)
    engine = await room.connect()
    callers = [room.submit(1)]
    running = await engine.batch()
    callers.append(room.submit(9))
    await turns()
    assert not engine.sent, "36 scores are not worth it"
    callers.append(room.submit(1))
    prepared = await engine.batch()
    assert (prepared.rows, prepared.slot) == (10, 1 - running.slot)
    callers.append(room.submit(25))
    await turns()
    assert not engine.sent, "both slots are taken"
    engine.answer(running)
    third = await engine.batch()
    assert (third.rows, third.slot) == (25, running.slot)
    engine.answer(prepared)
    engine.answer(third)
    assert all(caller.served for caller in callers)


@run
async def test_several_engines_share_the_work_and_the_least_busy_is_next():
    room = Room(ahead_elements=40)
    engines = [await room.connect("cpu"), await room.connect("cuda:0")]
    assert room.batcher.devices == ["cpu", "cuda:0"]
    callers = [room.submit(20)]
    first = await engines[0].batch()
    callers.append(room.submit(20))
    second = await engines[1].batch()
    assert not engines[0].sent, "an idle engine goes before a busy one"
    assert first.id != second.id
    callers.append(room.submit(20))
    ahead = await engines[0].batch()
    engines[1].answer(second)
    callers.append(room.submit(1))
    engines[1].answer(await engines[1].batch())
    engines[0].answer(first)
    engines[0].answer(ahead)
    assert all(caller.served for caller in callers)
    assert room.is_empty


@run
async def test_a_caller_who_left_before_his_entry_was_sent_is_not_in_the_batch():
    room = Room()
    engine = await room.connect()
    holding = room.submit()
    running = await engine.batch()
    leaving, staying = room.submit(5), room.submit(2)
    room.batcher.withdraw([leaving.entry])
    assert (room.batcher.queue.entries, room.batcher.queue.elements) == (1, 8)
    engine.answer(running)
    batch = await engine.batch()
    assert (batch.rows, batch.items) == (2, 1)
    engine.answer(batch)
    assert holding.served and staying.served and not leaving.done.is_set()


@run
async def test_a_caller_who_left_after_his_entry_was_sent_harms_nobody():
    room = Room()
    engine = await room.connect()
    staying, leaving, last = room.submit_together(1, 2, 3)
    batch = await engine.batch()
    room.batcher.withdraw([leaving.entry])
    engine.answer(batch)
    assert staying.served and last.served and not leaving.done.is_set()
    alone = room.submit()
    engine.answer(await engine.batch())
    assert alone.served, "and the slot is free again"


@run
async def test_a_thousand_callers_who_left_leave_an_empty_queue():
    room = Room()
    engine = await room.connect()
    room.submit()
    running = await engine.batch()
    callers = [room.submit(n=4 + number % 3) for number in range(1000)]
    for caller in callers:
        room.batcher.withdraw([caller.entry])
    assert room.batcher.queue.entries == 0
    engine.answer(running)
    await turns()
    assert room.is_empty and not engine.sent


@run
async def test_an_entry_whose_deadline_passed_in_the_queue_is_never_sent():
    room, now = Room(), 0.0
    room.batcher.clock = lambda: now
    engine = await room.connect()
    holding = room.submit()
    running = await engine.batch()
    late, live = room.submit(3, deadline=1.0), room.submit(2, deadline=1.5)
    late_too = room.submit(n=9, deadline=1.0)
    now = 1.0
    engine.answer(running)
    batch = await engine.batch()
    assert (batch.rows, batch.items) == (2, 1)
    engine.answer(batch)
    await turns()
    assert not engine.sent and room.is_empty
    for caller in (late, late_too):
        assert isinstance(caller.error, DeadlineExceeded)
    assert holding.served and live.served
    only = room.submit(deadline=1.0)
    await only.done.wait()
    assert isinstance(only.error, DeadlineExceeded) and not engine.sent


@run
async def test_with_a_wait_a_batch_leaves_by_itself_when_it_is_time():
    room, now = Room(max_wait_s=0.01), 0.0
    room.batcher.clock = lambda: now
    engine = await room.connect()
    first = room.submit()
    await turns()
    now = 0.005
    second = room.submit()
    await turns()
    assert not engine.sent
    now = 0.01
    batch = await engine.batch()
    assert batch.items == 2
    engine.answer(batch)
    assert first.served and second.served


@run
async def test_a_refusal_reaches_its_own_caller():
    room = Room()
    engine = await room.connect()
    good, bad, good_too = room.submit_together(1, 2, 3)
    engine.answer(await engine.batch(), refusals={1: "x must be finite"})
    assert good.served and good_too.served
    assert bad.refusal == "x must be finite" and bad.error is None


@run
async def test_a_batch_that_failed_fails_its_callers_and_not_the_engine():
    room = Room()
    engine = await room.connect()
    failed = room.submit_together(1, 1)
    running = await engine.batch()
    waiting = room.submit()
    engine.answer(running, failure="RuntimeError: out of memory")
    for caller in failed:
        assert isinstance(caller.error, EngineFailed)
        assert str(caller.error) == "engine: must not fail; got RuntimeError: out of memory"
    engine.answer(await engine.batch())
    assert waiting.served
    assert engine.closed == 0


@run
async def test_iterations_and_residuals_are_told_by_row():
    room = Room()
    engine = await room.connect()
    for rows, values in ((1, [7]), (5, [3, 0, 3, 9, 3])):
        caller = room.submit(rows)
        batch = await engine.batch()
        engine.array(batch, "iterations", "int32")[:] = values
        engine.array(batch, "residual", "float64")[:] = [1e-9 * value for value in values]
        engine.answer(batch, roots=True)
        assert caller.served
    room.submit()
    engine.answer(await engine.batch())
    one, some, none = (batch.roots for batch in room.observer.batches)
    assert (one.iterations, some.iterations, none) == ({7: 1}, {0: 1, 3: 3, 9: 1}, None)
    assert one.residuals == pytest.approx([7e-9], rel=1e-15)
    assert some.residuals == pytest.approx([3e-9, 0, 3e-9, 9e-9, 3e-9], rel=1e-15)


@run
async def test_rows_that_were_refused_have_no_roots():
    """The engine leaves their memory as it was: anything, such as a number below 0."""
    room = Room()
    engine = await room.connect()
    callers = room.submit_together(1, 2, 1)
    batch = await engine.batch()
    engine.array(batch, "iterations", "int32")[:] = [4, -5, 2**31 - 1, 4]
    engine.array(batch, "residual", "float64")[:] = [1e-8, np.nan, -np.inf, 1e-7]
    engine.answer(batch, roots=True, refusals={1: "x must be finite"})
    assert [caller.served for caller in callers] == [True, False, True]
    (found,) = (batch.roots for batch in room.observer.batches)
    assert found.iterations == {4: 2} and [*found.residuals] == [1e-8, 1e-7]


@run
async def test_a_full_queue_refuses_at_once_and_keeps_what_it_has():
    """What the engine has counts too: it is time that who comes now would wait."""
    room = Room(queue_elements=24)
    engine = await room.connect()
    room.submit()
    running = await engine.batch()
    fits = room.submit(5)
    with pytest.raises(QueueFull, match="at most 24 .* under way; got 24 under way and 4 more"):
        room.submit()
    engine.answer(running)
    fits_now = room.submit()
    engine.answer(await engine.batch())
    engine.answer(await engine.batch())
    assert fits.served and fits_now.served and room.is_empty


@run
async def test_the_operators_are_those_of_the_hello():
    room = Room()
    assert room.batcher.operators == {}
    await room.connect()
    assert room.batcher.operators == {"sigmoid_topk": OPERATOR}
