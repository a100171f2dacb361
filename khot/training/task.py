"""A model in training, and a training as a sequence of such."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn

from khot._solve import Diagnostics


def defaults(config: Any) -> dict[str, Any]:
    """Return the defaults of the fields of a dataclass."""
    return {each.name: each.default for each in fields(config) if each.default is not MISSING}


@dataclass
class Task(ABC):
    """A model in training, as `run` needs it.

    Attributes:
        who: the public function, for messages.
        identity: what JSON holds, by which a checkpoint is known as this training's own; that
            of the first stage counts.
        defaults: of its `config`: what the checkpoint of an earlier version means by a field
            that it does not have.
        model: what is trained; all of its state is in its `state_dict`.
        optimizer: of its parameters.
        epochs: at most so many.
        steps_per_epoch: steps between two evaluations.
        patience: end after this many epochs without a lower `validation_loss`; None: never.
        unit: what the losses of steps are multiplied with to be reported.
        memory: what JSON holds and the task adds to in `evaluate`; checkpoints have it.
    """

    who: str
    identity: dict[str, Any]
    model: nn.Module
    optimizer: torch.optim.Optimizer
    epochs: int
    steps_per_epoch: int
    patience: int | None = None
    unit: float = 1.0
    memory: list[Any] = field(default_factory=list)
    defaults: dict[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """How many steps it may take."""
        return self.epochs * self.steps_per_epoch

    @abstractmethod
    def loss(self, step: int) -> tuple[Tensor, Diagnostics | None]:
        """Return the loss of step `step`, from 0, and how the rows it solved were solved."""

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """Return the metrics on the validation examples, `validation_loss` among them.

        Called once at the end of each epoch, in evaluation mode, without gradients.
        """

    def eligible(self, epoch: int) -> bool:  # noqa: ARG002
        """Whether the model after this epoch, from 1, may be the one that is kept.

        The one kept is that of the least `validation_loss` among the eligible; the last one
        if there is none. Patience begins with the first that is eligible.
        """
        return True


@dataclass(frozen=True)
class Outcome:
    """A stage that has ended.

    Attributes:
        task: with the model that is kept.
        epochs: how many there were.
        epoch: after which one the kept model is.
        metrics: what was measured of it.
    """

    task: Task
    epochs: int
    epoch: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class Stage:
    """A part of a training: its name, and how its task is made of what came before.

    Attributes:
        name: without dots.
        steps: how many its task may take, `Task.steps`.
        make: called with the outcomes of the stages before, by name; the same ones make the
            same task.
    """

    name: str
    steps: int
    make: Callable[[Mapping[str, Outcome]], Task]
