"""Runs -> jobs -> rows: submit what is not there yet, wait, and write down what came of it."""

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Protocol

from khot_client.client import Client
from khot_client.errors import DeadlineExceeded, KhotError, NotFound, Unavailable
from khot_client.job_values import JobState, JobStatus, Progress
from khot_client.jobs import Job
from khot_client.reproduce.experiments import Measure
from khot_client.reproduce.ledger import Ledger
from khot_client.reproduce.runs import Run, digest, in_groups

PERIOD_S = 1.0
RECONNECT_S = 120.0  # how long a server may be away
LABEL, SETTINGS = "reproduce", "settings"
UNFINISHED = tuple(state for state in JobState if not state.ended)


@dataclass(frozen=True)
class Failure:
    """A run without a result, and why."""

    run: Run
    message: str


class Audience(Protocol):
    """Who is told how it goes."""

    def began(self, waiting: int, picked_up: int) -> None:
        """So many runs are at the server, of which so many were there before."""

    def running(self, runs: Mapping[Run, Progress | None]) -> None:
        """These run now, and are so far."""

    def ended(self, run: Run, row: Mapping[str, str]) -> None:
        """A run has its row."""

    def failed(self, failure: Failure) -> None:
        """A run has none, and gets none."""


@dataclass(frozen=True)
class Driver:
    """What it takes to carry out the runs of an experiment.

    Attributes:
        label: the experiment, as its jobs and rows have it.
        measure: the columns of a row that are the experiment's own.
        commit: of the code, if it is known.
        alone: whether the server has no other work: what is not asked for now waits.
        check: raises if the server cannot come back.
        uploads: the ids of data sets that were sent to the server, by the names that runs have.
    """

    client: Client
    label: str
    ledger: Ledger
    measure: Measure
    audience: Audience
    commit: str = ""
    alone: bool = False
    check: Callable[[], None] = lambda: None
    uploads: Mapping[str, str] = field(default_factory=dict)

    def carry_out(self, runs: Sequence[Run]) -> list[Failure]:
        """Have a row for each of the runs; return those that failed.

        Raises:
            KhotError: the server refuses, or was lost for too long.
        """
        failures: list[Failure] = []
        open_runs = self._at_the_server(self.ledger.missing(runs))
        lost_since: float | None = None
        for turn in count():
            if turn:
                time.sleep(PERIOD_S)
            if not open_runs:
                return failures
            try:
                self._turn(open_runs, failures)
                lost_since = None
            except (Unavailable, DeadlineExceeded):
                self.check()
                now = time.monotonic()
                lost_since = lost_since or now
                if now - lost_since > RECONNECT_S:
                    raise
        raise AssertionError("count() has no end")

    def _at_the_server(self, runs: Sequence[Run]) -> dict[str, Run]:
        """The runs by their job, once each has one: its own of another time, or a new one."""
        wanted = {(run.common, run.seed): run for run in runs}
        found: dict[str, Run] = {}
        for status in self.client.jobs(labels={LABEL: self.label}):
            job = self.client.job(status.id)
            run = wanted.pop((status.labels.get(SETTINGS, ""), status.spec.seed or 0), None)
            if run is not None:
                found[status.id] = run
                self._wake(job, status)
            elif self.alone and status.state in (JobState.QUEUED, JobState.RUNNING):
                with suppress(KhotError):  # it may just have ended
                    job.pause()
        picked_up = len(found)
        for group in in_groups(run for run in runs if (run.common, run.seed) in wanted):
            found |= self._submit(group)
        self.audience.began(len(found), picked_up)
        return found

    @staticmethod
    def _wake(job: Job, status: JobStatus) -> None:
        """Have a job go on that would not by itself."""
        if status.state is JobState.PAUSED:
            job.resume()
        elif status.state in (JobState.FAILED, JobState.CANCELLED):
            job.retry()

    def _submit(self, group: Sequence[Run]) -> dict[str, Run]:
        by_seed = {run.seed: run for run in group}
        labels = {LABEL: self.label, SETTINGS: group[0].common, "method": group[0].method}
        # the same runs make the same request: should its answer be lost, it makes no other jobs
        request_id = f"reproduce-{digest(self.label, *(run.settings for run in group))}"
        spec = group[0].spec
        there = replace(spec, dataset=self.uploads.get(spec.dataset, spec.dataset))
        made = self.client.submit_group(
            there, seeds=list(by_seed), labels=labels, request_id=request_id
        )
        return {job.id: by_seed[job.spec.seed or 0] for job in made.status().jobs}

    def _turn(self, open_runs: dict[str, Run], failures: list[Failure]) -> None:
        """Collect what has ended, and tell of the rest."""
        listed = self.client.jobs(labels={LABEL: self.label}, states=UNFINISHED)
        unfinished = {status.id: status for status in listed if status.id in open_runs}
        for job_id in [job_id for job_id in open_runs if job_id not in unfinished]:
            job = self.client.job(job_id)
            status = job.status()
            if not status.state.ended:
                continue
            run = open_runs[job_id]
            if status.result is None:
                why = status.failure.message if status.failure else "it was cancelled"
                failures.append(Failure(run, f"job {job_id}: {why}"))
                self.audience.failed(failures[-1])
            else:
                self.audience.ended(run, self.ledger.add(self._row(run, job, status)))
            del open_runs[job_id]
        self.audience.running(
            {
                open_runs[status.id]: status.progress
                for status in unfinished.values()
                if status.state is JobState.RUNNING
            }
        )

    def _row(self, run: Run, job: Job, status: JobStatus) -> dict[str, object]:
        assert status.result is not None
        attempts = job.attempts()
        spans = (a.end_time - a.start_time for a in attempts if a.end_time is not None)
        made = _provenance(job)
        return {
            "experiment": self.label,
            "dataset": run.dataset,
            "method": run.method,
            "seed": run.seed,
            **self.measure(status.result, job),
            "epochs_run": status.result.epochs_run,
            "seconds": round(sum(span.total_seconds() for span in spans), 1),
            "settings": run.settings,
            "khot": made.get("khot"),
            "torch": made.get("torch"),
            "commit": self.commit,
            "started": f"{attempts[0].start_time:%Y-%m-%dT%H:%M:%SZ}" if attempts else "",
        }


def _provenance(job: Job) -> Mapping[str, str]:
    """What the job itself says it was made with: the server may be of another version than we."""
    with tempfile.TemporaryDirectory(prefix="khot-") as folder:
        try:
            (path,) = job.download(folder, "result.json")
        except NotFound:  # its files went, to make room for those of others
            return {}
        found: Mapping[str, str] = json.loads(Path(path).read_text()).get("provenance", {})
    return found
