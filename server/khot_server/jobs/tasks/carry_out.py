"""What an attempt does with its order: train, write checkpoints, report."""

import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import torch

from khot.training import Callbacks, Checkpoint, Diverged, Progress
from khot_server.jobs import checkpoint as contents
from khot_server.jobs import tasks
from khot_server.jobs.files import checkpoint_name
from khot_server.jobs.messages import Failed, Finished, Order, Report, Saved, Stepped, Stopped
from khot_server.jobs.states import FailureKind

# Progress is reported at most this often.
INTERVAL_S = 0.1


def carry_out(
    order: Order, send: Callable[[Report], None], should_stop: Callable[[], bool]
) -> Finished | Stopped | Failed:
    """Train as ordered, reporting through `send`, and return the last word."""
    reporter = Reporter(order, send, should_stop)
    try:
        try:
            train = tasks.prepare(order.spec, order.device)
        except ValueError as error:
            return Failed(FailureKind.USER_ERROR, str(error))
        if should_stop():
            return Stopped()
        resume = None if order.resume is None else contents.read(order.resume)
        result = train(resume, reporter)
    except Exception as error:
        traceback.print_exc()
        kind = failure_kind(error)
        if kind is FailureKind.INTERNAL:  # then its type says more than its words
            return Failed(kind, traceback.format_exception_only(error)[-1].strip())
        return Failed(kind, str(error) or type(error).__name__)
    finally:
        reporter.throttle.flush()
    return Stopped() if result is None else Finished(result)


def failure_kind(error: Exception) -> FailureKind:
    """Return which kind of failure an error of a training is."""
    if isinstance(error, Diverged):
        return FailureKind.DIVERGED
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return FailureKind.OUT_OF_MEMORY
    if "can't allocate memory" in str(error):  # torch on a CPU: a plain RuntimeError
        return FailureKind.OUT_OF_MEMORY
    if isinstance(error, OSError):
        return FailureKind.STORAGE
    return FailureKind.INTERNAL


class Throttle:
    """Sends progress on, at most every `interval_s`, and what is held back on `flush`.

    What is held back gives way to what comes after it, which takes over its iterations:
    those are counted, so none may be lost.
    """

    def __init__(
        self,
        send: Callable[[Stepped], None],
        interval_s: float = INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send = send
        self._interval_s = interval_s
        self._clock = clock
        self._next = clock()
        self._held: Stepped | None = None

    def put(self, progress: Stepped) -> None:
        if self._held is not None:
            both = Counter(self._held.iterations) + Counter(progress.iterations)
            progress = replace(progress, iterations=dict(both))
        self._held = progress
        if self._clock() >= self._next:
            self.flush()

    def flush(self) -> None:
        if self._held is not None:
            self._send(self._held)
            self._held = None
            self._next = self._clock() + self._interval_s


class Reporter(Callbacks):
    """Turns what a training tells into reports, and its checkpoints into files."""

    def __init__(
        self, order: Order, send: Callable[[Report], None], should_stop: Callable[[], bool]
    ) -> None:
        self.throttle = Throttle(send)
        self._order = order
        self._send = send
        self._should_stop = should_stop

    def progress(self, progress: Progress) -> None:
        p = progress
        self.throttle.put(Stepped(p.step, p.total_steps, p.metrics, p.iterations))

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        step = checkpoint.meta["step"]
        path = self._order.directory / checkpoint_name(self._order.attempt, step)
        contents.write(path, checkpoint)
        self._send(Saved(path, step))

    def should_stop(self) -> bool:
        return self._should_stop()
