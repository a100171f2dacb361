"""How jobs go, what they leave, and groups of them: frozen data, with a repr to read."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from khot_client.specs import Result, Spec
from khot_client.values import Shown, show


class JobState(StrEnum):
    """Where a job is in its life; the table of transitions is in server/README.md."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    PAUSING = "PAUSING"
    PAUSED = "PAUSED"
    CANCELLING = "CANCELLING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to the job by itself."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


class FailureKind(StrEnum):
    """Why a job failed."""

    USER_ERROR = "USER_ERROR"
    DIVERGED = "DIVERGED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    WORKER_LOST = "WORKER_LOST"
    DEADLINE = "DEADLINE"
    STORAGE = "STORAGE"
    INTERNAL = "INTERNAL"


@dataclass(frozen=True, repr=False)
class Failure(Shown):
    """Why a job has no result, and the same in words."""

    kind: FailureKind
    message: str


@dataclass(frozen=True, repr=False)
class StateChanged(Shown):
    """A job came into this state; the message says why, if there is more to say."""

    sequence: int
    time: datetime
    state: JobState
    message: str


@dataclass(frozen=True, repr=False)
class Progress(Shown):
    """An attempt came this far.

    Attributes:
        sequence: of the event; 0 in a JobStatus.
        time: of the event, or of the last change of the job in a JobStatus.
        step: of `total_steps`.
        metrics: measurements such as `loss`, by name.
        epoch: from 1.
        stage: what is being trained.
        steps_per_s: lately.
        remaining_s: how long it may take still, at that rate.
    """

    sequence: int
    time: datetime
    step: int
    total_steps: int
    metrics: Mapping[str, float]
    epoch: int = 0
    stage: str = ""
    steps_per_s: float = 0.0
    remaining_s: float = 0.0


Event = StateChanged | Progress


@dataclass(frozen=True, repr=False, eq=False)
class JobStatus(Shown):
    """A job as it was when the server answered.

    Attributes:
        attempts: how many were begun.
        failure: why it has no result, if it failed.
        result: once it has succeeded; not in lists of jobs.
        labels: the user's words about it.
        priority: among the jobs of its tenant.
        max_run_s: how long its attempts may run in all; None: as long as it takes.
        group: of which it is; empty: of none.
        progress: how far it is; None before the first step.
    """

    id: str
    spec: Spec
    state: JobState
    attempts: int
    create_time: datetime
    update_time: datetime
    failure: Failure | None
    result: Result | None
    labels: Mapping[str, str]
    priority: int
    max_run_s: float | None
    group: str
    progress: Progress | None


@dataclass(frozen=True, repr=False)
class Attempt(Shown):
    """One attempt at a job.

    Attributes:
        number: from 1.
        runner: host and process.
        outcome: SUCCEEDED, FAILED, STOPPED or LOST; empty while it runs.
        message: the outcome in words.
        start_time: when it was claimed.
        end_time: None while it runs.
        first_step: the step it went on from.
        last_step: the last one it has told of.
    """

    number: int
    runner: str
    outcome: str
    message: str
    start_time: datetime
    end_time: datetime | None
    first_step: int
    last_step: int


class Series(NamedTuple):
    """A measurement over the steps of a job: `steps` ascending, and a value for each."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]

    def __repr__(self) -> str:
        return f"Series(steps={show(self.steps)}, values={show(self.values)})"


@dataclass(frozen=True, repr=False)
class Artifact(Shown):
    """A file that a job left."""

    name: str
    size_bytes: int
    sha256: str
    media_type: str


@dataclass(frozen=True, repr=False)
class Spread(Shown):
    """Where the values of several jobs lie.

    Attributes:
        deviation: of a sample; 0 for one job.
        best: the greatest accuracy, r2 or elbo, the least of others.
        best_job: the id of the job that has it.
    """

    mean: float
    deviation: float
    best: float
    best_job: str


@dataclass(frozen=True, repr=False)
class GroupRow(Shown):
    """The jobs of a group that differ in their seeds alone.

    Attributes:
        values: of the grid's fields.
        jobs: how many there are.
        succeeded: how many have, over which the rest is taken.
        test: measurements on the test rows.
        agreement: mean Jaccard similarity of what the seeds chose, if at least two have.
    """

    values: Mapping[str, Any]
    jobs: int
    succeeded: int
    test: Mapping[str, Spread]
    agreement: float | None


@dataclass(frozen=True, repr=False, eq=False)
class GroupStatus(Shown):
    """A group as it was when the server answered.

    Attributes:
        jobs: in the order of the grid, seeds last, without their results.
        states: how many jobs are in which.
        rows: a row for each combination of the grid, over its seeds.
    """

    id: str
    jobs: tuple[JobStatus, ...]
    states: Mapping[JobState, int]
    rows: tuple[GroupRow, ...]
    create_time: datetime

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to any of its jobs by itself."""
        return all(state.ended for state, count in self.states.items() if count)
