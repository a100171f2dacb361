"""What goes into the client and what comes out of it: frozen data, with a repr to read.

Arrays of a result are read-only, and a repr shows their dtype and shape, not their
contents. Specifications and items compare by value, results by identity.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

RELAXATION = "sigmoid_topk"
DESIGN = "pivotal"


class _Shown:
    """A repr with arrays as dtype and shape, and floats to four digits."""

    def __repr__(self) -> str:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        shown = (f"{field.name}={_show(getattr(self, field.name))}" for field in fields)
        return f"{type(self).__name__}({', '.join(shown)})"


def _show(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_show(item)}" for key, item in value.items()) + "}"
    return f"{value:%Y-%m-%dT%H:%M:%SZ}" if isinstance(value, datetime) else repr(value)


@dataclass(frozen=True, repr=False, eq=False)
class RelaxItem(_Shown):
    """Rows to relax: scores `x` (n,) or (rows, n), `k` and `tau` for all rows or one a row."""

    x: ArrayLike
    k: ArrayLike
    tau: ArrayLike = 1.0
    operator: str = RELAXATION


@dataclass(frozen=True, repr=False, eq=False)
class SampleItem(_Shown):
    """Rows to draw masks for, as in RelaxItem; without a seed the client draws one."""

    x: ArrayLike
    k: ArrayLike
    tau: ArrayLike = 1.0
    operator: str = DESIGN
    seed: int | None = None


@dataclass(frozen=True, repr=False, eq=False)
class Relaxed(_Shown):
    """Soft k-hot rows.

    Attributes:
        p: in the shape and dtype of the scores, entries in [0, 1], each row summing to k.
        queue_s: time spent waiting for a batch.
        compute_s: time of the operator, for the whole batch.
        batch_rows: how many rows that batch had.
    """

    p: NDArray[Any]
    queue_s: float
    compute_s: float
    batch_rows: int


@dataclass(frozen=True, repr=False, eq=False)
class Sample(_Shown):
    """Hard k-hot rows.

    Attributes:
        z: bool, in the shape of the scores, k of each row true.
        seed: gives the same masks again, for the same scores, k, tau and operator.
        queue_s, compute_s, batch_rows: as in Relaxed.
    """

    z: NDArray[np.bool_]
    seed: int
    queue_s: float
    compute_s: float
    batch_rows: int


@dataclass(frozen=True, repr=False, eq=False)
class Operator(_Shown):
    """A row of the server's registry; `kind` is relaxation (for relax) or design (for sample)."""

    name: str
    kind: str
    summary: str
    reference: str
    properties: Mapping[str, str]


@dataclass(frozen=True)
class FeatureSelection:
    """The job that learns which `k` features of a data set a classifier needs.

    Attributes:
        dataset: one that the server has.
        k: how many features to choose.
        epochs: passes over the training data; None: the server's default.
        seed: of initialisation, order and masks; None: 0.
    """

    dataset: str = "digits"
    k: int = 10
    epochs: int | None = None
    seed: int | None = None


@dataclass(frozen=True, repr=False, eq=False)
class FeatureSelectionResult(_Shown):
    """What a feature selection learned.

    Attributes:
        features: indices of the chosen ones, ascending, (k,).
        scores: the learned score of every feature, (n,).
        test_loss: cross-entropy on held-out data with the chosen features.
        test_accuracy: share of held-out examples classified correctly with them.
        feature_shape: of an example, such as (8, 8), if it is a picture.
    """

    features: NDArray[np.int64]
    scores: NDArray[np.float64]
    test_loss: float
    test_accuracy: float
    feature_shape: tuple[int, ...]


class JobState(StrEnum):
    """Where a job is in its life; the table of transitions is in server/README.md."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    PAUSING = "PAUSING"
    PAUSED = "PAUSED"
    CANCELLING = "CANCELLING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to the job."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


class FailureKind(StrEnum):
    """Why a job failed."""

    USER_ERROR = "USER_ERROR"
    DIVERGED = "DIVERGED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    WORKER_LOST = "WORKER_LOST"
    DEADLINE = "DEADLINE"
    STORAGE = "STORAGE"
    INTERNAL = "INTERNAL"


@dataclass(frozen=True, repr=False)
class Failure(_Shown):
    """Why a job has no result, and the same in words."""

    kind: FailureKind
    message: str


@dataclass(frozen=True, repr=False, eq=False)
class JobStatus(_Shown):
    """A job as it was when the server answered; `result` is there once it has succeeded."""

    id: str
    spec: FeatureSelection
    state: JobState
    attempts: int
    create_time: datetime
    update_time: datetime
    failure: Failure | None
    result: FeatureSelectionResult | None


@dataclass(frozen=True, repr=False)
class StateChanged(_Shown):
    """A job came into this state; the message says why, if there is more to say."""

    sequence: int
    time: datetime
    state: JobState
    message: str


@dataclass(frozen=True, repr=False)
class Progress(_Shown):
    """An attempt came this far, with measurements such as `loss` by name."""

    sequence: int
    time: datetime
    step: int
    total_steps: int
    metrics: Mapping[str, float]


Event = StateChanged | Progress
