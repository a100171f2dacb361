"""What an attempt does with its order: train, write checkpoints, report."""

import traceback
from collections.abc import Callable
from pathlib import Path

import torch

from khot.training import Checkpoint, Diverged
from khot_server.jobs import artifacts, tasks
from khot_server.jobs import checkpoint as contents
from khot_server.jobs.files import be_alone_in, checkpoints_until
from khot_server.jobs.messages import Began, Failed, Finished, Order, Report, Stopped
from khot_server.jobs.states import FailureKind
from khot_server.jobs.tasks.reporter import Reporter, say


def carry_out(
    order: Order, send: Callable[[Report], None], should_stop: Callable[[], bool]
) -> Finished | Stopped | Failed:
    """Train as ordered, reporting through `send`, and return the last word."""
    reporter = Reporter(order, send, should_stop)
    try:
        be_alone_in(order.directory)
        try:
            task = tasks.prepare(order)
        except ValueError as error:
            return Failed(FailureKind.USER_ERROR, str(error))
        reporter.course = task.course
        if should_stop():
            return Stopped()
        resume = None if order.resume is None else _newest(order.resume)
        began = 0 if resume is None else resume.meta["step"]
        say(f"attempt {order.attempt} at job {order.job_id} goes on from step {began}")
        send(Began(began))
        if not task.train(resume, reporter):
            return Stopped()
        made = task.made(reporter.history)
        return Finished(made.result, artifacts.write(order.directory / "artifacts", made))
    except Exception as error:
        traceback.print_exc()
        kind = failure_kind(error)
        if kind is FailureKind.INTERNAL:  # then its type says more than its words
            return Failed(kind, traceback.format_exception_only(error)[-1].strip())
        return Failed(kind, str(error) or type(error).__name__)
    finally:
        reporter.flush()


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


def _newest(path: Path) -> Checkpoint | None:
    """The checkpoint in `path`, or the newest before it that is whole."""
    for candidate in checkpoints_until(path):
        try:
            return contents.read(candidate)
        except OSError as error:
            say(f"{error}; going on from the one before, or from the start")
    return None
