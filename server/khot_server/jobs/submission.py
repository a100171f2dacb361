"""Storing jobs that were asked for: many at once cost little more than one.

A transaction takes a millisecond or two, most of it whatever it holds. So what is asked for while
one is under way goes into the next one together, and each is still answered by itself.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias
from uuid import uuid4

from sqlalchemy import Connection, func, insert, select, tuple_

from khot_server.jobs.records import DatasetGone, Job, Options, RequestIdReused, TooManyJobs
from khot_server.jobs.rows import state_changed, to_job
from khot_server.jobs.schema import datasets, events, jobs, labels
from khot_server.jobs.spec import Spec, spec_to_json
from khot_server.jobs.states import ENDED, JobState

Refused: TypeAlias = RequestIdReused | TooManyJobs | DatasetGone


class Submission(NamedTuple):
    """A job that is asked for.

    Attributes:
        tenant: whose it will be.
        request_id: of the request; the same one asked for again is the same job.
        dataset_id: of the uploaded data set that it needs, if it needs one.
    """

    tenant: str
    request_id: str
    spec: Spec
    options: Options
    dataset_id: str | None = None


def submit(
    connection: Connection,
    asked: Sequence[Submission],
    now: float,
    max_tenant_jobs: int,
    group_id: str | None = None,
) -> list[Job | Refused]:
    """Store each as a job, QUEUED: return it, or the one that its request made before, or why not.

    The transaction must be one that writes: what is looked up here is then still so at its end.
    """
    known = _known(connection, asked)
    live, there = _live(connection, asked), _there(connection, asked)
    new: dict[tuple[str, str], dict[str, object]] = {}
    refused: dict[int, Refused] = {}
    for place, one in enumerate(asked):
        key = one.tenant, one.request_id
        if key in known or key in new:
            continue
        if one.dataset_id is not None and one.dataset_id not in there:
            must = f"dataset: must be there; got {one.spec.dataset!r}, which was deleted"
            refused[place] = DatasetGone(must)
        elif (count := live[one.tenant] + 1) > max_tenant_jobs:
            most = f"{one.tenant!r} may have at most {max_tenant_jobs} without an end"
            refused[place] = TooManyJobs(f"jobs: {most}; got {count}")
        else:
            live[one.tenant], new[key] = count, _row(one, now, group_id)
    known |= _insert(connection, asked, new, now)
    return [refused.get(place) or _answer(one, known) for place, one in enumerate(asked)]


def reused(request_id: str) -> RequestIdReused:
    must = "must be new, or come with the request it came with before"
    return RequestIdReused(f"request_id: {must}; got {request_id!r} with another spec or options")


def _answer(one: Submission, known: dict[tuple[str, str], Job]) -> Job | Refused:
    job = known[one.tenant, one.request_id]
    return job if (job.spec, job.options) == (one.spec, one.options) else reused(one.request_id)


def _known(connection: Connection, asked: Sequence[Submission]) -> dict[tuple[str, str], Job]:
    """The jobs that these requests made before."""
    pairs = tuple_(jobs.c.tenant, jobs.c.request_id)
    query = select(jobs).where(pairs.in_([(one.tenant, one.request_id) for one in asked]))
    found = connection.execute(query).all()
    if not found:
        return {}
    named: dict[str, dict[str, str]] = {row.id: {} for row in found}
    for label in connection.execute(select(labels).where(labels.c.job_id.in_(named))):
        named[label.job_id][label.key] = label.value
    return {(row.tenant, row.request_id): to_job(row, named[row.id]) for row in found}


def _live(connection: Connection, asked: Sequence[Submission]) -> Counter[str]:
    """How many jobs without an end each tenant has."""
    theirs = jobs.c.tenant.in_({one.tenant for one in asked}) & jobs.c.state.not_in(ENDED)
    query = select(jobs.c.tenant, func.count().label("live")).where(theirs).group_by(jobs.c.tenant)
    return Counter({row.tenant: row.live for row in connection.execute(query)})


def _there(connection: Connection, asked: Sequence[Submission]) -> set[str]:
    """Which of the data sets have not been deleted."""
    needed = {one.dataset_id for one in asked if one.dataset_id is not None}
    if not needed:
        return set()
    return set(connection.execute(select(datasets.c.id).where(datasets.c.id.in_(needed))).scalars())


def _row(one: Submission, now: float, group_id: str | None) -> dict[str, object]:
    return {
        "id": uuid4().hex,
        "tenant": one.tenant,
        "request_id": one.request_id,
        "spec": spec_to_json(one.spec),
        "kind": one.spec.kind,
        "dataset_id": one.dataset_id,
        "group_id": group_id,
        "priority": one.options.priority,
        "max_run_s": one.options.max_run_s,
        "run_s": 0.0,
        "state": JobState.QUEUED,
        "failure_message": "",
        "attempts": 0,
        "lost_attempts": 0,
        "blame": 0,
        "last_sequence": 1,
        "not_before": 0.0,
        "create_time": now,
        "update_time": now,
    }


def _insert(
    connection: Connection,
    asked: Sequence[Submission],
    new: dict[tuple[str, str], dict[str, object]],
    now: float,
) -> dict[tuple[str, str], Job]:
    """Write the rows, the labels and the first event of each new job."""
    if not new:
        return {}
    options = {(one.tenant, one.request_id): one.options for one in reversed(asked)}
    rows = connection.execute(insert(jobs).returning(*jobs.c), list(new.values())).all()
    named = [
        {"job_id": row["id"], "key": key, "value": value}
        for request, row in new.items()
        for key, value in options[request].labels.items()
    ]
    if named:
        connection.execute(insert(labels), named)
    first = {"sequence": 1, "time": now, **state_changed(JobState.QUEUED, "")}
    connection.execute(insert(events), [{"job_id": row["id"], **first} for row in new.values()])
    requests = [(row.tenant, row.request_id) for row in rows]
    return {
        request: to_job(row, options[request].labels)
        for request, row in zip(requests, rows, strict=True)
    }
