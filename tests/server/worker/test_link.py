"""The link: frames arrive whole, a slot's descriptor goes over once, and an end is told once."""

import asyncio
import functools
import inspect
import os
import random
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from khot_server.batching.batcher import SLOTS
from khot_server.messages import BatchRequest, BatchResult, Call, Hello, LinkLost, OperatorInfo
from khot_server.worker import memory
from khot_server.worker.link import Link

HELLO = Hello(
    (OperatorInfo("a", "design", "b", "c", {}, {"p": 2.0}, True, False, False, False, False),),
    "cpu",
    1,
)
CALL = Call("sigmoid_topk", "{}", 8, "float32")


class Told:
    """What a link told."""

    def __init__(self, link: Link) -> None:
        self.results: list[BatchResult] = []
        self.lost = 0
        link.listen(self.results.append, self._lose)

    def _lose(self) -> None:
        self.lost += 1


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def turns() -> None:
    """Let the loop see whatever is there to be read."""
    for _ in range(5):
        await asyncio.sleep(0)


def run(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test with both ends of a link; what it leaves open is closed."""

    @functools.wraps(test)
    def wrapper(**parameters: Any) -> None:
        async def main() -> None:
            ours, theirs = socket.socketpair()
            link = Link(ours)
            try:
                await asyncio.wait_for(test(link, theirs, **parameters), 20)
            finally:
                link.close()
                theirs.close()

        asyncio.run(main())

    _, _, *others = inspect.signature(test).parameters.values()
    wrapper.__signature__ = inspect.Signature(others)  # the ends are no fixtures of pytest's
    return wrapper


def request(slot: int = 0, number: int = 1) -> BatchRequest:
    return BatchRequest(number, slot, 3, 2, CALL)


def received(theirs: socket.socket) -> tuple[BatchRequest, list[int]]:
    """The next request as the engine's end has it, and the descriptors that came with it."""
    head, fds, _, _ = socket.recv_fds(theirs, 4, 4)
    return BatchRequest.decode(theirs.recv(int.from_bytes(head, "little"))), fds


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@run
async def test_a_hello_cut_anywhere_arrives_whole(link, theirs):
    frame = HELLO.encode()
    for cut in range(1, len(frame)):
        hello = asyncio.ensure_future(link.hello())
        theirs.sendall(frame[:cut])
        await turns()
        assert not hello.done()
        theirs.sendall(frame[cut:])
        assert await hello == HELLO


@run
async def test_a_frame_larger_than_any_buffer_arrives_whole(link, theirs):
    large = Hello(HELLO.operators, "x" * 1_000_000, 1)
    theirs.setblocking(False)
    sending = asyncio.get_running_loop().sock_sendall(theirs, large.encode())
    _, hello = await asyncio.gather(sending, link.hello())
    assert hello == large


@run
async def test_results_cut_anywhere_arrive_whole_and_in_order(link, theirs):
    chance = random.Random(0)
    results = [
        BatchResult(number, 5, algorithm="x" * chance.choice([0, 10, 300]), refusals={1: "é"})
        for number in range(100)
    ]
    data = b"".join(result.encode() for result in results)
    told = Told(link)
    while data:
        size = chance.choice([1, 2, 3, 50, 2000])  # a part of one, or many at once
        theirs.sendall(data[:size])
        data = data[size:]
        await turns()
    await until(lambda: len(told.results) == len(results))
    assert told.results == results
    assert told.lost == 0


@run
async def test_after_its_close_a_link_tells_nothing_more(link, theirs):
    results: list[BatchResult] = []

    def result(found: BatchResult) -> None:
        results.append(found)
        link.close()

    link.listen(result, lambda: pytest.fail("it was closed on this side"))
    theirs.sendall(BatchResult(1, 5).encode() + BatchResult(2, 5).encode())
    await until(lambda: bool(results))
    await turns()
    assert [found.id for found in results] == [1]


@run
async def test_the_descriptor_of_a_slot_goes_over_once_and_only_when_it_is_new(link, theirs):
    ours = link.memory(0, 1000)
    ours[:4] = b"khot"
    link.send(request())
    got, (fd,) = received(theirs)
    assert got == request()
    there = memory.attach(fd)
    assert len(there) == len(ours) >= 1000 and there[:4] == b"khot"
    there[:4] = b"back"
    for size in (500, len(ours)):
        assert link.memory(0, size)[:4] == b"back", "the same memory, while it is enough"
    link.send(request(number=2))
    assert received(theirs) == (request(number=2), [])
    larger = link.memory(0, len(ours) + 1)
    assert len(larger) > len(ours)
    larger[-1] = 7
    link.send(request(number=3))
    _, (fd,) = received(theirs)
    assert memory.attach(fd)[-1] == 7


@run
async def test_each_slot_has_its_own_memory(link, theirs):
    for slot in (0, 1):
        link.memory(slot, 100)[0] = slot
    for slot in (1, 0):
        link.send(request(slot))
        got, (fd,) = received(theirs)
        assert got.slot == slot and memory.attach(fd)[0] == slot


@run
async def test_a_slot_that_grows_before_it_was_sent_goes_over_as_it_is_last(link, theirs):
    link.memory(0, 100)
    last = link.memory(0, 1_000_000)
    link.send(request())
    _, (fd,) = received(theirs)
    assert len(memory.attach(fd)) == len(last)


@pytest.mark.parametrize("unread", [False, True], ids=["read all", "left something unread"])
@run
async def test_an_engine_that_is_gone_is_lost_once_after_what_it_said(link, theirs, unread):
    told = Told(link)
    link.memory(0, 100)
    if unread:  # which resets the connection
        link.send(request())
    theirs.sendall(BatchResult(1, 5).encode())
    theirs.close()
    await until(lambda: bool(told.lost))
    await turns()
    assert told.lost == 1
    assert [result.id for result in told.results] == [1]
    with pytest.raises(LinkLost):
        link.send(request())
    with pytest.raises(LinkLost):
        await link.hello()


@run
async def test_an_engine_that_dies_within_its_hello_is_lost(link, theirs):
    theirs.sendall(HELLO.encode()[:-1])
    theirs.close()
    with pytest.raises(LinkLost):
        await link.hello()


@run
async def test_an_engine_that_does_not_read_is_lost_and_nobody_waits_for_it(link, theirs):
    link.memory(0, 100)
    sent = 0

    def flood() -> None:
        nonlocal sent
        while sent < 1_000_000:
            link.send(request(number=sent))
            sent += 1

    with pytest.raises(LinkLost):
        flood()
    assert sent > SLOTS, "what there are slots for always fits"


@run
async def test_a_closed_link_leaves_no_descriptor_open(link, theirs):
    before = open_descriptors()
    ours, other = socket.socketpair()
    second = Link(ours)
    told = Told(second)
    second.memory(0, 100)
    second.memory(0, 1_000_000)  # never sent, the first time
    second.memory(1, 100)
    second.send(request(0))
    second.send(request(0))
    for _ in range(2):
        _, fds = received(other)
        for fd in fds:
            os.close(fd)
    second.memory(0, 5_000_000)  # sent, the first time
    other.close()
    await until(lambda: bool(told.lost))
    with pytest.raises(LinkLost):
        second.send(request(0))
    second.close()
    second.close()
    assert open_descriptors() == before
