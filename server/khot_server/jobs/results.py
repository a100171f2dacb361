"""What a job found, as plain data; the messages of job_spec.proto say what each field is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from khot_server.jobs import tagged

Metrics = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class FeatureSelectionResult:
    """The columns that were chosen, and how well they do."""

    kind: ClassVar[str] = "feature_selection"

    features: tuple[int, ...]
    names: tuple[str, ...]
    scores: tuple[float, ...]
    inclusion_probabilities: tuple[float, ...]
    feature_shape: tuple[int, ...] = ()
    test: Metrics
    validation: Metrics
    references: Mapping[str, Metrics] = field(default_factory=dict)
    stability: float
    epochs_run: int
    classes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class VaeResult:
    """What a VAE reached."""

    kind: ClassVar[str] = "vae"

    test: Metrics
    validation: Metrics
    usage: tuple[float, ...]
    usage_shape: tuple[int, int]
    epochs_run: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SparseRegressionResult:
    """A linear model of few columns, and how well it does."""

    kind: ClassVar[str] = "sparse_regression"

    features: tuple[int, ...]
    names: tuple[str, ...]
    coefficients: tuple[float, ...]
    intercept: float
    target: str
    scores: tuple[float, ...]
    inclusion_probabilities: tuple[float, ...]
    test: Metrics
    validation: Metrics
    references: Mapping[str, Metrics] = field(default_factory=dict)
    stability: float
    epochs_run: int
    warnings: tuple[str, ...] = ()


Result = FeatureSelectionResult | VaeResult | SparseRegressionResult
KINDS: dict[str, type[Result]] = {
    cls.kind: cls for cls in (FeatureSelectionResult, VaeResult, SparseRegressionResult)
}

# Measurements of which more is better; of all others less is.
MORE_IS_BETTER = frozenset({"accuracy", "r2", "elbo", "subset_elbo"})


def result_to_json(result: Result) -> str:
    """Return the text of a result."""
    return tagged.to_json(result)


def result_from_json(text: str) -> Result:
    """Return the result in `text`.

    Raises:
        tagged.Unknown: it is none that this version knows.
    """
    return tagged.from_json("result", text, KINDS)
