"""What a job is to do and what it found, as plain data that checks itself.

Read by the API process, the store and the attempt, so nothing here imports torch or
grpc. Stored as JSON under the kind's name, `{"feature_selection": {...}}`, as in the
`oneof` of job_service.proto; a new kind is a spec, a result and a row of `_KINDS`.
"""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, NoReturn, TypeVar

# The built-in data sets, by name, with their numbers of features.
FEATURES = {"digits": 64}
DATASETS = tuple(FEATURES)


class SpecError(ValueError):
    """A specification that no job can have.

    Attributes:
        field: the path of what was wrong in it, such as `feature_selection.k`.
    """

    def __init__(self, field: str, must: str, got: object) -> None:
        super().__init__(f"{field}: {must}; got {got}")
        self.field = field


@dataclass(frozen=True)
class FeatureSelectionSpec:
    """Learn which `k` features of a data set a classifier needs.

    Attributes:
        dataset: one of `DATASETS`.
        k: how many features, in [1, number of features - 1].
        epochs: passes over the training data, in [1, 10000].
        seed: of initialisation, order and masks, in [0, 2**63).
    """

    kind: ClassVar[str] = "feature_selection"

    dataset: str
    k: int
    epochs: int = 30
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dataset not in DATASETS:
            must = f"must be one of {', '.join(DATASETS)}"
            _refuse(self, "dataset", must, repr(self.dataset))
        _check_whole(self, "k", 1, FEATURES[self.dataset] - 1)
        _check_whole(self, "epochs", 1, 10_000)
        _check_whole(self, "seed", 0, 2**63 - 1)


@dataclass(frozen=True)
class FeatureSelectionResult:
    """The features that were chosen, and how well they do.

    Attributes:
        features: indices of the chosen ones, ascending.
        scores: the learned score of every feature.
        test_loss: cross-entropy on held-out data with the chosen features.
        test_accuracy: share of held-out examples classified correctly with them.
        feature_shape: of an example, such as (8, 8), if it is a picture.
    """

    kind: ClassVar[str] = "feature_selection"

    features: tuple[int, ...]
    scores: tuple[float, ...]
    test_loss: float
    test_accuracy: float
    feature_shape: tuple[int, ...]


Spec = FeatureSelectionSpec
Result = FeatureSelectionResult
_T = TypeVar("_T", FeatureSelectionSpec, FeatureSelectionResult)

_KINDS = {FeatureSelectionSpec.kind: (FeatureSelectionSpec, FeatureSelectionResult)}


def spec_to_json(spec: Spec) -> str:
    """Return the one text of a specification: equal ones have equal texts."""
    return _to_json(spec)


def spec_from_json(text: str) -> Spec:
    """Return the specification in `text`, checked.

    Raises:
        SpecError: it is none that this version knows.
    """
    kind, values = _tagged("spec", text)
    return _make(_KINDS[kind][0], values)


def result_to_json(result: Result) -> str:
    """Return the text of a result."""
    return _to_json(result)


def result_from_json(text: str) -> Result:
    """Return the result in `text`.

    Raises:
        SpecError: it is none that this version knows.
    """
    kind, values = _tagged("result", text)
    return _make(_KINDS[kind][1], {name: _frozen(value) for name, value in values.items()})


def _refuse(spec: Spec, name: str, must: str, got: object) -> NoReturn:
    raise SpecError(f"{spec.kind}.{name}", must, got)


def _check_whole(spec: Spec, name: str, low: int, high: int) -> None:
    value = getattr(spec, name)
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse(spec, name, "must be a whole number", type(value).__name__)
    if not low <= value <= high:
        _refuse(spec, name, f"must be in [{low}, {high}]", value)


def _to_json(value: Spec | Result) -> str:
    return json.dumps({value.kind: asdict(value)}, sort_keys=True, separators=(",", ":"))


def _tagged(who: str, text: str) -> tuple[str, dict[str, Any]]:
    try:
        ((kind, values),) = json.loads(text).items()
    except (ValueError, AttributeError):
        raise SpecError(who, "must be a JSON object of one kind", f"{text[:80]!r}") from None
    if kind not in _KINDS:
        raise SpecError(who, f"kind must be one of {', '.join(_KINDS)}", repr(kind))
    if not isinstance(values, dict):
        raise SpecError(f"{who}.{kind}", "must be a JSON object", type(values).__name__)
    return kind, values


def _make(cls: type[_T], values: dict[str, Any]) -> _T:
    names = [field.name for field in fields(cls)]
    if unknown := sorted(set(values) - set(names)):
        raise SpecError(cls.kind, f"fields must be of {', '.join(names)}", ", ".join(unknown))
    try:
        return cls(**values)
    except TypeError:
        given = ", ".join(values) or "none"
        raise SpecError(cls.kind, "must have every field without a default", given) from None


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
