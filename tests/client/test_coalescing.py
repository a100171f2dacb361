"""Calls that are made at the same time share a request, by both clients."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from processes import Server, stopped_engine, wait_until

from khot_client import AsyncClient, Client, DeadlineExceeded, InvalidRequest, Unavailable
from khot_client import coalescing as module

ROWS = np.random.default_rng(0).normal(size=(60, 24)).astype(np.float32)
CALLS = r'khot_requests_total\{code="OK",method="Relax"\}'


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A server whose calls are counted."""
    running = Server(tmp_path_factory.mktemp("state"), "--engine-silence-s", "100")
    try:
        running.wait_until_serving()
        with Client(running.address) as client:
            client.relax([1.0], 1)  # so that there is a count
        yield running
        assert running.stop() == 0
    finally:
        running.end()


def all_at_once(kind: type, address: str, call, count: int, **settings):
    """What `call(client, number)` returns or raises, for each number, all under way together."""
    if kind is Client:
        with (
            Client(address, coalesce=True, **settings) as client,
            ThreadPoolExecutor(count) as pool,
        ):
            futures = [pool.submit(call, client, number) for number in range(count)]
            return [future.exception() or future.result() for future in futures]

    async def run() -> list:
        async with AsyncClient(address, coalesce=True, **settings) as client:
            calls = (call(client, number) for number in range(count))
            return await asyncio.gather(*calls, return_exceptions=True)

    return asyncio.run(run())


@pytest.fixture(params=[Client, AsyncClient], ids=lambda kind: kind.__name__)
def kind(request):
    return request.param


def test_calls_under_way_together_share_requests(kind, own):
    with Client(own.address) as client:
        expected = client.relax(ROWS, 3).p
    before = own.metric(CALLS)
    got = all_at_once(kind, own.address, lambda client, i: client.relax(ROWS[i], 3), len(ROWS))
    assert np.array_equal([one.p for one in got], expected)
    assert own.metric(CALLS) - before < len(ROWS) / 2


def test_a_bad_item_fails_alone_and_as_if_it_were_alone(kind, server):
    got = all_at_once(
        kind, server, lambda client, i: client.relax(ROWS[i], 99 if i == 7 else 3), 20
    )
    bad = got.pop(7)
    assert isinstance(bad, InvalidRequest) and bad.field.startswith("items[0]")
    assert "items[0]" in str(bad) and "items[7]" not in str(bad)
    assert all(one.p.sum() == pytest.approx(3, abs=1e-4) for one in got)


def test_what_cannot_be_sent_is_refused_at_once(kind, server):
    (bad,) = all_at_once(kind, server, lambda client, _: client.relax("no", 3), 1)
    assert isinstance(bad, InvalidRequest) and bad.field == "x"


def test_all_four_operations_coalesce(kind, server):
    calls = [
        lambda client: client.relax(ROWS[0], 3),
        lambda client: client.relax_vjp(ROWS[0], 3, ROWS[1]),
        lambda client: client.sample(ROWS[0], 3, seed=1, priority="bulk"),
        lambda client: client.sample_vjp(ROWS[0], 3, ROWS[1], seed=1),
    ]
    soft, pulled, drawn, again = all_at_once(kind, server, lambda c, i: calls[i](c), 4)
    assert soft.p.shape == pulled.x.shape == again.x.shape == (24,) and drawn.z.sum() == 3


def test_each_caller_waits_as_long_as_he_said(kind, own):
    def call(client, number):
        return client.relax(ROWS[number], 3, timeout_s=0.2 if number else 60)

    pause = threading.Event()
    with ThreadPoolExecutor(1) as pool, stopped_engine(own):
        running = pool.submit(all_at_once, kind, own.address, call, 5)
        wait_until(lambda: own.in_flight("Relax") >= 1, "a call to be under way")
        # the impatient ones give up while the engine stands still
        pause.wait(0.5)
    patient, *late = running.result()
    assert patient.p.sum() == pytest.approx(3, abs=1e-4)
    assert all(isinstance(error, DeadlineExceeded) for error in late)
    assert "must be answered within 0.2 s" in str(late[0])


def test_a_failed_request_fails_all_its_items(kind):
    got = all_at_once(kind, "127.0.0.1:1", lambda client, i: client.relax(ROWS[i], 3), 4)
    assert all(isinstance(error, Unavailable) for error in got)
    assert len({id(error) for error in got}) == 4, "each has its own, with its own traceback"


def test_requests_have_a_limit(kind, own, monkeypatch):
    monkeypatch.setattr(module, "MAX_ITEMS", 3)
    before = own.metric(CALLS)
    got = all_at_once(kind, own.address, lambda client, i: client.relax(ROWS[i], 3), 30)
    assert all(one.p.sum() == pytest.approx(3, abs=1e-4) for one in got)
    assert own.metric(CALLS) - before >= 10
