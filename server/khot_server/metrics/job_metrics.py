"""What the events of jobs tell, counted."""

import time
from itertools import product

from khot_server.jobs.records import Census, StoredEvent
from khot_server.jobs.spec import KINDS
from khot_server.jobs.states import AFTER_STOP, ENDED, FailureKind, JobState
from khot_server.metrics.definitions import ATTEMPT_OUTCOMES
from khot_server.metrics.instruments import Instruments, Labels
from khot_server.metrics.root_metrics import RootMetrics

OUTCOMES = ("succeeded", "cancelled", *(kind.lower() for kind in FailureKind))


class JobMetrics:
    """Counts events. What is by job is of those that run, and goes when one no longer does.

    Args:
        instruments: makes them.
        roots: to be told of those that attempts have found.
    """

    def __init__(self, instruments: Instruments, roots: RootMetrics) -> None:
        kinds, of = [(kind,) for kind in KINDS], instruments
        self._roots = roots
        self._now = of.tally("jobs", product(JobState, KINDS))
        self._submitted = of.tally("jobs_submitted_total", kinds)
        self._ended = of.tally("jobs_ended_total", product(KINDS, OUTCOMES))
        self._duration = of.histogram("job_duration_seconds", kinds)
        self._epochs = of.tally("job_epochs_total", kinds)
        self._rows = of.tally("job_rows_total", kinds)
        self._checkpoints = of.histogram("checkpoint_seconds").of()
        self._attempts = of.tally("attempts_total", [(outcome,) for outcome in ATTEMPT_OUTCOMES])
        self._not_finite = of.tally("nan_losses_total", kinds)
        self._loss = of.tally("job_loss", ())
        self._ratio = of.tally("job_progress_ratio", ())
        self._told = of.tally("job_last_progress_timestamp_seconds", ())

    def take(self, census: Census) -> None:
        """There are these jobs now. One that was deleted has left no event of its end.

        One that runs and has told nothing is timed from here on, lest it hang unseen.
        """
        for key in self._now.values:
            state, kind = key
            self._now.values[key] = census.jobs.get((JobState(state), kind), 0)
        for key in list(self._told.values):
            if key[0] not in census.running:
                self._forget(key)
        for key in census.running.items():
            self._told.values.setdefault(key, time.time())

    def count(self, stored: StoredEvent) -> None:
        """Count an event, which must be told once."""
        event, counted, kind = stored.event, stored.event.counted, (stored.kind,)
        self._roots.trained(counted)
        self._epochs.values[kind] += counted.epochs
        self._rows.values[kind] += counted.rows
        for seconds in counted.checkpoints_s:
            self._checkpoints.observe(seconds)
        if event.attempt_outcome is not None:
            self._attempts.values[(event.attempt_outcome.lower(),)] += 1
        if event.sequence == 1:
            self._submitted.values[kind] += 1
        if event.progress is not None:
            self._progress(stored)
        elif event.state not in AFTER_STOP:  # no attempt has it
            self._forget((stored.job_id, stored.kind))
        if event.state in ENDED:
            outcome = (event.failure_kind or event.state).lower()
            self._ended.values[stored.kind, outcome] += 1
            seconds = (event.time - stored.create_time).total_seconds()
            self._duration.of(stored.kind).observe(max(0.0, seconds))
            self._not_finite.values[kind] += event.failure_kind is FailureKind.DIVERGED

    def _progress(self, stored: StoredEvent) -> None:
        key, progress = (stored.job_id, stored.kind), stored.event.progress
        assert progress is not None
        self._told.values[key] = stored.event.time.timestamp()
        self._ratio.values[key] = progress.step / progress.total_steps
        for name, value in progress.metrics.items():
            if name.rpartition(".")[2] == "loss":  # of the stage that is trained now
                self._loss.values[key] = value

    def _forget(self, key: Labels) -> None:
        for tally in (self._loss, self._ratio, self._told):
            tally.values.pop(key, None)
