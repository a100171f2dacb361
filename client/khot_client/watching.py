"""Events, results and logs of a job over any loss of connection; and lists, page by page.

Every event has a sequence number, and the server sends those after a given one. So a
watch that lost its server waits until one answers again, and goes on after the last
event it has seen: none is lost, none comes twice.
"""

import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TypeVar

from khot_client import job_calls as calls
from khot_client.calls import Call
from khot_client.errors import (
    DeadlineExceeded,
    JobFailed,
    KhotError,
    RequestError,
    Unavailable,
)
from khot_client.io import Io
from khot_client.job_values import Event, GroupStatus, JobState, JobStatus
from khot_client.specs import Result

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
LOG_PAUSE_S = 0.5
NO_TIME_S = 0.001  # for a call that is to end with DEADLINE_EXCEEDED, as its time is up
AFTER_ALL = 2**63 - 1  # no event has this number: the stream then only ends with the job
LOST = (Unavailable, DeadlineExceeded)

T = TypeVar("T")


class Patience:
    """How long to go on after a server was lost, and how long to pause between tries.

    Args:
        reconnect_s: how long a server may be away.
        deadline: by time.monotonic, when all of it must have ended.
    """

    def __init__(self, reconnect_s: float, deadline: float = math.inf) -> None:
        self.deadline = deadline
        self._reconnect_s, self._pause_s = reconnect_s, FIRST_PAUSE_S
        self._give_up: float | None = None

    def progress(self) -> None:
        """It goes on: the next pause is short again."""
        self._pause_s, self._give_up = FIRST_PAUSE_S, None

    def left(self) -> float | None:
        """Seconds until the deadline, if there is one."""
        if self.deadline == math.inf:
            return None
        return max(NO_TIME_S, self.deadline - time.monotonic())

    async def pause(self, io: Io, lost: KhotError) -> None:
        """Wait a little longer than the last time; raise what was lost if it is too late."""
        now = time.monotonic()
        if now >= self.deadline:
            raise DeadlineExceeded(lost.message, code="DEADLINE_EXCEEDED")
        if self._give_up is None:
            self._give_up = now + self._reconnect_s
        if now >= self._give_up:
            raise lost
        await io.pause(min(self._pause_s, self._give_up - now, self.deadline - now))
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    async def call(self, io: Io, call: Call[T]) -> T:
        """The answer of a call, as soon as a server gives one."""
        while True:
            try:
                answer = await io.call(call, self.left())
            except LOST as lost:
                await self.pause(io, lost)
            else:
                self._give_up = None
                return answer


async def events(
    io: Io, job_id: str, last: int, reconnect_s: float, deadline: float = math.inf
) -> AsyncGenerator[Event, None]:
    """The events after `last`, until the job has ended."""
    patience = Patience(reconnect_s, deadline)
    while True:
        try:
            async with aclosing(io.stream(calls.watch(job_id, last), patience.left())) as stream:
                async for event in stream:
                    last = event.sequence
                    patience.progress()
                    yield event
                return
        except Unavailable as lost:
            await patience.pause(io, lost)
        # It is GetJob that says whether a server answers: a watch of a job that waits its turn
        # may be silent for hours, in health.
        await patience.call(io, calls.get(job_id))


async def result(io: Io, job_id: str, timeout_s: float | None, reconnect_s: float) -> Result:
    """The result, once it is there."""
    deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
    try:
        async with aclosing(events(io, job_id, AFTER_ALL, reconnect_s, deadline)) as ends:
            async for _ in ends:
                pass
    except DeadlineExceeded as error:
        message = f"job {job_id}: must end within {timeout_s} s; got no end yet"
        raise DeadlineExceeded(message, code=error.code) from None
    return result_of(job_id, await Patience(reconnect_s).call(io, calls.get(job_id)))


def result_of(job_id: str, status: JobStatus) -> Result:
    """The result of a job that has ended.

    Raises:
        JobFailed: it has none.
        RequestError: it has not ended.
    """
    if status.result is not None:
        return status.result
    if status.failure is not None:
        raise JobFailed(f"job {job_id}: {status.failure.message}", kind=status.failure.kind)
    if status.state is JobState.CANCELLED:
        raise JobFailed(f"job {job_id}: was cancelled", kind=status.state)
    raise RequestError(
        f"job {job_id}: must have ended; got {status.state}. Call wait() instead.",
        code="FAILED_PRECONDITION",
    )


async def group_end(
    io: Io, group_id: str, timeout_s: float | None, reconnect_s: float
) -> GroupStatus:
    """The group, once all its jobs have ended."""
    deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
    patience = Patience(reconnect_s, deadline)
    try:
        status = await patience.call(io, calls.get_group(group_id))
        for job in status.jobs:
            if not job.state.ended:
                async with aclosing(events(io, job.id, AFTER_ALL, reconnect_s, deadline)) as ends:
                    async for _ in ends:
                        pass
        return await patience.call(io, calls.get_group(group_id))
    except DeadlineExceeded as error:
        message = f"group {group_id}: must end within {timeout_s} s; got no end yet"
        raise DeadlineExceeded(message, code=error.code) from None


async def logs(
    io: Io, job_id: str, attempt: int, follow: bool, reconnect_s: float
) -> AsyncGenerator[str, None]:
    """What an attempt has printed, or, with `follow`, it and those after it until the job ends."""
    patience = Patience(reconnect_s if follow else 0.0)
    offset, ended = 0, False
    latest = attempt == 0
    while True:
        part = await patience.call(io, calls.logs(job_id, attempt, offset))
        attempt, offset = part.attempt, part.next_offset
        if part.text:
            yield part.text
            continue
        if ended or not follow:
            return
        # Asked before the log once more: what was printed before the end is there then.
        status = await patience.call(io, calls.get(job_id))
        if latest and attempt and status.attempts > attempt:
            attempt, offset = attempt + 1, 0
        elif status.state.ended:
            ended = True
        else:
            await io.pause(LOG_PAUSE_S)


async def pages(
    io: Io, page: Callable[[str, int], Call[tuple[list[T], str]]], limit: int | None, size: int
) -> AsyncGenerator[T, None]:
    """The rows of all pages, up to `limit` of them."""
    token, left = "", math.inf if limit is None else limit
    while left > 0:
        rows, token = await io.call(page(token, int(min(size, left))))
        for row in rows:
            yield row
        left -= len(rows)
        if not token:
            return
