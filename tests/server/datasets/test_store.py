"""Data sets: found, listed in pages, and deleted when nothing needs them."""

import pytest
from sqlalchemy import select, update

from khot_server.datasets import builtin
from khot_server.datasets.limits import Limits
from khot_server.datasets.read_csv import read_csv
from khot_server.datasets.records import BadPageToken, DatasetInUse, DatasetNotFound, UploadNotFound
from khot_server.datasets.table import load
from khot_server.jobs.schema import jobs
from khot_server.jobs.spec import FeatureSelectionSpec
from khot_server.jobs.states import ENDED, JobState
from khot_server.jobs.store import JobStore

CSV = b"a,b,label\n" + b"".join(b"%d,%d,%d\n" % (i, i * i, i % 2) for i in range(20))


@pytest.fixture
def add(store, header):
    """Upload a data set."""

    def run(upload_id: str = "u", tenant: str = "t") -> str:
        told = header(CSV, name=upload_id)
        sending = store.uploads.begin(tenant, upload_id, told, 0)
        sending.file.append(CSV, told)
        summary = read_csv(sending.file.path, sending.table, told.sha256, Limits())
        store.uploads.complete(sending, summary)
        store.uploads.release(sending)
        return sending.dataset_id

    return run


def test_a_data_set_is_found_by_its_id_and_its_tenant_alone(store, add, tmp_path):
    made = add()
    assert store.get("t", made) == store.resolve("t", made)
    assert store.resolve("t", made).row_id == made
    assert len(store.get("t", made).summary.columns) == 3
    assert load(made, tmp_path, None).numbers("b")[:4].tolist() == [0, 1, 4, 9]
    for tenant, name in (("another", made), ("t", "0" * 32), ("t", "mine.csv"), ("t", "")):
        with pytest.raises(
            DatasetNotFound, match=f"must be a data set of '{tenant}', or one of dig"
        ):
            store.resolve(tenant, name)


@pytest.mark.parametrize("name", builtin.NAMES)
def test_what_is_built_in_is_everybodys(store, name):
    found = store.resolve("anybody", name)
    assert (found.id, found.name, found.row_id) == (name, name, None)


def pages(store, limit: int, tenant: str = "t") -> list[list[str]]:
    found, token = [], ""
    while True:
        page, token = store.page(tenant, limit, token)
        assert all(not dataset.summary.columns for dataset in page)
        found.append([dataset.id for dataset in page])
        if not token:
            return found


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 100])
def test_pages_hold_each_once_the_latest_first_and_the_built_in_last(store, add, clock, limit):
    made = []
    for number in range(4):
        clock.now += 0.1 * (number % 2)  # two of each moment
        made.append(add(f"u{number}"))
    add("other", tenant="another")
    listed = pages(store, limit)
    assert all(len(page) == limit for page in listed[:-1]) and 0 < len(listed[-1]) <= limit
    flat = [one for page in listed for one in page]
    assert sorted(flat[:4]) == sorted(made) and flat[4:] == list(builtin.NAMES)
    times = [store.get("t", one).create_time for one in flat[:4]]
    assert times == sorted(times, reverse=True)


def test_a_data_set_deleted_between_two_pages_does_not_disturb_them(store, add, clock):
    made = []
    for number in range(3):
        clock.now += 1
        made.append(add(f"u{number}"))
    page, token = store.page("t", 1)
    store.delete("t", page[0].id)
    assert [dataset.id for dataset in store.page("t", 2, token)[0]] == made[1::-1]


@pytest.mark.parametrize("token", ["x", ":", "0x1p+9999999:a", "iris"])
def test_a_token_of_no_page_is_refused(store, token):
    with pytest.raises(BadPageToken, match="page_token: must be one of the page before; got"):
        store.page("t", 5, token)


@pytest.fixture
def job_store(tmp_path):
    made = JobStore(tmp_path / "jobs.sqlite3")
    yield made
    made.close()


def job(job_store, dataset_id: str, state: JobState) -> str:
    spec = FeatureSelectionSpec(dataset=dataset_id, k=1)
    made = job_store.submit("t", f"{dataset_id} {state}", spec, dataset_id=dataset_id)
    with job_store.database.writing() as connection:
        connection.execute(update(jobs).where(jobs.c.id == made.id).values(state=state))
    return made.id


@pytest.mark.parametrize("state", sorted(set(JobState) - ENDED))
def test_a_data_set_that_a_job_needs_is_not_deleted(store, add, job_store, state, tmp_path):
    made = add()
    job(job_store, made, state)
    job(job_store, made, JobState.SUCCEEDED)
    with pytest.raises(DatasetInUse, match="by a job that has not ended; got 1 of them"):
        store.delete("t", made)
    assert load(made, tmp_path, None).summary.rows == 20
    with store._database.reading() as connection:
        assert connection.execute(select(jobs.c.dataset_id)).scalars().all() == [made, made]


def test_a_data_set_that_no_job_needs_is_deleted_and_the_jobs_stay(
    store, add, job_store, tmp_path, header
):
    made, other = add(), add("v")
    ended = [job(job_store, made, state) for state in sorted(ENDED)]
    running = job(job_store, other, JobState.RUNNING)
    store.delete("t", made)
    with pytest.raises(DatasetNotFound, match="got"):
        store.get("t", made)
    with pytest.raises(DatasetNotFound, match="got"):
        load(made, tmp_path, None)
    with pytest.raises(UploadNotFound, match="got 'u'"):
        store.uploads.get("t", "u")
    with store._database.reading() as connection:
        found = dict(connection.execute(select(jobs.c.id, jobs.c.dataset_id)).all())
    assert found == {**dict.fromkeys(ended), running: other}
    assert [path.name for path in (tmp_path / "datasets").iterdir()] == [other]
    assert add() != made, "and its upload may be sent again"


@pytest.mark.parametrize("name", ["digits", "0" * 32])
def test_what_is_not_the_tenants_is_not_deleted(store, add, name):
    made = add()
    for tenant, dataset_id in (("t", name), ("another", made)):
        with pytest.raises(DatasetNotFound, match="must be a data set of"):
            store.delete(tenant, dataset_id)
    assert store.get("t", made)
