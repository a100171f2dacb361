"""Submits of many callers, stored together.

What comes while a transaction is under way waits for the next one, with all others that came.
Nobody waits for company: a submit that is alone is stored alone, at once.
"""

import asyncio

from khot_server.jobs.records import Job
from khot_server.jobs.store import JobStore
from khot_server.jobs.submission import Refused, Submission

MANY = 64  # in one transaction; more would keep other writers waiting


class Submitter:
    """Stores jobs. For one event loop."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._waiting: list[tuple[Submission, asyncio.Future[Job | Refused]]] = []
        self._storing: asyncio.Task[None] | None = None

    async def submit(self, asked: Submission) -> Job:
        """Return the job once it is durable; as `JobStore.submit`, and raising what it would."""
        told: asyncio.Future[Job | Refused] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, told))
        if self._storing is None or self._storing.done():
            self._storing = asyncio.create_task(self._store_all())
        made = await told
        if isinstance(made, Exception):
            raise made
        return made

    async def _store_all(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting[:MANY], self._waiting[MANY:]
            asked = [one for one, _ in taken]
            try:
                made = await asyncio.to_thread(self._store.submit_many, asked)
            except Exception as error:  # of the database, so nobody's is stored
                for _, told in taken:
                    if not told.done():
                        told.set_exception(error)
                continue
            for (_, told), one in zip(taken, made, strict=True):
                if not told.done():  # else its caller is gone
                    told.set_result(one)
