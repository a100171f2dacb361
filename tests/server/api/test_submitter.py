"""Submits that meet are stored together, and each caller is told of his own."""

import asyncio

import pytest

from khot_server.api.submitter import MANY, Submitter
from khot_server.jobs.database import DatabaseUnavailable
from khot_server.jobs.records import Options, RequestIdReused
from khot_server.jobs.spec import FeatureSelectionSpec
from khot_server.jobs.store import JobStore
from khot_server.jobs.submission import Submission

SPEC, OTHER = (FeatureSelectionSpec(dataset="digits", k=k) for k in (10, 11))


class Watched(JobStore):
    """Keeps how many came at once; may fail."""

    sizes: list[int]
    broken = False

    def submit_many(self, asked):
        self.sizes.append(len(asked))
        if self.broken:
            raise DatabaseUnavailable("database: must be there; got none")
        return super().submit_many(asked)


@pytest.fixture
def store(tmp_path):
    made = Watched(tmp_path / "jobs.sqlite3")
    made.sizes = []
    yield made
    made.close()


def asked(number: int, spec: FeatureSelectionSpec = SPEC) -> Submission:
    return Submission("a", f"r{number}", spec, Options())


def test_one_is_stored_at_once_and_those_that_meet_together(store):
    async def main():
        submitter = Submitter(store)
        await submitter.submit(asked(0))
        return await asyncio.gather(*(submitter.submit(asked(i)) for i in range(1, MANY + 3)))

    made = asyncio.run(main())
    assert store.sizes == [1, MANY, 2]
    assert all(store.get("a", job.id) == job for job in made)
    assert len({job.id for job in made}) == MANY + 2


def test_each_is_told_of_his_own(store):
    async def main():
        submitter = Submitter(store)
        submits = [submitter.submit(each) for each in (asked(0), asked(0, OTHER), asked(0))]
        return await asyncio.gather(*submits, return_exceptions=True)

    first, other, again = asyncio.run(main())
    assert first == again and isinstance(other, RequestIdReused)


def test_a_caller_who_leaves_harms_nobody(store):
    async def main():
        submitter = Submitter(store)
        leaves = asyncio.create_task(submitter.submit(asked(0)))
        stays = asyncio.create_task(submitter.submit(asked(1)))
        await asyncio.sleep(0)
        leaves.cancel()
        return await stays, await submitter.submit(asked(2))

    stays, after = asyncio.run(main())
    assert store.get("a", stays.id) == stays and store.get("a", after.id) == after


def test_a_broken_database_is_told_to_all_and_may_mend(store):
    async def main():
        submitter, store.broken = Submitter(store), True
        submits = [submitter.submit(asked(number)) for number in range(2)]
        told = await asyncio.gather(*submits, return_exceptions=True)
        assert [type(error) for error in told] == [DatabaseUnavailable] * 2
        store.broken = False
        return await submitter.submit(asked(0))

    assert asyncio.run(main()).spec == SPEC
