"""What a runner and an attempt say to each other, over one connection.

The runner sends an `Order`, and perhaps `Stop`. The attempt sends any number of
`Stepped` and `Saved`, and one of `Finished`, `Stopped` and `Failed` as its last word.
"""

from dataclasses import dataclass
from pathlib import Path

from khot_server.jobs.spec import Result, Spec
from khot_server.jobs.states import FailureKind


@dataclass(frozen=True)
class Order:
    """Run this attempt.

    Attributes:
        attempt: its number, from 1.
        directory: where checkpoints go.
        resume: the checkpoint to go on from; None: at the start.
    """

    attempt: int
    spec: Spec
    device: str
    directory: Path
    resume: Path | None


@dataclass(frozen=True)
class Stop:
    """Write a checkpoint after the current step, and end."""


@dataclass(frozen=True)
class Stepped:
    """This far; `iterations` are those since the message before."""

    step: int
    total_steps: int
    metrics: dict[str, float]
    iterations: dict[int, int]


@dataclass(frozen=True)
class Saved:
    """A checkpoint is durable."""

    path: Path
    step: int


@dataclass(frozen=True)
class Finished:
    """The job is done."""

    result: Result


@dataclass(frozen=True)
class Stopped:
    """Stopped as asked; the last `Saved` is where to go on."""


@dataclass(frozen=True)
class Failed:
    """The job cannot be done."""

    kind: FailureKind
    message: str


Report = Stepped | Saved | Finished | Stopped | Failed
