"""The batcher: engines that die or take too long, and who had work there."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from room import Engine, Room, run, turns, until

from khot_server.batching import batcher as module
from khot_server.errors import BatchTooLong, EngineDied, EngineUnavailable


@run
async def test_a_dead_engine_fails_only_what_it_had():
    room = Room()
    engines = [await room.connect(), await room.connect()]
    callers = [room.submit(n=n) for n in (4, 5)]
    await engines[0].batch()
    running = await engines[1].batch()
    waiting = room.submit(3, n=4)
    await turns()
    engines[0].die()
    assert isinstance(callers[0].error, EngineDied)
    assert not callers[1].done.is_set() and not waiting.done.is_set()
    assert (engines[0].closed, engines[1].closed) == (1, 0)
    await room.serving[engines[0]]
    engines[1].answer(running)
    engines[1].answer(await engines[1].batch())
    assert callers[1].served and waiting.served
    assert room.observer.engines == ["up cpu", "up cpu", "lost"]


@run
async def test_both_batches_of_a_dead_engine_are_lost_and_who_left_is_not_told():
    room = Room(ahead_elements=4)
    engine = await room.connect()
    first, leaving = room.submit_together(1, 1)
    await engine.batch()
    second = room.submit()
    await engine.batch()
    room.batcher.withdraw([leaving.entry])
    engine.die()
    assert isinstance(first.error, EngineDied) and isinstance(second.error, EngineDied)
    assert not leaving.done.is_set()


@run
async def test_the_queue_waits_for_the_next_engine():
    room = Room()
    engine = await room.connect()
    lost = room.submit()
    await engine.batch()
    waiting = room.submit(3)
    await turns()
    engine.die()
    assert isinstance(lost.error, EngineDied)
    with pytest.raises(EngineUnavailable, match="must be running; got none, one is being started"):
        room.submit()
    await room.serving[engine]
    assert not waiting.done.is_set() and room.batcher.devices == []
    successor = await room.connect("cuda:1")
    successor.answer(await successor.batch())
    assert waiting.served
    assert room.observer.engines == ["up cpu", "lost", "up cuda:1"]


@run
async def test_an_engine_that_is_found_dead_when_a_batch_is_sent_loses_only_that_batch():
    room = Room()
    engines = [await room.connect(), await room.connect()]
    engines[0].dead = True
    unlucky = room.submit()
    await unlucky.done.wait()
    assert isinstance(unlucky.error, EngineDied)
    await room.serving[engines[0]]
    lucky = room.submit()
    engines[1].answer(await engines[1].batch())
    assert lucky.served and engines[0].closed == 1


@run
async def test_an_engine_that_dies_before_its_hello_was_never_there():
    room, engine = Room(), Engine()
    engine.dead = True

    async def never() -> None:
        raise AssertionError("it is not connected")

    await room.batcher.serve(engine, never)
    assert engine.closed == 1 and room.observer.engines == []
    with pytest.raises(EngineUnavailable, match="got none"):
        room.submit()


@run
async def test_serving_can_be_cancelled_and_then_the_engine_is_given_up():
    room = Room()
    engine = await room.connect()
    caller = room.submit()
    await engine.batch()
    room.serving[engine].cancel()
    await asyncio.wait([room.serving[engine]])
    assert isinstance(caller.error, EngineDied)
    assert (engine.closed, room.batcher.devices) == (1, [])


@run
async def test_a_batch_that_takes_too_long_gives_its_engine_up():
    room = Room(max_batch_s=0.02, ahead_elements=4)
    stuck, other = await room.connect(), await room.connect()
    slow = room.submit()
    await stuck.batch()
    quick = room.submit()
    other.answer(await other.batch())
    await slow.done.wait()
    assert isinstance(slow.error, BatchTooLong)
    assert str(slow.error) == (
        "engine: a batch must take at most 0.02 s; got one that takes longer"
    )
    await room.serving[stuck]
    assert quick.served and (stuck.closed, other.closed) == (1, 0)
    after = room.submit()
    other.answer(await other.batch())
    assert after.served


@run
async def test_a_batch_behind_one_that_takes_too_long_may_be_tried_again():
    room = Room(max_batch_s=0.02, ahead_elements=4)
    stuck = await room.connect()
    slow = room.submit()
    await stuck.batch()
    behind = room.submit()
    await stuck.batch()
    await slow.done.wait()
    assert isinstance(slow.error, BatchTooLong) and isinstance(behind.error, EngineDied)


@run
async def test_the_time_of_a_batch_behind_another_begins_when_that_one_ends():
    room = Room(max_batch_s=10.0, ahead_elements=4)
    now = 0.0
    room.batcher.clock = lambda: now
    engine = await room.connect()
    (lane,) = room.batcher._lanes
    room.submit()
    first = await engine.batch()
    behind = room.submit()
    second = await engine.batch()
    now = 9.0
    engine.answer(first)
    now = 18.9  # long since it was sent
    room.batcher._watch(lane)
    assert not engine.closed
    engine.answer(second)
    assert behind.served
    now = 50.0  # of an engine that had nothing to do, when it is sent
    room.submit()
    first = await engine.batch()
    stuck = room.submit()
    await engine.batch()
    now = 59.9
    room.batcher._watch(lane)
    assert not engine.closed
    engine.answer(first)
    now = 70.0
    room.batcher._watch(lane)
    assert isinstance(stuck.error, BatchTooLong)


@run
async def test_an_engine_that_answers_in_time_is_watched_and_kept():
    room = Room(max_batch_s=0.01)
    engine = await room.connect()
    start = room.batcher.clock()
    while room.batcher.clock() < start + 0.05:  # longer than a batch may take, in many
        caller = room.submit()
        engine.answer(await engine.batch())
        assert caller.served
    (lane,) = room.batcher._lanes
    await until(lambda: lane.watch is None)
    assert engine.closed == 0, "nothing is under way, so nothing takes too long"
    slow = room.submit()
    await engine.batch()
    await slow.done.wait()
    assert isinstance(slow.error, BatchTooLong), "and it is watched again"


@run
async def test_who_waits_for_no_engine_is_told_in_the_end(monkeypatch):
    monkeypatch.setattr(module, "ENGINE_WAIT_S", 0.01)
    room = Room()
    engine = await room.connect()
    room.submit()
    await engine.batch()
    waiting = [room.submit(3), room.submit(n=9)]
    await turns()
    engine.die()
    for caller in waiting:
        await caller.done.wait()
        assert isinstance(caller.error, EngineUnavailable)
        assert str(caller.error) == "engine: must be back by now; got none"
    assert room.is_empty


@run
async def test_nobody_is_given_up_once_there_is_an_engine_again(monkeypatch):
    """Even if two engines were lost at once, each of which could have been the last."""
    room, loop = Room(), asyncio.get_running_loop()
    timers: list[tuple[asyncio.TimerHandle, Callable[[], None]]] = []
    original = loop.call_later

    def call_later(delay: float, callback: Any, *arguments: Any) -> asyncio.TimerHandle:
        handle = original(delay, callback, *arguments)
        if delay == module.ENGINE_WAIT_S:
            timers.append((handle, callback))
        return handle

    monkeypatch.setattr(loop, "call_later", call_later)
    engines = [await room.connect(), await room.connect()]
    for engine in engines:
        room.submit()
        await engine.batch()
    waiting = room.submit()
    await turns()
    for engine in engines:
        engine.die()
    await asyncio.gather(*(room.serving[engine] for engine in engines))
    successor = await room.connect()
    running = await successor.batch()
    also_waiting = room.submit()
    assert timers
    for handle, callback in timers:  # the time has come
        if not handle.cancelled():
            callback()
    assert not also_waiting.done.is_set()
    successor.answer(running)
    successor.answer(await successor.batch())
    assert waiting.served and also_waiting.served


@run
async def test_what_a_lost_engine_had_makes_room():
    room = Room(queue_elements=4)
    engine, other = await room.connect(), await room.connect()
    lost = room.submit()
    await engine.batch()
    engine.die()
    await room.serving[engine]
    assert isinstance(lost.error, EngineDied)
    served = room.submit()
    other.answer(await other.batch())
    assert served.served and room.is_empty
