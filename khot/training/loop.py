"""What the training loops share: steps, progress, checkpoints, and exact resumption.

A loop is a `Task` handed to `run`. Nothing random has a state: a task derives the
order of its examples from (seed, epoch) and its draws from (seed, step, row). So a
checkpoint holds the parameters, the optimizer's state, the step, and what was
counted since the last progress; and a run that is stopped at any step and resumed
reports and ends with the bits of one that was not (on one torch thread: with more,
matrix products may add up in another order).
"""

import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from khot._checks import refuse

PROGRESS_STEPS = 10


@dataclass(frozen=True)
class Examples:
    """Labelled examples: x (m, n) float32, y (m,) int64 class labels from 0."""

    x: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        if self.x.dtype != torch.float32 or self.x.ndim != 2 or 0 in self.x.shape:
            got = f"{self.x.dtype} of shape {tuple(self.x.shape)}".removeprefix("torch.")
            refuse("Examples", "x must be float32 of shape (m, n), neither of them 0", got)
        if self.y.dtype != torch.int64 or self.y.shape != self.x.shape[:1]:
            got = f"{self.y.dtype} of shape {tuple(self.y.shape)}".removeprefix("torch.")
            refuse("Examples", f"y must be int64 of shape ({len(self.x)},)", got)
        if int(self.y.min()) < 0:
            refuse("Examples", "y must be at least 0", str(int(self.y.min())))


@dataclass(frozen=True)
class Progress:
    """Where the training is.

    Attributes:
        step: steps done, from 1.
        total_steps: of the whole training.
        epoch: the one this step belongs to, from 1.
        metrics: `loss`, the mean since the last progress; at the end of an epoch
            also what the task measures, such as `test_loss`.
        iterations: how many rows took how many root-finding iterations since the
            last progress, {iterations: rows}.
    """

    step: int
    total_steps: int
    epoch: int
    metrics: dict[str, float]
    iterations: dict[int, int]


@dataclass(frozen=True)
class Checkpoint:
    """All that a resumed training needs, without pickles.

    Attributes:
        tensors: parameters and optimizer state, by name: on the CPU, contiguous,
            no two sharing memory.
        meta: what JSON holds: the step, the task's identity, torch's version, and
            what was counted since the last progress.
    """

    tensors: dict[str, Tensor]
    meta: dict[str, Any]


class Callbacks:
    """What a training tells and asks; override what is wanted."""

    def progress(self, progress: Progress) -> None:
        """Called every 10 steps and at the end of each epoch."""

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Called at the end of each epoch, after its progress, and when stopping."""

    def should_stop(self) -> bool:
        """Asked after every step."""
        return False


class Diverged(RuntimeError):
    """A loss or a parameter is no longer finite."""


@dataclass
class Task(ABC):
    """A model in training, as `run` needs it.

    Attributes:
        who: the public function, for messages.
        identity: what JSON holds, by which a checkpoint is known as this task's own.
    """

    who: str
    identity: dict[str, Any]
    model: nn.Module
    optimizer: torch.optim.Optimizer
    epochs: int
    steps_per_epoch: int

    @abstractmethod
    def loss(self, step: int) -> tuple[Tensor, Tensor | None]:
        """Return the loss of step `step`, from 0, and the iterations of the rows it solved."""

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """Return the metrics on held-out data."""


@dataclass
class _Tally:
    """What was counted since the last progress."""

    losses: list[float] = field(default_factory=list)
    iterations: Counter[int] = field(default_factory=Counter)


def run(task: Task, *, resume: Checkpoint | None, callbacks: Callbacks) -> bool:
    """Train to the end and return True, or stop after a checkpoint and return False."""
    total = task.epochs * task.steps_per_epoch
    step, tally = (0, _Tally()) if resume is None else _restore(task, resume, total)
    while step < total:
        _advance(task, step, tally)
        step += 1
        stop = callbacks.should_stop()
        epoch_ends = step % task.steps_per_epoch == 0
        # progress depends on the step alone, so a run that is stopped here reports as any other
        if epoch_ends or step % PROGRESS_STEPS == 0:
            metrics = {"loss": math.fsum(tally.losses) / len(tally.losses)}
            if epoch_ends:
                metrics |= task.evaluate()
                _refuse_divergence(task, step, metrics.values())
            epoch = (step - 1) // task.steps_per_epoch + 1
            rows = dict(sorted(tally.iterations.items()))
            callbacks.progress(Progress(step, total, epoch, metrics, rows))
            tally = _Tally()
        if epoch_ends or stop:
            callbacks.checkpoint(_checkpoint(task, step, tally))
        if stop and step < total:
            return False
    return True


def _advance(task: Task, step: int, tally: _Tally) -> None:
    """Take the step after `step` steps."""
    task.model.train()
    task.optimizer.zero_grad()
    loss, iterations = task.loss(step)
    value = float(loss.detach())
    _refuse_divergence(task, step + 1, [value])
    loss.backward()
    task.optimizer.step()
    if not all(bool(p.isfinite().all()) for p in task.model.parameters()):
        raise Diverged(f"{task.who}: parameters must stay finite; got others at step {step + 1}")
    tally.losses.append(value)
    if iterations is not None:
        tally.iterations.update(iterations.flatten().tolist())


def _refuse_divergence(task: Task, step: int, values: Any) -> None:
    for value in values:
        if not math.isfinite(value):
            raise Diverged(f"{task.who}: losses must stay finite; got {value} at step {step}")


def _checkpoint(task: Task, step: int, tally: _Tally) -> Checkpoint:
    tensors = {f"model.{name}": value for name, value in task.model.state_dict().items()}
    for index, state in task.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": value for name, value in state.items()}
    counted = {"losses": tally.losses, "iterations": dict(sorted(tally.iterations.items()))}
    meta = {"step": step, "torch": str(torch.__version__), "counted": counted, **task.identity}
    copies = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
    return Checkpoint(copies, _plain(meta))


def _restore(task: Task, checkpoint: Checkpoint, total: int) -> tuple[int, _Tally]:
    """Put the task where the checkpoint was taken; return the step and what was counted."""
    meta = _plain(checkpoint.meta)
    for name, wanted in _plain(task.identity).items():
        if meta.get(name) != wanted:
            must = f"resume must be a checkpoint with the {name} {wanted}"
            refuse(task.who, must, str(meta.get(name)))
    step = meta.get("step")
    if not isinstance(step, int) or not 0 <= step <= total:
        refuse(task.who, f"resume must have its step in [0, {total}]", str(step))
    model: dict[str, Tensor] = {}
    optimizer: dict[int, dict[str, Tensor]] = {}
    for name, value in checkpoint.tensors.items():
        part, _, rest = name.partition(".")
        if part == "model":
            model[rest] = value
        else:
            index, _, key = rest.partition(".")
            optimizer.setdefault(int(index), {})[key] = value.clone()
    if (names := set(model)) != (wanted := set(task.model.state_dict())):
        must = "resume must have the tensors of this model"
        refuse(task.who, must, f"others in {', '.join(sorted(names ^ wanted))}")
    task.model.load_state_dict(model)
    groups = task.optimizer.state_dict()["param_groups"]
    task.optimizer.load_state_dict({"state": optimizer, "param_groups": groups})
    counted = meta["counted"]
    rows = Counter({int(iterations): n for iterations, n in counted["iterations"].items()})
    return step, _Tally(counted["losses"], rows)


def _plain(meta: dict[str, Any]) -> dict[str, Any]:
    """As JSON gives it back: lists for tuples, and strings for keys."""
    plain: dict[str, Any] = json.loads(json.dumps(meta))
    return plain
