"""The tail of the store's events: what metrics, the log and watchers are told of.

The runner rings after every event it has stored, and the tail reads what is new.
Without a ring it looks once a second, so a lost bell costs time and nothing else.

Each event is read once in the life of this process, from the latest of those that were there
at its start: what was counted in another life is not counted again.
"""

import asyncio
import contextlib
import socket
import time
from collections import defaultdict
from collections.abc import Iterator

import structlog

from khot_server.errors import Draining
from khot_server.jobs.records import StoredEvent
from khot_server.jobs.store import JobStore
from khot_server.metrics import Metrics

log = structlog.get_logger()

FALLBACK_S = 1.0
CENSUS_S = 1.0  # without a change of state
CHANGED_S = 0.1  # after one: it looks at every job, and many may change at once


class EventTail:
    """Reads new events, counts them and wakes whoever watches their jobs."""

    def __init__(self, store: JobStore, metrics: Metrics) -> None:
        self._store, self._metrics = store, metrics
        self._last = store.last_event_id()
        self._census_time = self._next_census = 0.0
        self._rung = asyncio.Event()
        self._draining = asyncio.Event()
        self._watchers: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._bell: socket.socket | None = None

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            self._rung.clear()
            try:
                await self._read()
            except Exception:  # the tail must outlive a locked or full disk
                log.exception("event_tail_failed")
            with contextlib.suppress(TimeoutError):
                pause_s = min(FALLBACK_S, max(0.0, self._next_census - time.monotonic()))
                await asyncio.wait_for(self._rung.wait(), pause_s)

    async def _read(self) -> None:
        while events := await asyncio.to_thread(self._store.new_events, self._last):
            for stored in events:
                self._last = stored.id
                self._metrics.jobs.count(stored)
                if stored.event.state is not None:
                    self._next_census = min(self._next_census, self._census_time + CHANGED_S)
                    _log(stored)
                for watcher in self._watchers.get(stored.job_id, ()):
                    watcher.set()
        # Progress changes nothing of it; jobs that are deleted leave no event.
        if time.monotonic() >= self._next_census:
            self._census_time = time.monotonic()
            self._next_census = self._census_time + CENSUS_S
            self._metrics.jobs.take(await asyncio.to_thread(self._store.census))

    @contextlib.contextmanager
    def watch(self, job_id: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever something happened to the job."""
        changed = asyncio.Event()
        self._watchers[job_id].add(changed)
        try:
            yield changed
        finally:
            self._watchers[job_id].discard(changed)
            if not self._watchers[job_id]:
                del self._watchers[job_id]

    async def wait(self, changed: asyncio.Event) -> None:
        """Until `changed` is set.

        Raises:
            Draining: the server is going down; the watcher may go on elsewhere.
        """
        waiting = [asyncio.create_task(e.wait()) for e in (changed, self._draining)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        if self._draining.is_set():
            raise Draining("server: must be serving; got one that is shutting down")

    def ring(self) -> None:
        """Look now: the API process itself has stored an event."""
        self._rung.set()

    def drain(self) -> None:
        """Let all watchers go."""
        self._draining.set()

    # the bell to the runner, and from it

    def connect(self, bell: socket.socket) -> None:
        """Take the bell of a new runner."""
        self._hang_up()
        bell.setblocking(False)
        self._bell = bell
        asyncio.get_running_loop().add_reader(bell, self._hear)
        self.ring_runner()  # for what came while there was none

    def ring_runner(self) -> None:
        """Tell the runner to look for work. A full bell rings already; a dead one is replaced."""
        if self._bell is not None:
            with contextlib.suppress(OSError):
                self._bell.send(b"!")

    def _hear(self) -> None:
        assert self._bell is not None
        try:
            rings = self._bell.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            rings = b""
        if not rings:
            self._hang_up()
        self._rung.set()

    def _hang_up(self) -> None:
        if self._bell is not None:
            asyncio.get_running_loop().remove_reader(self._bell)
            self._bell.close()
            self._bell = None


def _log(stored: StoredEvent) -> None:
    """One line for a job's passing to another state. Its message may quote the user's data."""
    event = stored.event
    beside = {"attempt": event.attempt_outcome, "failure": event.failure_kind}
    log.info(
        "job_passed",
        job=stored.job_id,
        tenant=stored.tenant,
        kind=stored.kind,
        state=str(event.state),
        **{name: str(value) for name, value in beside.items() if value is not None},
    )
