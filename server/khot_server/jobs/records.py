"""What the store hands out: jobs, events, attempts and claims, as frozen data; and its errors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from khot_server.jobs.results import Result
from khot_server.jobs.spec import Spec
from khot_server.jobs.states import FailureKind, JobState


class JobNotFound(LookupError):
    """This tenant has no job, group or data set of that id."""


class TooManyJobs(Exception):
    """The tenant has as many jobs without an end as it may have."""


class DatasetGone(LookupError):
    """The data set was deleted while the job was submitted."""


class RequestIdReused(ValueError):
    """This tenant gave the request id to another request before."""


class LeaseLost(Exception):
    """The token does not hold a job any more: whoever has it must stop working."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a job is run; no part of what it computes.

    Attributes:
        labels: to find it by.
        priority: among the jobs of a tenant the greater ones go first.
        max_run_s: how long its attempts may run in all; None: as long as it takes.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    max_run_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far an attempt is.

    Attributes:
        metrics: measured at this step.
        epoch: from 1.
        stage: what is being trained.
        steps_per_s: lately.
        remaining_s: how long it may take still, at that rate.
    """

    step: int
    total_steps: int
    metrics: Mapping[str, float]
    epoch: int = 0
    stage: str = ""
    steps_per_s: float = 0.0
    remaining_s: float = 0.0


@dataclass(frozen=True)
class Job:
    """A job, as it was when it was read."""

    id: str
    tenant: str
    spec: Spec
    options: Options
    group_id: str | None
    state: JobState
    failure_kind: FailureKind | None
    failure_message: str
    attempts: int
    create_time: datetime
    update_time: datetime
    progress: Progress | None
    result: Result | None


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What an attempt did since the event before, for the metrics.

    Attributes:
        operator: the estimator, whose roots these are.
        iterations: root-finding iterations, as {iterations: rows}.
        residuals: of these roots, as {power: rows}: at most 10**power, and above the power before.
        fallback_rows: of these, how many needed bisection.
        nonconverged_rows: of how many the root was not found.
        epochs: that have ended.
        rows: examples trained on.
        checkpoints_s: how long each took to write.
    """

    operator: str = ""
    iterations: Mapping[int, int] = field(default_factory=dict)
    residuals: Mapping[int, int] = field(default_factory=dict)
    fallback_rows: int = 0
    nonconverged_rows: int = 0
    epochs: int = 0
    rows: int = 0
    checkpoints_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class Event:
    """Something that happened to a job.

    Attributes:
        sequence: ascending within the job, from 1, without gaps.
        kind: `state` has `state` and `message`; `progress` has `progress`.
        counted: since the event before.
        failure_kind: if the job has failed by this.
        attempt_outcome: as in `AttemptRecord`, if an attempt has ended by this.
    """

    sequence: int
    time: datetime
    kind: Literal["state", "progress"]
    state: JobState | None
    message: str
    progress: Progress | None
    counted: Counted
    failure_kind: FailureKind | None = None
    attempt_outcome: str | None = None


@dataclass(frozen=True)
class StoredEvent:
    """An event with its place among the events of all jobs, and what its job is."""

    id: int
    job_id: str
    tenant: str
    kind: str
    create_time: datetime
    event: Event


@dataclass(frozen=True)
class Census:
    """Which jobs there are.

    Attributes:
        jobs: how many of a state and kind; none where there are none.
        running: the kinds of those that a runner holds, by their ids.
    """

    jobs: Mapping[tuple[JobState, str], int]
    running: Mapping[str, str]


@dataclass(frozen=True)
class AttemptRecord:
    """One attempt at a job.

    Attributes:
        outcome: SUCCEEDED, FAILED, STOPPED or LOST; None while it runs.
        first_step: where it went on from.
        last_step: the last it has told of.
    """

    number: int
    runner: str
    outcome: str | None
    message: str
    start_time: datetime
    end_time: datetime | None
    first_step: int
    last_step: int


@dataclass(frozen=True)
class Point:
    """Measurements at one step of a job."""

    step: int
    epoch: int
    stage: str
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Artifact:
    """A file that a job left."""

    name: str
    size_bytes: int
    sha256: str
    media_type: str


@dataclass(frozen=True)
class Group:
    """Jobs that were submitted together, in the order of the grid, seeds last.

    Attributes:
        axes: the fields of the spec that vary, beside the seed.
    """

    id: str
    create_time: datetime
    axes: tuple[str, ...]
    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Claim:
    """A job that a runner holds, as long as it keeps the lease of `token` alive.

    Attributes:
        attempt: its number, from 1.
        checkpoint: where to go on from, as given to `Leases.checkpointed`; None: at the start.
        remaining_s: how long it may run still; None: as long as it takes.
    """

    job_id: str
    tenant: str
    attempt: int
    token: str
    spec: Spec
    checkpoint: str | None
    remaining_s: float | None
