"""Many requests in flight on one call, by both clients."""

import asyncio
import os
import signal
import threading

import numpy as np
import pytest
from processes import Server, stopped_engine, wait_until

from khot_client import (
    AsyncClient,
    Cancelled,
    Client,
    InvalidRequest,
    KhotError,
    Relaxed,
    RelaxItem,
    SampleItem,
    Unavailable,
)

ROWS = np.random.default_rng(0).normal(size=(200, 24)).astype(np.float32)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A server to be killed."""
    running = Server(tmp_path_factory.mktemp("state")).wait_until_serving()
    try:
        yield running
    finally:
        running.end()


@pytest.fixture(scope="module")
def expected(server):
    with Client(server) as client:
        return client.relax(ROWS, 3).p


def test_answers_come_in_the_order_of_the_items(face, expected):
    items = (RelaxItem(row, 3) for row in ROWS)
    got = list(face.relax_stream(items, in_flight=16))
    assert np.array_equal([one.p for one in got], expected)
    masks = list(face.sample_stream(SampleItem(row, 3, seed=1) for row in ROWS[:20]))
    assert [mask.z.sum() for mask in masks] == [3] * 20
    assert list(face.relax_stream([])) == []


def test_a_bad_item_has_its_error_in_its_place(face):
    items = [RelaxItem(ROWS[0], 3), RelaxItem(ROWS[0], 99), RelaxItem("no", 1), RelaxItem([1.0], 1)]
    first, bad, unsendable, last = face.relax_stream(items, in_flight=2)
    assert isinstance(first, Relaxed) and isinstance(last, Relaxed)
    assert isinstance(bad, InvalidRequest) and isinstance(unsendable, InvalidRequest)


def test_a_stream_that_is_left_leaves_no_thread(client):
    before = threading.active_count()
    outcomes = client.relax_stream((RelaxItem(row, 3) for row in ROWS), in_flight=4)
    next(outcomes)
    outcomes.close()
    wait_until(lambda: threading.active_count() <= before + 1, "its threads to end")


def test_futures_of_all_four_operations(client, expected):
    with client.stream(in_flight=64) as stream:
        soft = [stream.relax(row, 3) for row in ROWS]
        drawn = stream.sample(ROWS[0], 3, seed=1, num_samples=2)
        pulled = stream.relax_vjp(ROWS[0], 3, ROWS[1])
        again = stream.sample_vjp(ROWS[0], 3, ROWS[1], seed=1)
        bad = stream.relax(ROWS[0], 99)
    assert all(future.done() for future in soft), "leaving waits for them"
    assert np.array_equal([future.result().p for future in soft], expected)
    assert drawn.result().z.shape == (2, 24)
    assert np.array_equal(pulled.result().x, client.relax_vjp(ROWS[0], 3, ROWS[1]).x)
    assert np.array_equal(again.result().x, client.sample_vjp(ROWS[0], 3, ROWS[1], seed=1).x)
    with pytest.raises(InvalidRequest, match=r"k must be in \[0, n\]"):
        bad.result()


def test_tasks_share_a_stream(server, expected):
    async def run() -> None:
        async with AsyncClient(server) as client, client.stream(in_flight=8) as stream:
            soft = asyncio.gather(*(stream.relax(row, 3) for row in ROWS))
            drawn, pulled, again = await asyncio.gather(
                stream.sample(ROWS[0], 3, seed=1),
                stream.relax_vjp(ROWS[0], 3, ROWS[1]),
                stream.sample_vjp(ROWS[0], 3, ROWS[1], seed=1),
            )
            assert np.array_equal([one.p for one in await soft], expected)
            assert drawn.z.sum() == 3 and pulled.x.shape == again.x.shape == (24,)
            with pytest.raises(InvalidRequest, match=r"k must be in \[0, n\]"):
                await stream.relax(ROWS[0], 99)

    asyncio.run(run())


def test_a_cancelled_task_takes_nothing_from_the_others(server):
    """gRPC ends a call when whoever writes to it is cancelled; the stream is not his alone."""
    large = np.zeros((500, 2000), np.float32)

    async def run() -> None:
        async with AsyncClient(server) as client, client.stream(in_flight=4) as stream:
            for turns in range(12):
                tasks = [asyncio.create_task(stream.relax(large, 3)) for _ in range(3)]
                for _ in range(turns):  # wherever they are by then
                    await asyncio.sleep(0)
                tasks[turns % 3].cancel()
                left = [task for task in tasks if task is not tasks[turns % 3]]
                assert all(one.p.shape == large.shape for one in await asyncio.gather(*left))
            full = [stream.relax(ROWS[0], 3) for _ in range(4)]
            assert len(await asyncio.wait_for(asyncio.gather(*full), 30)) == 4, "no room is lost"

    asyncio.run(run())


def test_a_stream_that_was_not_entered_says_so(server):
    async def run() -> None:
        async with AsyncClient(server) as client:
            with pytest.raises(InvalidRequest, match="stream: must be in an `async with`"):
                await client.stream().relax(ROWS[0], 3)

    asyncio.run(run())


def test_no_more_are_in_flight_than_may_be(own):
    with Client(own.address) as client, client.stream(in_flight=4) as stream:
        with stopped_engine(own):
            futures = [stream.relax(ROWS[0], 3) for _ in range(4)]
            fifth = threading.Thread(target=lambda: futures.append(stream.relax(ROWS[0], 3)))
            fifth.start()
            fifth.join(0.3)
            assert fifth.is_alive() and len(futures) == 4
        fifth.join(30)
    assert len(futures) == 5 and all(future.result().p.sum() > 2.9 for future in futures)


def test_at_least_one_may_be_in_flight(face):
    with pytest.raises(InvalidRequest, match="in_flight: must be at least 1; got 0"):
        list(face.relax_stream([RelaxItem([1.0], 1)], in_flight=0))


def test_leaving_by_an_exception_ends_the_stream(own):
    with Client(own.address) as client, stopped_engine(own):
        left = pytest.raises(KeyboardInterrupt)
        with left, client.stream() as stream:
            future = stream.relax(ROWS[0], 3)
            raise KeyboardInterrupt
        with pytest.raises(Cancelled, match="."):
            future.result(10)
        with pytest.raises(KhotError, match="."):
            stream.relax(ROWS[0], 3)


def test_a_broken_stream_fails_what_is_pending(own):
    """Last: it kills the API process."""
    lost = "must be a khot server that answers"
    with Client(own.address) as client, stopped_engine(own), client.stream() as stream:
        pending = [stream.relax(ROWS[0], 3) for _ in range(3)]
        wait_until(lambda: own.in_flight("Stream") == 1, "the stream to be there")
        os.kill(own.pids()["api"], signal.SIGKILL)
        for future in pending:
            with pytest.raises(Unavailable, match=lost):
                future.result(30)
        with pytest.raises(Unavailable, match=lost):
            stream.relax(ROWS[0], 3)


def test_a_stream_to_no_server_says_so(faces):
    client = faces("127.0.0.1:1")
    with pytest.raises(Unavailable, match="`khot up` starts"):
        list(client.relax_stream([RelaxItem([1.0], 1)]))
