"""Whether a job can be done with a data set: checked when it is submitted, from the summary.

Nothing is left for the attempt to find out but what only the values tell.
"""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NoReturn

from khot_server.datasets.records import MAX_COUNTED, Column, ColumnType, Summary
from khot_server.jobs.spec import (
    RECONSTRUCTION,
    FeatureSelectionSpec,
    SparseRegressionSpec,
    Spec,
    SpecError,
    VaeSpec,
)

MIN_ROWS = 10
MIN_CLASS_ROWS = 3  # one to learn from, one to choose by, one to test with
MAX_CLASSES = MAX_COUNTED
MAX_TERMS = 4096  # of a sparse regression, which has the products of all pairs
NAMED = 5  # columns in a message
SEARCHED = 5000  # columns for a name like the one that was given


@dataclass(frozen=True)
class Plan:
    """What a job takes of a data set.

    Attributes:
        features: names of columns, in order.
        target: None: none, for a VAE or a reconstruction.
        objective: "classification", "regression" or "reconstruction"; None: of a VAE.
        feature_shape: (height, width) if the features are all of a picture, else empty.
    """

    features: tuple[str, ...]
    target: str | None = None
    objective: str | None = None
    feature_shape: tuple[int, ...] = ()


def check(spec: Spec, summary: Summary) -> Plan:
    """Return what a job takes of the data set with this summary.

    Raises:
        SpecError: it cannot be done with it; the field is the one to change.
    """
    if isinstance(spec, VaeSpec):
        return _Fit(spec, summary).vae()
    if isinstance(spec, SparseRegressionSpec):
        return _Regression(spec, summary).plan()
    return _Selection(spec, summary).plan()


class _Fit:
    """The checks of all kinds."""

    def __init__(self, spec: Spec, summary: Summary) -> None:
        self.spec, self.summary = spec, summary

    def refuse(self, field: str, must: str, got: object) -> NoReturn:
        raise SpecError(f"{self.spec.kind}.{field}", must, got)

    def rows(self) -> None:
        """There must be enough for every part."""
        rows = self.summary.rows - self.summary.test_rows
        if rows < MIN_ROWS:
            self.refuse("dataset", f"must have at least {MIN_ROWS} rows", rows)
        shares = {"validation_share": self.spec.validation_share}
        if not self.summary.test_rows:
            shares["test_share"] = self.spec.test_share
        for name, share in shares.items():
            if round(share * rows) < 1:
                self.refuse(name, f"must be a row or more of {rows}", share)

    def vae(self) -> Plan:
        summary = self.summary
        features = tuple(name for name in summary.names() if name != summary.target)
        columns = [column for column in summary.columns if column.name != summary.target]
        if not features:
            self.refuse("dataset", "must have columns beside its target", "none")
        texts = [column for column in columns if not column.is_number]
        if texts:
            self.refuse("dataset", "columns must be numbers", _of(texts, "text in"))
        self.reproducible(columns)
        self.rows()
        return Plan(features, feature_shape=summary.example_shape)

    def reproducible(self, columns: Sequence[Column]) -> None:
        """What is to be made again must be there, and be probabilities."""
        missing = _missing(columns, self.summary)
        if missing:
            self.refuse("dataset", "must have a value in every cell", missing)
        self._unit_interval(columns)

    def _unit_interval(self, columns: Sequence[Column]) -> None:
        must = "columns must lie in [0, 1]"
        if (pixels := self.summary.pixels) is not None and not 0 <= pixels.min <= pixels.max <= 1:
            self.refuse("dataset", must, f"values from {pixels.min:g} to {pixels.max:g}")
        for column in columns:
            low, high = column.min, column.max
            if low is not None and high is not None and not 0 <= low <= high <= 1:
                got = f"values from {low:g} to {high:g} in {column.name!r}"
                self.refuse("dataset", must, got)


class _Prediction(_Fit):
    """The checks of what chooses columns that predict another."""

    spec: FeatureSelectionSpec | SparseRegressionSpec

    def plan(self) -> Plan:
        target = self._target()
        ignored = set(self._known_ignored(target.name))
        names = self.summary.names()
        features = tuple(name for name in names if name != target.name and name not in ignored)
        objective = self._objective(target)
        columns = [self.summary.by_name[name] for name in features if name in self.summary.by_name]
        self._numbers(columns)
        self._complete(columns)
        self._k(features, columns)
        self.rows()
        whole = self.summary.pixels is not None and not ignored
        return Plan(features, target.name, objective, self.summary.example_shape if whole else ())

    def _target(self) -> Column:
        summary, name = self.summary, self.spec.target
        if name is None and summary.target is None:
            such = _listed(summary.by_name)
            self.refuse("target", "must name a column, for the data set has no target", such)
        name = name if name is not None else summary.target
        assert name is not None
        column = summary.by_name.get(name)
        if column is None:
            self.refuse("target", f"must be a column{_like(name, summary.by_name)}", repr(name))
        if column.missing:
            got = f"{column.missing} rows without one in {name!r}"
            self.refuse("target", "must have a value in every row", got)
        return column

    def _known_ignored(self, target: str | None) -> tuple[str, ...]:
        known = set(self.summary.names())
        for name in self.spec.ignore:
            if name not in known:
                must = f"must name columns{_like(name, self.summary.names())}"
                self.refuse("ignore", must, repr(name))
            if name == target:
                self.refuse("ignore", "must not name the target", repr(name))
        return self.spec.ignore

    def _objective(self, target: Column) -> str:
        raise NotImplementedError

    def _varied(self, target: Column) -> None:
        """A target of numbers must have different ones."""
        if target.distinct == 1:
            self.refuse("target", "must have different values", f"one in {target.name!r}")

    def _numbers(self, columns: Sequence[Column]) -> None:
        texts = [column for column in columns if not column.is_number]
        if texts:
            self.refuse("ignore", "must name all columns of text", _of(texts, "not"))

    def _complete(self, columns: Sequence[Column]) -> None:
        missing = _missing(columns, self.summary)
        if self.spec.missing == "refuse" and missing:
            self.refuse("missing", "must be impute where values are missing", missing)
        empty = [column for column in columns if not column.distinct]
        if empty:
            self.refuse("ignore", "must name all columns without a value", _of(empty, "not"))

    def _k(self, features: Sequence[str], columns: Sequence[Column]) -> int:
        """Check k; return how many features are not constant."""
        n, k = len(features), self.spec.k
        if n < 2:
            self.refuse("dataset", "must have at least 2 features", n)
        if k is not None and k >= n:
            self.refuse("k", f"must be less than {n}, the number of features", k)
        constant = sum(column.distinct == 1 for column in columns)
        if self.summary.pixels is not None:
            constant = self.summary.pixels.constant
        if constant >= n:
            self.refuse("dataset", "must have a feature that is not constant", f"{n} constant ones")
        if k is not None and k > n - constant:
            must = f"must be at most {n - constant}, the number of features that are not constant"
            self.refuse("k", must, k)
        return n - constant


class _Selection(_Prediction):
    """The checks of a feature selection."""

    spec: FeatureSelectionSpec

    def plan(self) -> Plan:
        if self.spec.objective != RECONSTRUCTION:
            return super().plan()
        ignored = {*self._known_ignored(None), self.summary.target}
        features = tuple(name for name in self.summary.names() if name not in ignored)
        columns = [self.summary.by_name[name] for name in features if name in self.summary.by_name]
        self._numbers(columns)
        self.reproducible(columns)
        self._k(features, columns)
        self.rows()
        whole = self.summary.pixels is not None and not self.spec.ignore
        shape = self.summary.example_shape if whole else ()
        return Plan(features, None, RECONSTRUCTION, shape)

    def _objective(self, target: Column) -> str:
        suggested = "regression" if target.type is ColumnType.FLOAT else "classification"
        objective = self.spec.objective or suggested
        if objective == "regression":
            if not target.is_number:
                must = f"must be classification, for the target {target.name!r} is text"
                self.refuse("objective", must, "regression")
            self._varied(target)
            return objective
        if target.distinct > MAX_CLASSES:
            or_else = ", or the objective must be regression" if target.is_number else ""
            must = f"must have at most {MAX_CLASSES} classes{or_else}"
            self.refuse("target", must, f"more in {target.name!r}")
        assert target.rarest is not None
        text, count = target.rarest
        if target.distinct == 1:
            self.refuse("target", "must have at least 2 classes", f"{text!r} alone")
        if count < MIN_CLASS_ROWS:
            must = f"must have at least {MIN_CLASS_ROWS} rows of every class"
            self.refuse("target", must, f"{count} of {text!r} in {target.name!r}")
        return objective

    def _k(self, features: Sequence[str], columns: Sequence[Column]) -> int:
        varying, first = super()._k(features, columns), self.spec.initial_k
        if first is not None and first >= varying:
            must = f"must be less than {varying}, the number of features that are not constant"
            self.refuse("initial_k", must, first)
        return varying


class _Regression(_Prediction):
    """The checks of a sparse regression."""

    spec: SparseRegressionSpec

    def _objective(self, target: Column) -> str:
        if not target.is_number:
            self.refuse("target", "must be numbers", f"text in {target.name!r}")
        self._varied(target)
        return "regression"

    def _k(self, features: Sequence[str], columns: Sequence[Column]) -> int:
        if len(features) > MAX_TERMS:
            must = f"must have at most {MAX_TERMS} features, or more of them in ignore"
            self.refuse("dataset", must, len(features))
        return super()._k(features, columns)


def _missing(columns: Iterable[Column], summary: Summary) -> str:
    """Which values are missing, in words; empty: none."""
    if summary.pixels is not None and summary.pixels.missing:
        return f"{summary.pixels.missing} pixels without one"
    lacking = [column for column in columns if column.missing]
    named = ", ".join(f"{column.missing} in {column.name!r}" for column in lacking[:NAMED])
    more = f" and others in {len(lacking) - NAMED} more" if len(lacking) > NAMED else ""
    return f"{named}{more}" if lacking else ""


def _of(columns: Sequence[Column], what: str) -> str:
    return f"{what} {_listed([column.name for column in columns])}"


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(map(repr, names[:NAMED])) + more


def _like(name: str, names: Iterable[str]) -> str:
    """Which columns may have been meant."""
    searched = list(islice(names, SEARCHED))
    near = difflib.get_close_matches(name, searched, 3, 0.5)
    found = near or searched[:NAMED]
    return f", such as {_listed(found)}"
