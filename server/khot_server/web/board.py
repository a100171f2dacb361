"""What the page shows: figures of the registry, and a tenant's jobs from the store.

All reads are bounded: some jobs of each sort, and of a running one the last steps.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry

from khot_server.datasets.records import DatasetNotFound
from khot_server.datasets.store import DatasetStore
from khot_server.jobs.artifacts import words
from khot_server.jobs.records import Job, JobNotFound
from khot_server.jobs.results import VaeResult
from khot_server.jobs.states import JobState
from khot_server.jobs.store import JobStore
from khot_server.web.sparkline import Sparkline, sparkline

MOST_RUNNING, MOST_WAITING, MOST_RESULTS, MOST_FAILURES = 12, 8, 6, 6
LOSS_STEPS = 5000  # of which the line is drawn
MOST_NAMES = 5  # of chosen columns
REMEMBERED = 256  # results, and names of data sets
REPORT, CURVES = "report.html", "curves.png"
PNG = "image/png"
RUNNING = (JobState.RUNNING, JobState.PAUSING, JobState.CANCELLING)
WAITING = (JobState.QUEUED, JobState.PAUSED)
FAILED = (JobState.FAILED, JobState.CANCELLED)

T = TypeVar("T")


class Figures:
    """What the registry says at one moment."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._samples = [sample for family in registry.collect() for sample in family.samples]

    def total(self, name: str, **labels: str) -> float | None:
        """Return the sum of the series of that name and these labels; None if there is none."""
        fitting = [
            sample.value
            for sample in self._samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return sum(fitting) if fitting else None

    def names(self, name: str, label: str) -> list[str]:
        """Return the values of a label under which the series of that name are not 0."""
        return sorted({s.labels[label] for s in self._samples if s.name == name and s.value})


@dataclass(frozen=True)
class Course:
    """How a running job goes.

    Attributes:
        done: the share of its steps.
        left_s: how long the rest may take; 0 if that is not known.
        loss: the last that was told, if it was a number.
        line: of the loss, if there is enough of it.
    """

    done: float
    epoch: int
    stage: str
    left_s: float
    loss: float | None
    line: Sparkline | None


@dataclass(frozen=True)
class Listed:
    """A job, and what its data set is called."""

    job: Job
    dataset: str


@dataclass(frozen=True)
class Running(Listed):
    """A job that runs; its course is None until something was told of it."""

    course: Course | None


@dataclass(frozen=True)
class Finding:
    """What came of a job.

    Attributes:
        chosen: how many of how many columns; empty where none were to be chosen.
        names: of the first of them.
        measures: on the test rows, each a name and a number as text.
    """

    chosen: str
    names: tuple[str, ...]
    measures: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Ended(Listed):
    """A job with a result.

    Attributes:
        pictures: the names of those files, the one that tells most first.
        report: the name of that file; empty if it is gone.
    """

    finding: Finding
    pictures: tuple[str, ...]
    report: str


@dataclass(frozen=True)
class Some(Generic[T]):
    """The latest, and whether there are more."""

    shown: Sequence[T]
    more: bool


@dataclass(frozen=True)
class Jobs:
    """The jobs of a tenant."""

    running: Some[Running]
    waiting: Some[Listed]
    results: Some[Ended]
    failures: Some[Listed]


class Board:
    """Reads the jobs of tenants; from any thread."""

    def __init__(self, store: JobStore, datasets: DatasetStore) -> None:
        self._store, self._datasets = store, datasets
        # Neither ever changes, and those of a wide table take long to read.
        self._finding = lru_cache(REMEMBERED)(self._read_finding)
        self._dataset = lru_cache(REMEMBERED)(self._read_dataset)

    def jobs(self, tenant: str) -> Jobs:
        """Return the latest jobs of each sort. What is deleted meanwhile is left out."""
        return Jobs(
            self._some(tenant, RUNNING, MOST_RUNNING, self._running),
            self._some(tenant, WAITING, MOST_WAITING, Listed),
            self._some(tenant, (JobState.SUCCEEDED,), MOST_RESULTS, self._ended),
            self._some(tenant, FAILED, MOST_FAILURES, Listed),
        )

    def _some(
        self,
        tenant: str,
        states: Sequence[JobState],
        limit: int,
        make: Callable[[Job, str], T],
    ) -> Some[T]:
        """What `make` makes of the latest jobs in these states, and of their data sets."""
        found, before = self._store.page(tenant, states=states, limit=limit)
        shown = []
        for job in found:
            with suppress(JobNotFound):
                shown.append(make(job, self._dataset(tenant, job.spec.dataset)))
        return Some(shown, before is not None)

    def _running(self, job: Job, dataset: str) -> Running:
        return Running(job, dataset, self._course(job))

    def _course(self, job: Job) -> Course | None:
        now = job.progress
        if now is None:
            return None
        # `loss` of the first stage, `random.loss` of one called random
        name = next((name for name in now.metrics if name.rpartition(".")[2] == "loss"), "loss")
        told = self._store.series(job.tenant, job.id, [name], max(-1, now.step - LOSS_STEPS))
        losses = [loss for _, loss in told.get(name, ()) if loss is not None and isfinite(loss)]
        return Course(
            done=now.step / now.total_steps if now.total_steps else 0.0,
            epoch=now.epoch,
            stage=now.stage,
            left_s=now.remaining_s,
            loss=losses[-1] if losses else None,
            line=sparkline(losses),
        )

    def _ended(self, job: Job, dataset: str) -> Ended:
        finding = self._finding(job.tenant, job.id)
        files = self._store.artifacts(job.tenant, job.id)
        pictures = sorted(
            (file.name for file in files if file.media_type == PNG), key=lambda name: name == CURVES
        )
        report = REPORT if any(file.name == REPORT for file in files) else ""
        return Ended(job, dataset, finding, tuple(pictures), report)

    def _read_finding(self, tenant: str, job_id: str) -> Finding:
        result = self._store.get(tenant, job_id).result
        if result is None:  # deleted, and the id is of a job that has none
            raise JobNotFound(f"job_id: must be a job with a result; got {job_id!r}")
        measures = tuple(
            (words.NAMES.get(name, name), words.number(value, 3))
            for name, value in sorted(result.test.items(), key=lambda item: _place(item[0]))
        )
        if isinstance(result, VaeResult):
            return Finding("", (), measures)
        chosen = f"{len(result.features)} of {len(result.scores)} columns"
        return Finding(chosen, result.names[:MOST_NAMES], measures)

    def _read_dataset(self, tenant: str, name_or_id: str) -> str:
        try:
            return self._datasets.get(tenant, name_or_id).name
        except DatasetNotFound:  # built in, or deleted
            return name_or_id


def _place(measure: str) -> int:
    """Those first by which a report tells a result."""
    return words.MAIN.index(measure) if measure in words.MAIN else len(words.MAIN)
