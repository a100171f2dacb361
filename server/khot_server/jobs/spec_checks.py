"""What the fields of specifications must be, and the estimators there are."""

import math
from types import MappingProxyType
from typing import Any, NoReturn


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
RECONSTRUCTION = "reconstruction"  # the objective without a target
EXACT_LAW = "conditional_poisson"  # the one whose KL from uniform is known

MAX_EPOCHS = 10_000
MAX_BATCH = 65_536
MAX_WIDTH = 16_384
MAX_LAYERS = 8
MAX_UNITS = 1 << 20
MAX_STEPS = 100_000
MAX_DRAWS = 4096  # of subsets, in a step
SEEDS = (0, 2**63 - 1)
SPLIT_SEEDS = (0, 2**32 - 1)


class Checks:
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
        self.whole("seed", *SEEDS)
        self.whole("split_seed", *SPLIT_SEEDS)
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

    def network(self) -> None:
        """What those have that train a network."""
        self.whole("epochs", 1, MAX_EPOCHS)
        self.whole("batch_size", 1, MAX_BATCH)
        self.whole("patience", 0, MAX_EPOCHS)

    def table(self) -> None:
        """What those have that predict a column of a table."""
        self.one_of("missing", "refuse", "impute")
        self.text("target")
        self.texts("ignore")

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
