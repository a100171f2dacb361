"""The tail: every event is counted and logged once in the life of a process."""

import asyncio
import contextlib

import pytest
import structlog
from stored import LEASE_S, told

from khot_server.api.event_tail import EventTail
from khot_server.jobs.spec import VaeSpec
from khot_server.jobs.states import FailureKind
from khot_server.jobs.store import JobStore
from khot_server.metrics import Metrics

SPEC = VaeSpec(dataset="digits")


@pytest.fixture
def store(tmp_path):
    made = JobStore(tmp_path / "jobs.sqlite3")
    yield made
    made.close()


class Life:
    """An API process, as far as its tail goes."""

    def __init__(self, store):
        self.metrics = Metrics(())
        self.tail = EventTail(store, self.metrics)

    async def __aenter__(self):
        self.task = asyncio.create_task(self.tail.run())
        return self

    async def __aexit__(self, *_):
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    async def until(self, name, wanted, **labels):
        """Ring until the series has this value."""
        async with asyncio.timeout(20):
            while self.value(name, **labels) != wanted:
                self.tail.ring()
                await asyncio.sleep(0.01)

    def value(self, name, **labels):
        return self.metrics.registry.get_sample_value(name, labels)


def test_a_new_life_counts_from_0_and_only_what_is_new(store):
    async def lives():
        store.submit("a", "r1", SPEC)
        async with Life(store) as first:
            store.submit("a", "r2", SPEC)
            await first.until("khot_jobs_submitted_total", 1, kind="vae")
            for _ in range(3):
                first.tail.ring()
                await asyncio.sleep(0.02)
            assert first.value("khot_jobs_submitted_total", kind="vae") == 1
        async with Life(store) as second:
            await second.until("khot_jobs", 2, state="QUEUED", kind="vae")
            assert second.value("khot_jobs_submitted_total", kind="vae") == 0
            store.submit("a", "r3", SPEC)
            await second.until("khot_jobs_submitted_total", 1, kind="vae")

    asyncio.run(lives())


def test_every_passing_of_a_job_is_one_line_of_the_log_without_its_message(store):
    async def life():
        async with Life(store) as here:
            store.submit("a", "r1", SPEC)
            token = store.leases.claim("runner", LEASE_S).token
            for step in (1, 2):
                store.leases.progress(token, *told(step, 2, {"loss": 1.0}, {}))
            store.leases.fail(token, FailureKind.USER_ERROR, "column: must not be; got 'secret'")
            await here.until("khot_jobs", 1, state="FAILED", kind="vae")

    with structlog.testing.capture_logs() as lines:
        asyncio.run(life())
    assert [line["state"] for line in lines] == ["QUEUED", "RUNNING", "FAILED"]
    (job,) = {line["job"] for line in lines}
    about = {"event": "job_passed", "log_level": "info", "tenant": "a", "kind": "vae", "job": job}
    assert all(about.items() <= line.items() for line in lines)
    assert (lines[2]["attempt"], lines[2]["failure"]) == ("FAILED", "USER_ERROR")
    assert "secret" not in str(lines)
