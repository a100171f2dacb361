"""What a job is to do, as plain data that checks itself.

Read by the API process, the store and the attempt, so nothing here imports torch or
grpc. The fields are those of job_spec.proto; None stands for a default of the library.
What depends on the data as well is checked by `khot_server.datasets.fit`. A new kind is a
spec, a result (`results`), a row of `KINDS` in both and a task (`tasks`).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from khot_server.jobs import tagged
from khot_server.jobs.spec_checks import (
    ESTIMATORS,
    EXACT_LAW,
    LEARNS_K,
    MAX_DRAWS,
    MAX_STEPS,
    MAX_UNITS,
    ONE_HOT,
    RECONSTRUCTION,
    Checks,
    SpecError,
)

__all__ = [
    "ESTIMATORS",
    "KINDS",
    "LEARNS_K",
    "ONE_HOT",
    "RECONSTRUCTION",
    "FeatureSelectionSpec",
    "SparseRegressionSpec",
    "Spec",
    "SpecError",
    "VaeSpec",
    "spec_from_json",
    "spec_to_json",
]


@dataclass(frozen=True, kw_only=True)
class FeatureSelectionSpec:
    """Learn which columns of a table predict its target; see job_spec.proto for the fields."""

    kind: ClassVar[str] = "feature_selection"

    dataset: str
    k: int | None = None
    epochs: int | None = None
    seed: int = 0
    penalty: float | None = None
    estimator: str | None = None
    target: str | None = None
    objective: str | None = None
    ignore: tuple[str, ...] = ()
    missing: str = "refuse"
    standardize: bool | None = None
    hidden: tuple[int, ...] | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    mask_learning_rate: float | None = None
    tau: float | None = None
    last_tau: float | None = None
    patience: int | None = None
    split_seed: int = 0
    validation_share: float = 0.1
    test_share: float = 0.2
    references: bool = True
    initial_k: float | None = None
    tuning: float | None = None
    weight_decay: float | None = None
    hard: bool | None = None

    def __post_init__(self) -> None:
        check = Checks(self)
        check.common()
        check.network()
        check.table()
        check.one_of("objective", "classification", "regression", RECONSTRUCTION)
        if self.objective == RECONSTRUCTION and self.target is not None:
            check.refuse("target", "must be absent where features are reconstructed", self.target)
        check.truth("standardize")
        check.truth("references")
        check.truth("hard")
        check.widths("hidden")
        check.positive("mask_learning_rate")
        check.positive("penalty")
        check.positive("initial_k")
        check.below("tuning", 1)
        check.below("weight_decay", 1e6)
        if (self.k is None) == (self.penalty is None):
            got = "none of them" if self.k is None else "both"
            check.refuse("k", "must be given, or a penalty by which it is learned", got)
        if self.k is None and self.estimator not in (None, LEARNS_K):
            must = f"must be {LEARNS_K} where k is learned"
            check.refuse("estimator", must, repr(self.estimator))
        if self.k is not None and self.initial_k is not None:
            check.refuse("initial_k", "must be absent where k is given", self.initial_k)


@dataclass(frozen=True, kw_only=True)
class VaeSpec:
    """Learn to describe examples by k of n units; see job_spec.proto for the fields."""

    kind: ClassVar[str] = "vae"

    dataset: str
    latents: int = 10
    n: int = 10
    k: int = 5
    epochs: int | None = None
    seed: int = 0
    estimator: str | None = None
    prior: str = "softmax"
    encoder: tuple[int, ...] | None = None
    decoder: tuple[int, ...] | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    tau: float | None = None
    last_tau: float | None = None
    patience: int | None = None
    split_seed: int = 0
    validation_share: float = 0.1
    test_share: float = 0.2
    hard: bool | None = None
    strength: float | None = None
    noise: str | None = None
    bound: bool | None = None

    def __post_init__(self) -> None:
        check = Checks(self)
        check.common()
        check.network()
        check.positive("strength")
        check.one_of("noise", "sum_of_gamma", "gumbel")
        check.whole("latents", 1, 10_000)
        check.whole("n", 2, MAX_UNITS)
        if self.latents * self.n > MAX_UNITS:
            must = f"latents times n must be at most {MAX_UNITS}"
            check.refuse("latents", must, self.latents * self.n)
        if self.k >= self.n:
            check.refuse("k", f"must be less than n = {self.n}", self.k)
        check.widths("encoder")
        check.widths("decoder")
        check.truth("hard")
        check.truth("bound")
        check.one_of("prior", "softmax", "softmax_mean", "exact")
        estimator = self.estimator or "gumbel_sigmoid"
        if self.prior == "exact" and ESTIMATORS[estimator] != EXACT_LAW:
            able = ", ".join(name for name, law in ESTIMATORS.items() if law == EXACT_LAW)
            must = f"must not be exact unless the estimator is one of {able}"
            check.refuse("prior", must, f"exact with {estimator}, whose law has no known KL")


@dataclass(frozen=True, kw_only=True)
class SparseRegressionSpec:
    """Learn which columns a linear model needs; see job_spec.proto for the fields."""

    kind: ClassVar[str] = "sparse_regression"

    dataset: str
    k: int | None = None
    seed: int = 0
    estimator: str | None = None
    target: str | None = None
    ignore: tuple[str, ...] = ()
    missing: str = "refuse"
    intercept: bool = True
    steps: int | None = None
    num_samples: int | None = None
    learning_rate: float | None = None
    tau: float | None = None
    last_tau: float | None = None
    ridge: float | None = None
    split_seed: int = 0
    validation_share: float = 0.1
    test_share: float = 0.2
    references: bool = True

    def __post_init__(self) -> None:
        check = Checks(self)
        check.common()
        check.table()
        if self.k is None:
            check.refuse("k", "must be given", "none")
        check.truth("intercept")
        check.truth("references")
        check.whole("steps", 1, MAX_STEPS)
        check.whole("num_samples", 2, MAX_DRAWS)
        check.positive("ridge")


Spec = FeatureSelectionSpec | VaeSpec | SparseRegressionSpec
KINDS: dict[str, type[Spec]] = {
    cls.kind: cls for cls in (FeatureSelectionSpec, VaeSpec, SparseRegressionSpec)
}


def spec_to_json(spec: Spec) -> str:
    """Return the one text of a specification: equal ones have equal texts."""
    return tagged.to_json(spec)


@lru_cache(maxsize=1024)  # they never change, and pages of jobs are read again and again
def spec_from_json(text: str) -> Spec:
    """Return the specification in `text`, checked.

    Raises:
        SpecError: it is none that this version knows.
    """
    try:
        return tagged.from_json("spec", text, KINDS)
    except tagged.Unknown as error:
        raise SpecError(error.field, error.must, error.got) from None
