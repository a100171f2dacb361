"""What the store hands out: jobs, events and claims, as frozen data; and its errors."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from khot_server.jobs.spec import Result, Spec
from khot_server.jobs.states import FailureKind, JobState


class JobNotFound(LookupError):
    """This tenant has no job of that id."""


class TooManyJobs(Exception):
    """The tenant has as many jobs without an end as it may have."""


class RequestIdReused(ValueError):
    """This tenant gave the request id to another specification before."""


class LeaseLost(Exception):
    """The token does not hold a job any more: whoever has it must stop working."""


@dataclass(frozen=True)
class Job:
    """A job, as it was when it was read."""

    id: str
    tenant: str
    spec: Spec
    state: JobState
    failure_kind: FailureKind | None
    failure_message: str
    attempts: int
    create_time: datetime
    update_time: datetime
    result: Result | None


@dataclass(frozen=True)
class Event:
    """Something that happened to a job.

    Attributes:
        sequence: ascending within the job, from 1, without gaps.
        kind: `state` has `state` and `message`; `progress` has the four after them.
        iterations: root-finding iterations since the event before, as {iterations: solves}.
    """

    sequence: int
    time: datetime
    kind: Literal["state", "progress"]
    state: JobState | None
    message: str
    step: int
    total_steps: int
    metrics: Mapping[str, float]
    iterations: Mapping[int, int]


@dataclass(frozen=True)
class StoredEvent:
    """An event with its place among the events of all jobs."""

    id: int
    job_id: str
    event: Event


@dataclass(frozen=True)
class Claim:
    """A job that a runner holds, as long as it keeps the lease of `token` alive.

    Attributes:
        attempt: its number, from 1.
        checkpoint: where to go on from, as given to `JobStore.checkpointed`; None: at the start.
    """

    job_id: str
    tenant: str
    attempt: int
    token: str
    spec: Spec
    checkpoint: str | None
