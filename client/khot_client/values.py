"""What goes into calls and what comes out of them: frozen data, with a repr to read.

Arrays of a result are read-only, and a repr shows their dtype and shape, not their
contents. Specifications compare by value, items and results by identity.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

RELAXATION = "sigmoid_topk"
DESIGN = "pivotal"
ESTIMATOR = "pi_st"

Priority = Literal["interactive", "bulk"]
MaskFormat = Literal["bits", "indices", "dense"]


class Shown:
    """A repr with arrays as dtype and shape, floats to four digits, and without what is None."""

    def __repr__(self) -> str:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        values = ((field.name, getattr(self, field.name)) for field in fields)
        shown = (f"{name}={show(value)}" for name, value in values if value is not None)
        return f"{type(self).__name__}({', '.join(shown)})"


def show(value: Any) -> str:
    """A value as a repr has it."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {show(item)}" for key, item in value.items()) + "}"
    return f"{value:%Y-%m-%dT%H:%M:%SZ}" if isinstance(value, datetime) else repr(value)


@dataclass(frozen=True, repr=False, eq=False)
class RelaxItem(Shown):
    """Rows to relax, as the arguments of `Client.relax`, which says what each is."""

    x: ArrayLike
    k: ArrayLike | None
    tau: ArrayLike | None = None
    operator: str = RELAXATION
    options: Mapping[str, Any] | None = None
    g: ArrayLike | None = None
    diagnostics: bool = False


@dataclass(frozen=True, repr=False, eq=False)
class SampleItem(Shown):
    """Rows to draw masks for, as the arguments of `Client.sample`, which says what each is."""

    x: ArrayLike
    k: ArrayLike | None
    tau: ArrayLike | None = None
    operator: str = DESIGN
    seed: int | None = None
    num_samples: int | None = None
    options: Mapping[str, Any] | None = None
    g: ArrayLike | None = None
    losses: ArrayLike | None = None
    baseline: ArrayLike | str | None = None
    format: MaskFormat | None = None
    include_pi: bool = False
    diagnostics: bool = False


@dataclass(frozen=True, repr=False, eq=False)
class Gradients(Shown):
    """The gradients of one item.

    Attributes:
        x: in the shape and dtype of the scores.
        k: in the shape of k as it was given, float64, so one number where one served all rows;
            None where the operator is not differentiable in k.
        tau: the same in tau.
    """

    x: NDArray[Any]
    k: NDArray[np.float64] | None = None
    tau: NDArray[np.float64] | None = None


@dataclass(frozen=True, repr=False, eq=False)
class Diagnostics(Shown):
    """What finding the roots took, for each row.

    Attributes:
        iterations: of the solver, (rows,).
        residual: |sum of the row - k| relative to min(k, n - k), (rows,).
    """

    iterations: NDArray[np.int32]
    residual: NDArray[np.float64]


@dataclass(frozen=True, repr=False, eq=False)
class Relaxed(Shown):
    """Soft k-hot rows.

    Attributes:
        p: in the shape and dtype of the scores, entries in [0, 1], each row summing to k.
        queue_s: time spent waiting for a batch.
        compute_s: time of the operator, for the whole batch.
        batch_rows: how many rows that batch had.
        gradients: if a cotangent was given.
        diagnostics: if they were asked for, and the operator has them.
        algorithm: what computed it, such as `sigmoid_topk (C, avx2)`.
    """

    p: NDArray[Any]
    queue_s: float
    compute_s: float
    batch_rows: int
    gradients: Gradients | None = None
    diagnostics: Diagnostics | None = None
    algorithm: str = ""


@dataclass(frozen=True, repr=False, eq=False)
class Sample(Shown):
    """Drawn k-hot rows.

    Attributes:
        z: bool, in the shape of the scores, after `num_samples` where that was given, k of each
            row true. Of an estimator whose draws are relaxed: soft, in the dtype of the scores.
        seed: gives the same draws again, for the same scores, k, tau and operator.
        pi: the inclusion probabilities, if they were asked for.
        queue_s, compute_s, batch_rows, gradients, diagnostics, algorithm: as in Relaxed.
    """

    z: NDArray[Any]
    seed: int
    queue_s: float
    compute_s: float
    batch_rows: int
    pi: NDArray[Any] | None = None
    gradients: Gradients | None = None
    diagnostics: Diagnostics | None = None
    algorithm: str = ""


@dataclass(frozen=True, repr=False, eq=False)
class Operator(Shown):
    """A row of the server's registry.

    Attributes:
        name: to ask for it by.
        kind: relaxation (for relax), design (for sample) or estimator (for sample, with gradients).
        summary: what it returns, in a line.
        reference: where it is defined.
        properties: what it promises, by name.
        options: its own keywords, with their defaults.
    """

    name: str
    kind: str
    summary: str
    reference: str
    properties: Mapping[str, str]
    options: Mapping[str, Any]


@dataclass(frozen=True, repr=False, eq=False)
class ServerInfo(Shown):
    """What a server is.

    Attributes:
        version: of khot, there; empty of one that does not say it yet.
        devices: what its engines run on.
        limits: what it accepts, by name, such as `max_message_bytes`.
    """

    version: str
    devices: tuple[str, ...]
    limits: Mapping[str, int]
