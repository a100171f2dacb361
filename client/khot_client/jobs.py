"""The handle of a job: its state, its events over any loss of connection, its result.

Every event has a sequence number, and the server sends those after a given one. So a
watch that lost its server waits until one answers again, and goes on after the last
event it has seen: none is lost, none comes twice.
"""

import math
import time
from collections.abc import Iterator

from khot_client import messages
from khot_client.connection import Connection
from khot_client.errors import DeadlineExceeded, JobFailed, KhotError, ServerError, Unavailable
from khot_client.values import Event, FeatureSelectionResult, JobState, JobStatus
from khot_proto.v1 import job_service_pb2 as pb

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
AFTER_ALL = 2**63 - 1  # no event has this number: the stream then only ends with the job


class Job:
    """A job on the server, by its id. Made by `Client.submit` and `Client.job`."""

    def __init__(self, connection: Connection, job_id: str) -> None:
        self._connection = connection
        self.id = job_id

    def status(self) -> JobStatus:
        """Return the job as it is now."""
        call = self._connection.jobs.GetJob
        response = self._connection.call(call, pb.GetJobRequest(job_id=self.id))
        try:
            return messages.job_status(response.job)
        except ValueError as error:  # a state of a later version
            raise ServerError(f"reply: {error}") from None

    def watch(self, after_sequence: int = 0, *, reconnect_s: float = 60.0) -> Iterator[Event]:
        """Yield what happens to the job, from the beginning, until it has ended.

        Args:
            after_sequence: only events with a greater number: 0 for all.
            reconnect_s: how long to wait for a server that is lost.

        Raises:
            Unavailable: no server answered for `reconnect_s`. The job goes on; watch it
                again from the last number seen.
            KhotError: the call failed.
        """
        return self._follow(after_sequence, reconnect_s, math.inf)

    def wait(
        self, timeout_s: float | None = None, *, reconnect_s: float = 60.0
    ) -> FeatureSelectionResult:
        """Return the result, once it is there.

        Args:
            timeout_s: how long to wait; None: as long as it takes.
            reconnect_s: as in `watch`.

        Raises:
            JobFailed: the job failed or was cancelled.
            DeadlineExceeded: it had not ended in time. It goes on; wait again.
            KhotError: the call failed.
        """
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        try:
            for _ in self._follow(AFTER_ALL, reconnect_s, deadline):
                pass
        except DeadlineExceeded as error:
            message = f"job {self.id}: must end within {timeout_s} s; got no end yet"
            raise DeadlineExceeded(message, code=error.code) from None
        status = self.status()
        if status.result is not None:
            return status.result
        if status.failure is not None:
            raise JobFailed(f"job {self.id}: {status.failure.message}", kind=status.failure.kind)
        if status.state is JobState.CANCELLED:
            raise JobFailed(f"job {self.id}: was cancelled", kind=status.state)
        raise ServerError(f"job {self.id}: must have ended with its events; got {status.state}")

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def _follow(self, last: int, reconnect_s: float, deadline: float) -> Iterator[Event]:
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                for event in self._events(last, deadline):
                    last, pause_s = event.sequence, FIRST_PAUSE_S
                    yield event
                return
            except Unavailable as lost:
                pause_s = self._until_served(lost, pause_s, reconnect_s, deadline)

    def _events(self, last: int, deadline: float) -> Iterator[Event]:
        """The events after `last` over one connection."""
        request = pb.WatchJobRequest(job_id=self.id, after_sequence=last)
        left = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
        for response in self._connection.stream(self._connection.jobs.WatchJob, request, left):
            try:
                yield messages.event(response.event)
            except ValueError as error:  # a state of a later version
                raise ServerError(f"reply: {error}") from None

    def _until_served(
        self, lost: KhotError, pause_s: float, reconnect_s: float, deadline: float
    ) -> float:
        """Wait until a server answers or the deadline has passed; return the next pause.

        It is GetJob that says whether one answers: a watch of a job that waits its turn may
        be silent for hours, in health.
        """
        give_up = time.monotonic() + reconnect_s
        while (now := time.monotonic()) < deadline:
            if now >= give_up:
                raise lost
            time.sleep(min(pause_s, give_up - now, deadline - now))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            try:
                self.status()
                break
            except (Unavailable, DeadlineExceeded) as error:
                lost = error
        return pause_s
