"""What a runner and an attempt say to each other, over one connection.

The runner sends an `Order`, and perhaps `Stop`. The attempt sends `Began`, any number of
`Stepped` and `Saved`, and one of `Finished`, `Stopped` and `Failed` as its last word.
"""

from dataclasses import dataclass
from pathlib import Path

from khot_server.jobs.records import Artifact, Counted, Point, Progress
from khot_server.jobs.results import Result
from khot_server.jobs.spec import Spec
from khot_server.jobs.states import FailureKind


@dataclass(frozen=True, kw_only=True)
class Order:
    """Run this attempt.

    Attributes:
        attempt: its number, from 1.
        directory: where the files of the job are.
        state_dir: where uploaded data sets are found.
        data_dir: where built-in ones are found; None: nowhere yet.
        threads: of torch.
        resume: the checkpoint to go on from; None: at the start.
        checkpoint_s: how long to go on before the next checkpoint, at least; 0: as short as can be.
        history: what earlier attempts have measured up to that checkpoint.
    """

    job_id: str
    attempt: int
    spec: Spec
    device: str
    directory: Path
    state_dir: Path
    data_dir: Path | None = None
    threads: int = 1
    resume: Path | None = None
    checkpoint_s: float = 0.0
    history: tuple[Point, ...] = ()


@dataclass(frozen=True)
class Stop:
    """Write a checkpoint after the current step, and end."""


@dataclass(frozen=True)
class Began:
    """The training goes on from this step."""

    step: int


@dataclass(frozen=True)
class Stepped:
    """This far; points are those since the message before, and so is what was counted."""

    progress: Progress
    points: tuple[Point, ...]
    counted: Counted


@dataclass(frozen=True)
class Saved:
    """A checkpoint is durable; to write it took so long."""

    path: Path
    step: int
    seconds: float


@dataclass(frozen=True)
class Finished:
    """The job is done, and its files are durable."""

    result: Result
    artifacts: tuple[Artifact, ...] = ()


@dataclass(frozen=True)
class Stopped:
    """Stopped as asked; the last `Saved` is where to go on."""


@dataclass(frozen=True)
class Failed:
    """The job cannot be done."""

    kind: FailureKind
    message: str


Report = Began | Stepped | Saved | Finished | Stopped | Failed
