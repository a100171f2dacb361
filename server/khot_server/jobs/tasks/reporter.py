"""What a training tells, on its way to the runner: progress, checkpoints, and its log."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf

from khot.training import Callbacks, Checkpoint, Roots
from khot.training import Progress as Told
from khot.training.loop import PROGRESS_STEPS
from khot_server.jobs import checkpoint as contents
from khot_server.jobs.artifacts.history import History
from khot_server.jobs.files import checkpoint_name
from khot_server.jobs.messages import Order, Report, Saved, Stepped
from khot_server.jobs.records import Counted, Point, Progress

# Progress is sent at most this often: so much of the time it has run, between these.
SHARE, LEAST_S, MOST_S = 0.05, 0.25, 1.0
RATE_S = 5.0  # over which the rate of steps is taken
CHECKPOINT_SHARE = 0.02  # of the time, at most, unless they are wanted as often as can be


def say(text: str) -> None:
    """Print a line of the attempt's log."""
    print(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ} {text}")


@dataclass(frozen=True)
class Course:
    """What a training goes through.

    Attributes:
        estimator: by its name in the registry.
        examples: of an epoch.
        batch_size: of all steps of an epoch but perhaps its last.
    """

    estimator: str
    examples: int
    batch_size: int

    def rows(self, step: int, epoch: int) -> int:
        """Return how many examples a progress tells of: those since the one before.

        There is one every PROGRESS_STEPS steps of a stage and at the end of each epoch; and a
        stage is so many whole epochs, that the step tells the place in its epoch.
        """
        per_epoch = -(-self.examples // self.batch_size)
        last = (step - 1) % per_epoch + 1
        since = ((epoch - 1) * per_epoch + last) % PROGRESS_STEPS or PROGRESS_STEPS
        first = max(0, last - since)
        return min(last * self.batch_size, self.examples) - first * self.batch_size


class Reporter(Callbacks):
    """Passes on what a training tells, and decides when it writes checkpoints.

    Args:
        send: to the runner.
        should_stop: whether the runner has asked for it.

    Attributes:
        course: of the training, once it is known; before it begins.
        history: what this attempt and those before it have measured.
    """

    def __init__(
        self,
        order: Order,
        send: Callable[[Report], None],
        should_stop: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._order, self._send, self._should_stop, self._clock = order, send, should_stop, clock
        self.course: Course | None = None
        self.history = History(order.history)
        self._pace = Pace(clock)
        self._held: list[Told] = []
        self._began = self._saved = clock()
        self._sent = -inf  # the first progress is told at once
        self._cost_s = 0.0

    def progress(self, progress: Told) -> None:
        p = progress
        self.history.add(Point(p.step, p.epoch, p.stage, p.metrics))
        self._held.append(p)
        self._pace.at(p.step)
        if _ends_epoch(p):
            words = " ".join(f"{name}={value:.6g}" for name, value in p.metrics.items())
            say(f"{p.stage}: epoch {p.epoch}, step {p.step} of {p.total_steps}: {words}")
        now = self._clock()
        wait_s = min(MOST_S, max(LEAST_S, SHARE * (now - self._began)))
        if now - self._sent >= wait_s:
            self.flush()

    def flush(self) -> None:
        """Send what is held back."""
        if not self._held:
            return
        self._sent = self._clock()
        last = self._held[-1]
        points = tuple(Point(p.step, p.epoch, p.stage, p.metrics) for p in self._held)
        progress = Progress(
            step=last.step,
            total_steps=last.total_steps,
            metrics=last.metrics,
            epoch=last.epoch,
            stage=last.stage,
            steps_per_s=self._pace.steps_per_s,
            remaining_s=self._pace.remaining_s(last.total_steps),
        )
        counted = self._counted()
        self._held = []
        self._send(Stepped(progress, points, counted))

    def _counted(self) -> Counted:
        """Of all that is held back."""
        assert self.course is not None
        roots = Roots()
        for told in self._held:
            roots.merge(told.roots)
        return Counted(
            operator=self.course.estimator,
            iterations=dict(sorted(roots.iterations.items())),
            residuals=dict(sorted(roots.residuals.items())),
            fallback_rows=roots.fallback,
            nonconverged_rows=roots.nonconverged,
            epochs=sum(map(_ends_epoch, self._held)),
            rows=sum(self.course.rows(told.step, told.epoch) for told in self._held),
        )

    def wants_checkpoint(self, step: int, epoch_ends: bool) -> bool:  # noqa: ARG002
        wait_s = self._order.checkpoint_s
        if wait_s > 0:
            wait_s = max(wait_s, self._cost_s / CHECKPOINT_SHARE)
        return self._clock() - self._saved >= wait_s

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        # What was measured up to here is stored first: nobody will measure it again.
        self.flush()
        began = self._clock()
        step = checkpoint.meta["step"]
        path = self._order.directory / checkpoint_name(self._order.attempt, step)
        contents.write(path, checkpoint)
        self._saved = self._clock()
        self._cost_s = self._saved - began
        self._send(Saved(path, step, self._cost_s))
        say(f"checkpoint at step {step}, {1e3 * self._cost_s:.1f} ms")

    def should_stop(self) -> bool:
        return self._should_stop()


def _ends_epoch(told: Told) -> bool:
    return any(name.rpartition(".")[2] == "validation_loss" for name in told.metrics)


class Pace:
    """How fast steps are taken, lately."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, step: int) -> None:
        """This far now."""
        now = self._clock()
        self._seen.append((now, step))
        while self._seen[0][0] < now - RATE_S and len(self._seen) > 2:
            self._seen.popleft()

    @property
    def steps_per_s(self) -> float:
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0

    def remaining_s(self, total_steps: int) -> float:
        """How long the rest takes at this rate; 0 if it is not known yet."""
        rate = self.steps_per_s
        return (total_steps - self._seen[-1][1]) / rate if rate else 0.0
