"""What the training loops share: steps, progress, checkpoints, early stopping, and stages.

A training is a sequence of stages, each a `Task`, handed to `run`: one for what is to be
learned, and perhaps others for what it is compared with. Nothing random has a state: a
task derives the order of its examples from (seed, epoch) and its draws from (seed, step,
row). So a checkpoint (`khot/training/_checkpoints.py`) holds tensors, the step, and what was
counted since the last progress; and a run that is stopped at any step and resumed reports and
ends with the bits of one that was not (on one torch thread: with more, matrix products may
add up in another order).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from khot.training._checkpoints import Best, Checkpoint, State, Tally, pack, restore
from khot.training.roots import Roots
from khot.training.task import Outcome, Stage, Task

__all__ = ["Callbacks", "Checkpoint", "Diverged", "Outcome", "Progress", "Stage", "Task", "run"]

PROGRESS_STEPS = 10


@dataclass(frozen=True)
class Progress:
    """Where the training is.

    Attributes:
        step: steps done, from 1. A stage that ends early makes it jump to where the next
            one begins.
        total_steps: of all stages, if none ends early.
        epoch: the one of the stage that this step belongs to, from 1.
        metrics: `loss`, the mean since the last progress; at the end of an epoch also what
            the task measures, such as `validation_loss`. After the first stage, names begin
            with the stage's: `reference_all.loss`.
        roots: how roots were found since the last progress.
        stage: its name.
    """

    step: int
    total_steps: int
    epoch: int
    metrics: dict[str, float]
    roots: Roots
    stage: str


class Callbacks:
    """What a training tells and asks; override what is wanted."""

    def progress(self, progress: Progress) -> None:
        """Called every 10 steps of a stage and at the end of each epoch."""

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Called if wanted, after the progress of that step, and when stopping."""

    def wants_checkpoint(self, step: int, epoch_ends: bool) -> bool:  # noqa: ARG002
        """Asked before each progress; a checkpoint is made only if wanted, or when stopping."""
        return epoch_ends

    def should_stop(self) -> bool:
        """Asked after every step."""
        return False


class Diverged(RuntimeError):
    """A loss or a parameter is no longer finite."""


def run(
    stages: Sequence[Stage], *, resume: Checkpoint | None, callbacks: Callbacks
) -> dict[str, Outcome] | None:
    """Train all stages and return their outcomes by name, or None if stopped (after a checkpoint).

    Raises:
        ValueError: resume is not a checkpoint of this training.
        Diverged: a loss or a parameter is no longer finite; no checkpoint has such.
    """
    state = State() if resume is None else restore(stages, resume)
    total = sum(stage.steps for stage in stages)
    while len(state.outcomes) < len(stages):
        stage = stages[len(state.outcomes)]
        before = sum(stage.steps for stage in stages[: len(state.outcomes)])
        task = state.task = state.task or stage.make(state.outcomes)
        _advance(task, state)
        stop = callbacks.should_stop()
        step, epoch = before + state.step, -(-state.step // task.steps_per_epoch)
        epoch_ends, ended = state.step % task.steps_per_epoch == 0, False
        # progress depends on the step alone, so a run that is stopped here reports as any other
        told = epoch_ends or state.step % PROGRESS_STEPS == 0
        saved = stop or (told and callbacks.wants_checkpoint(step, epoch_ends))
        if epoch_ends or saved:
            _refuse_bad_parameters(task, state.step)
        if told:
            metrics = {"loss": math.fsum(state.tally.losses) / len(state.tally.losses)}
            if epoch_ends:
                measured = _end_epoch(task, epoch, state)
                metrics |= measured
                ended = _is_over(task, epoch, state)
            prefix = f"{stage.name}." if state.outcomes else ""
            named = {f"{prefix}{name}": value for name, value in metrics.items()}
            told_of = (epoch, named, state.tally.roots, stage.name)
            callbacks.progress(Progress(step, total, *told_of))
            state.tally = Tally()
        if ended:
            outcome = _keep(task, epoch, measured, state.best)
            state = State({**state.outcomes, stage.name: outcome})
        if saved:
            callbacks.checkpoint(pack(stages, state))
        if stop and len(state.outcomes) < len(stages):
            return None
    return state.outcomes


def _advance(task: Task, state: State) -> None:
    """Take the next step of the task."""
    if state.step % task.steps_per_epoch == 0 or not task.model.training:
        task.model.train()
    _forget_gradients(task.optimizer)
    try:
        loss, solved = task.loss(state.step)
    except ValueError:
        _refuse_bad_parameters(task, state.step)  # what an operator refuses then
        raise
    state.step += 1
    value = loss.item() * task.unit
    _refuse_bad_losses(task, state.step, [value])
    loss.backward()
    task.optimizer.step()
    state.tally.add(value, solved)


def _forget_gradients(optimizer: torch.optim.Optimizer) -> None:
    """As its zero_grad does, which announces it to torch's profiler for 3 % of a small step."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


def _end_epoch(task: Task, epoch: int, state: State) -> dict[str, float]:
    """Evaluate the task, remember its model if it is the best so far, and return the metrics."""
    task.model.eval()
    with torch.no_grad():
        metrics = task.evaluate()
    _refuse_bad_losses(task, state.step, metrics.values())
    loss, best = metrics["validation_loss"], state.best
    if task.eligible(epoch) and (best is None or loss < best.metrics["validation_loss"]):
        tensors = {name: value.clone() for name, value in task.model.state_dict().items()}
        state.best = Best(epoch, metrics, tensors)
    return metrics


def _is_over(task: Task, epoch: int, state: State) -> bool:
    if epoch == task.epochs:
        return True
    best = state.best
    return task.patience is not None and best is not None and epoch - best.epoch >= task.patience


def _keep(task: Task, epoch: int, measured: dict[str, float], best: Best | None) -> Outcome:
    """Give the task the best of its models, and return how it ended."""
    if best is None:
        return Outcome(task, epoch, epoch, measured)
    task.model.load_state_dict(best.tensors)
    return Outcome(task, epoch, best.epoch, best.metrics)


def _refuse_bad_losses(task: Task, step: int, values: Iterable[float]) -> None:
    for value in values:
        if not math.isfinite(value):
            raise Diverged(f"{task.who}: losses must stay finite; got {value} at step {step}")


def _refuse_bad_parameters(task: Task, step: int) -> None:
    # a sum is finite only if all of its terms are
    sums = [p.detach().sum() for p in task.model.parameters()]
    if not bool(torch.stack(sums).isfinite().all()):
        raise Diverged(f"{task.who}: parameters must stay finite; got others by step {step}")
