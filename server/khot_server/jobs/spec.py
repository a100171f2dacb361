"""What a job is to do, as plain data that checks itself.

Read by the API process, the store and the attempt, so nothing here imports torch or
grpc. The fields are those of job_spec.proto; None stands for a default of the library.
What depends on the data as well is checked by `khot_server.datasets.fit`. A new kind is a
spec, a result (`results`), a row of `KINDS` in both and a task (`tasks`).
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn

from khot_server.jobs import tagged


class SpecError(ValueError):
    """A specification that no job can have.

    Attributes:
        field: the path of what was wrong in it, such as `feature_selection.k`.
    """

    def __init__(self, field: str, must: str, got: object) -> None:
        super().__init__(f"{field}: {must}; got {got}")
        self.field = field


# The estimators of khot's registry, which a process without torch cannot read (a test
# compares them), each with the law it draws by.
ESTIMATORS = MappingProxyType(
    {
        "pi_st": "pivotal",
        "pi_st_implicit": "pivotal",
        "pi_st2": "pivotal",
        "reinmax": "pivotal",
        "st_gumbel_softmax": "gumbel_topk",
        "simple": "conditional_poisson",
        "score_function": "conditional_poisson",
        "imle": "gumbel_topk",
        "gumbel_sigmoid": "gumbel_topk",
        "softsub": "gumbel_topk",
        "ncpss": "iterated_poisson",
        "st_topk": "topk",
    }
)
ONE_HOT = ("reinmax", "st_gumbel_softmax")  # take k = 1 alone
LEARNS_K = "pi_st_implicit"
EXACT_LAW = "conditional_poisson"  # the one whose KL from uniform is known

MAX_EPOCHS = 10_000
MAX_BATCH = 65_536
MAX_WIDTH = 16_384
MAX_LAYERS = 8
MAX_UNITS = 1 << 20
SEEDS = (0, 2**63 - 1)
SPLIT_SEEDS = (0, 2**32 - 1)


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

    def __post_init__(self) -> None:
        check = _Checks(self)
        check.common()
        check.one_of("objective", "classification", "regression")
        check.one_of("missing", "refuse", "impute")
        check.truth("standardize")
        check.truth("references")
        check.text("target")
        check.texts("ignore")
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

    def __post_init__(self) -> None:
        check = _Checks(self)
        check.common()
        check.whole("latents", 1, 10_000)
        check.whole("n", 2, MAX_UNITS)
        if self.latents * self.n > MAX_UNITS:
            must = f"latents times n must be at most {MAX_UNITS}"
            check.refuse("latents", must, self.latents * self.n)
        if self.k >= self.n:
            check.refuse("k", f"must be less than n = {self.n}", self.k)
        check.widths("encoder")
        check.widths("decoder")
        check.one_of("prior", "softmax", "exact")
        estimator = self.estimator or "pi_st"
        if self.prior == "exact" and ESTIMATORS[estimator] != EXACT_LAW:
            able = ", ".join(name for name, law in ESTIMATORS.items() if law == EXACT_LAW)
            must = f"must be softmax unless the estimator is one of {able}"
            check.refuse("prior", must, f"exact with {estimator}, whose law has no known KL")


Spec = FeatureSelectionSpec | VaeSpec
KINDS: dict[str, type[Spec]] = {cls.kind: cls for cls in (FeatureSelectionSpec, VaeSpec)}


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


class _Checks:
    """The checks of one specification; None passes where the field has it as its default."""

    def __init__(self, spec: Any) -> None:
        self._spec = spec

    def refuse(self, name: str, must: str, got: object) -> NoReturn:
        raise SpecError(f"{self._spec.kind}.{name}", must, got)

    def common(self) -> None:
        """What all kinds have."""
        self.text("dataset")
        if not self._spec.dataset:
            self.refuse("dataset", "must be the name or id of a data set", "none")
        self.whole("epochs", 1, MAX_EPOCHS)
        self.whole("seed", *SEEDS)
        self.whole("split_seed", *SPLIT_SEEDS)
        self.whole("batch_size", 1, MAX_BATCH)
        self.whole("patience", 0, MAX_EPOCHS)
        self.whole("k", 1, MAX_UNITS)
        for name in ("learning_rate", "tau", "last_tau"):
            self.positive(name)
        self.share("validation_share")
        self.share("test_share")
        if self._spec.validation_share + self._spec.test_share > 0.9:
            must = "together with validation_share must leave a tenth of the rows for training"
            self.refuse("test_share", must, self._spec.test_share)
        self.one_of("estimator", *ESTIMATORS)
        if self._spec.estimator in ONE_HOT and self._spec.k != 1:
            self.refuse("k", f"must be 1 with {self._spec.estimator}", self._spec.k)

    def whole(self, name: str, low: int, high: int) -> None:
        value = self._value(name)
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(name, "must be a whole number", type(value).__name__)
        if not low <= value <= high:
            self.refuse(name, f"must be in [{low}, {high}]", value)

    def positive(self, name: str) -> None:
        value = self._value(name)
        if value is None:
            return
        self._number(name, value)
        if not 0 < value <= 1e6:
            self.refuse(name, "must be in (0, 1e6]", value)

    def below(self, name: str, end: float) -> None:
        value = self._value(name)
        if value is None:
            return
        self._number(name, value)
        if not 0 <= value < end:
            self.refuse(name, f"must be in [0, {end:g})", value)

    def share(self, name: str) -> None:
        value = self._value(name)
        self._number(name, value)
        if not 0 < value < 1:
            self.refuse(name, "must be in (0, 1)", value)

    def one_of(self, name: str, *known: str) -> None:
        value = self._value(name)
        if value is not None and value not in known:
            self.refuse(name, f"must be one of {', '.join(known)}", repr(value))

    def truth(self, name: str) -> None:
        value = self._value(name)
        if value is not None and not isinstance(value, bool):
            self.refuse(name, "must be true or false", type(value).__name__)

    def text(self, name: str) -> None:
        value = self._value(name)
        if value is not None and not isinstance(value, str):
            self.refuse(name, "must be text", type(value).__name__)

    def texts(self, name: str) -> None:
        if not all(isinstance(value, str) for value in self._tuple(name)):
            self.refuse(name, "must be a list of texts", "another")

    def widths(self, name: str) -> None:
        if self._value(name) is None:
            return
        widths = self._tuple(name)
        if len(widths) > MAX_LAYERS:
            self.refuse(name, f"must have at most {MAX_LAYERS} layers", len(widths))
        for width in widths:
            whole = isinstance(width, int) and not isinstance(width, bool)
            if not whole or not 1 <= width <= MAX_WIDTH:
                self.refuse(name, f"widths must be whole and in [1, {MAX_WIDTH}]", width)

    def _value(self, name: str) -> Any:
        value = getattr(self._spec, name)
        if value is None and type(self._spec).__dataclass_fields__[name].default is not None:
            self.refuse(name, "must be given", "none")
        return value

    def _tuple(self, name: str) -> tuple[Any, ...]:
        value = self._value(name)
        if not isinstance(value, tuple):
            self.refuse(name, "must be a list", type(value).__name__)
        return value

    def _number(self, name: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.refuse(name, "must be a number", type(value).__name__)
        if not math.isfinite(value):
            self.refuse(name, "must be finite", value)
