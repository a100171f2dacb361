"""What a job learns from: the numbers of a table, as its spec wants them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from khot_server.datasets import fit
from khot_server.datasets.frame import Table
from khot_server.jobs.spec import Spec

X = NDArray[np.float32]
Y = NDArray[np.int64] | NDArray[np.float32]


@dataclass(frozen=True)
class Prepared:
    """Examples, not yet split, imputed or standardised.

    Attributes:
        x: (m, n) float32, NaN where a value is missing.
        y: (m,) int64 classes from 0, or float32; None: no target.
        names: of the n features.
        target: the name of y; None: no target.
        classes: as text, in the order of their numbers; empty in regression.
        objective: "classification", "regression" or "reconstruction"; None: of a VAE.
        feature_shape: (height, width) if an example is a picture, else empty.
        test: x and y of the data set's own test rows; None: it has none.
        sha256: of the data set, not of what was taken of it.
    """

    x: X
    y: Y | None
    names: tuple[str, ...]
    target: str | None
    classes: tuple[str, ...]
    objective: str | None
    feature_shape: tuple[int, ...]
    test: tuple[X, Y | None] | None
    sha256: str


def prepare(spec: Spec, table: Table) -> Prepared:
    """Return the examples of a job.

    Raises:
        SpecError: it cannot be done with this data set.
    """
    plan = fit.check(spec, table.summary)
    x = table.matrix(plan.features)
    y, classes = _target(plan, table)
    held = len(x) - table.summary.test_rows
    test = (x[held:], None if y is None else y[held:]) if held < len(x) else None
    return Prepared(
        x=x[:held],
        y=None if y is None else y[:held],
        names=plan.features,
        target=plan.target,
        classes=classes,
        objective=plan.objective,
        feature_shape=plan.feature_shape,
        test=test,
        sha256=table.sha256,
    )


def _target(plan: fit.Plan, table: Table) -> tuple[Y | None, tuple[str, ...]]:
    if plan.target is None:
        return None, ()
    if plan.objective == "regression":
        return table.numbers(plan.target).astype(np.float32), ()
    return table.classes(plan.target)


def impute(train: X, *others: X) -> tuple[tuple[X, ...], X | None]:
    """Return the arrays with the mean of a column in `train` for each of its missing values.

    A column without any value in `train` gets 0.

    Returns:
        the arrays, and what stands for a missing value of each column; None: none was missing.
    """
    arrays = (train, *others)
    missing = [np.isnan(x) for x in arrays]
    if not any(part.any() for part in missing):
        return arrays, None
    counts = (~missing[0]).sum(0)
    sums = np.where(missing[0], 0, train).sum(0, dtype=np.float64)
    fill = (sums / np.maximum(counts, 1)).astype(np.float32)
    filled = (np.where(part, fill, x) for part, x in zip(missing, arrays, strict=True))
    return tuple(filled), fill
