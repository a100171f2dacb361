"""How far a training is, and that as a checkpoint.

Tensors of the stage in progress are named `model.*`, `optimizer.<parameter>.*` and `best.*`; the
kept models of the stages that ended, `ended.<stage>.*`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from khot._checks import refuse
from khot._solve import Diagnostics
from khot.training.roots import Roots
from khot.training.task import Outcome, Stage, Task


@dataclass(frozen=True)
class Checkpoint:
    """All that a resumed training needs, without pickles.

    Attributes:
        tensors: parameters and optimizer state, by name: on the CPU, contiguous,
            no two sharing memory.
        meta: what JSON holds: the step, the identity of the training, torch's version, and
            what was counted and measured so far.
    """

    tensors: dict[str, Tensor]
    meta: dict[str, Any]


@dataclass(frozen=True)
class Best:
    """The best model so far: after which epoch, what was measured, and its tensors."""

    epoch: int
    metrics: dict[str, float]
    tensors: dict[str, Tensor]


@dataclass
class Tally:
    """What was counted since the last progress."""

    losses: list[float] = field(default_factory=list)
    roots: Roots = field(default_factory=Roots)

    def add(self, loss: float, solved: Diagnostics | None) -> None:
        self.losses.append(loss)
        if solved is not None:
            self.roots.add(solved)

    def plain(self) -> list[Any]:
        """What JSON holds, whose keys are never numbers."""
        roots = self.roots
        counts = (sorted(each.items()) for each in (roots.iterations, roots.residuals))
        return [self.losses, *counts, roots.fallback, roots.nonconverged]

    @classmethod
    def of(cls, plain: list[Any]) -> "Tally":
        """The one that `plain` is of."""
        losses, iterations, residuals, fallback, nonconverged = plain
        return cls(losses, Roots(dict(iterations), dict(residuals), fallback, nonconverged))


@dataclass
class State:
    """How far a training is: the stages that ended, and the one it is in.

    Attributes:
        outcomes: of the stages that ended, in order.
        task: of the next one; None if it has not begun.
        step: how many of its steps were taken.
        tally: since its last progress.
        best: of its models so far.
    """

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    task: Task | None = None
    step: int = 0
    tally: Tally = field(default_factory=Tally)
    best: Best | None = None


def pack(stages: Sequence[Stage], state: State) -> Checkpoint:
    """Return the state, of a training that has begun, as a checkpoint."""
    tasks = [outcome.task for outcome in state.outcomes.values()]
    tasks += [state.task] if state.task is not None else []
    before = sum(stage.steps for stage in stages[: len(state.outcomes)])
    meta = {
        "step": before + state.step,
        "torch": str(torch.__version__),
        "ended": {name: _said(outcome) for name, outcome in state.outcomes.items()},
        **tasks[0].identity,
    }
    tensors: dict[str, Tensor] = {}
    for name, outcome in state.outcomes.items():
        tensors |= _under(f"ended.{name}", outcome.task.model.state_dict())
    if state.task is not None:
        tensors |= _under("model", state.task.model.state_dict())
        for index, moments in state.task.optimizer.state_dict()["state"].items():
            tensors |= _under(f"optimizer.{index}", moments)
        meta |= {"counted": state.tally.plain(), "memory": state.task.memory}
    if (best := state.best) is not None:
        tensors |= _under("best", best.tensors)
        meta["best"] = {"epoch": best.epoch, "metrics": best.metrics}
    copies = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
    return Checkpoint(copies, _plain(meta))


def restore(stages: Sequence[Stage], checkpoint: Checkpoint) -> State:
    """Return the state that was packed, with its tasks made anew."""
    meta, tensors, state = _plain(checkpoint.meta), checkpoint.tensors, State()
    task: Task | None = stages[0].make({})
    assert task is not None
    step = _checked_step(task, meta, sum(stage.steps for stage in stages))
    for stage in stages:
        task = task or stage.make(state.outcomes)
        if stage.name not in meta["ended"]:
            break
        said = meta["ended"][stage.name]
        task.memory = said.pop("memory")
        task.model.load_state_dict(_own(task, f"ended.{stage.name}", tensors))
        state.outcomes[stage.name] = Outcome(task=task, **said)
        step, task = step - stage.steps, None
    state.task = task
    if task is None or "counted" not in meta:
        return state
    state.step = step
    task.model.load_state_dict(_own(task, "model", tensors))
    moments: dict[int, dict[str, Tensor]] = {}
    for name, value in _below("optimizer", tensors).items():
        index, _, key = name.partition(".")
        moments.setdefault(int(index), {})[key] = value.clone()
    groups = task.optimizer.state_dict()["param_groups"]
    task.optimizer.load_state_dict({"state": moments, "param_groups": groups})
    task.memory = meta["memory"]
    state.tally = Tally.of(meta["counted"])
    if "best" in meta:
        state.best = Best(**meta["best"], tensors=_own(task, "best", tensors))
    return state


def _said(outcome: Outcome) -> dict[str, Any]:
    said = {name: getattr(outcome, name) for name in ("epochs", "epoch", "metrics")}
    return {**said, "memory": outcome.task.memory}


def _checked_step(task: Task, meta: dict[str, Any], total: int) -> int:
    """Refuse the checkpoint of another training; return the step of this one's."""
    for name, wanted in _plain(task.identity).items():
        got = meta.get(name)
        if name == "config" and isinstance(got, dict):
            got = _plain(task.defaults) | got
        if got != wanted:
            must = f"resume must be a checkpoint with the {name} {wanted}"
            refuse(task.who, must, str(meta.get(name)))
    step = meta.get("step")
    if not isinstance(step, int) or not 0 <= step <= total:
        refuse(task.who, f"resume must have its step in [0, {total}]", str(step))
    return step


def _own(task: Task, part: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the task's model in this part."""
    own = _below(part, tensors)
    shapes = {name: value.shape for name, value in own.items()}
    wanted = {name: value.shape for name, value in task.model.state_dict().items()}
    if others := {name for name, _ in shapes.items() ^ wanted.items()}:
        must = "resume must have the tensors of this model"
        refuse(task.who, must, f"others in {', '.join(sorted(others))}")
    return own


def _under(part: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{part}.{name}": value for name, value in tensors.items()}


def _below(part: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that `_under` put under this part."""
    start = f"{part}."
    found = ((name.removeprefix(start), name) for name in tensors if name.startswith(start))
    return {short: tensors[name] for short, name in found}


def _plain(meta: dict[str, Any]) -> dict[str, Any]:
    """As JSON gives it back: lists for tuples, and strings for keys."""
    plain: dict[str, Any] = json.loads(json.dumps(meta))
    return plain
