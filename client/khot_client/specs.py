"""What a job is to do and what it found: frozen data, with a repr to read.

The fields of a specification are those of job_spec.proto; what is None has the server's
default, which server/README.md lists.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from khot_client.errors import InvalidRequest
from khot_client.values import Shown


@dataclass(frozen=True)
class FeatureSelection:
    """The job that learns which columns of a table predict its target.

    Attributes:
        dataset: one that the server has, or the id of an uploaded one.
        k: how many columns to choose; None: it is learned, by `penalty`.
        epochs: passes over the training rows, at most.
        seed: of initialisation, order and masks.
        penalty: what each chosen column costs, in units of the loss.
        estimator: how the mask learns, by its name among `Client.list_operators()`.
        target: the column to predict.
        objective: classification, regression, or reconstruction of all columns by the chosen.
        ignore: columns that are neither features nor target.
        missing: refuse or impute.
        standardize: whether columns are brought to mean 0 and deviation 1.
        hidden: widths of the network's hidden layers.
        batch_size: examples in a step.
        learning_rate: of the network.
        mask_learning_rate: of the mask.
        tau: temperature of the mask at the start.
        last_tau: the same at the end.
        patience: epochs without a better validation loss after which to stop; 0: never.
        split_seed: of the split in training, validation and test rows.
        validation_share: of the rows.
        test_share: of the rows.
        references: whether to compare with all columns, and with random ones.
        initial_k: where a k that is learned begins.
        tuning: share of the epochs, the last ones, in which the choice stands still.
        weight_decay: of the network.
        hard: draw hard masks by an estimator that relaxes, with the gradients of relaxed ones.
    """

    kind: ClassVar[str] = "feature_selection"

    dataset: str = "digits"
    k: int | None = None
    epochs: int | None = None
    seed: int | None = None
    penalty: float | None = None
    estimator: str | None = None
    target: str | None = None
    objective: str | None = None
    ignore: tuple[str, ...] | None = None
    missing: str | None = None
    standardize: bool | None = None
    hidden: tuple[int, ...] | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    mask_learning_rate: float | None = None
    tau: float | None = None
    last_tau: float | None = None
    patience: int | None = None
    split_seed: int | None = None
    validation_share: float | None = None
    test_share: float | None = None
    references: bool | None = None
    initial_k: float | None = None
    tuning: float | None = None
    weight_decay: float | None = None
    hard: bool | None = None

    def __repr__(self) -> str:
        return _given(self)


@dataclass(frozen=True)
class Vae:
    """The job that learns to describe examples by `latents` vectors with k ones of n each.

    Attributes:
        dataset: one whose columns lie in [0, 1].
        latents: how many k-hot vectors.
        n: units of each vector.
        k: ones of each vector.
        estimator: how the codes learn, by its name among `Client.list_operators()`.
        prior: softmax, softmax_mean or exact.
        encoder: widths of its hidden layers.
        decoder: widths of its hidden layers.
        hard: train on hard codes (the default) by an estimator that relaxes, with the gradients of
            relaxed ones.
        strength: lambda of the estimator imle.
        noise: of the estimator imle, sum_of_gamma or gumbel.
        bound: tell also the `subset_elbo` of an estimator that has no `elbo`.
    """

    kind: ClassVar[str] = "vae"

    dataset: str = "digits"
    latents: int | None = None
    n: int | None = None
    k: int | None = None
    epochs: int | None = None
    seed: int | None = None
    estimator: str | None = None
    prior: str | None = None
    encoder: tuple[int, ...] | None = None
    decoder: tuple[int, ...] | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    tau: float | None = None
    last_tau: float | None = None
    patience: int | None = None
    split_seed: int | None = None
    validation_share: float | None = None
    test_share: float | None = None
    hard: bool | None = None
    strength: float | None = None
    noise: str | None = None
    bound: bool | None = None

    def __repr__(self) -> str:
        return _given(self)


@dataclass(frozen=True)
class SparseRegression:
    """The job that learns which columns of a table a linear model of its target needs.

    Attributes:
        dataset: one that the server has, or the id of an uploaded one.
        k: how many columns to choose.
        seed: of the draws.
        estimator: how the choice learns, by its name among `Client.list_operators()`.
        intercept: whether the model has one; an equation such as u_t = ... has none.
        steps: of training, each with all rows.
        num_samples: subsets that are drawn in a step.
        learning_rate: of the choice.
        tau: temperature of the draws at the start.
        ridge: of the regressions on drawn subsets; the coefficients of the result are without.
        references: whether to compare with all columns, and with greedily chosen ones.
    """

    kind: ClassVar[str] = "sparse_regression"

    dataset: str = "kuramoto-sivashinsky"
    k: int | None = None
    seed: int | None = None
    estimator: str | None = None
    target: str | None = None
    ignore: tuple[str, ...] | None = None
    missing: str | None = None
    intercept: bool | None = None
    steps: int | None = None
    num_samples: int | None = None
    learning_rate: float | None = None
    tau: float | None = None
    last_tau: float | None = None
    ridge: float | None = None
    split_seed: int | None = None
    validation_share: float | None = None
    test_share: float | None = None
    references: bool | None = None

    def __repr__(self) -> str:
        return _given(self)


Spec = FeatureSelection | Vae | SparseRegression


def _given(spec: Spec) -> str:
    """A repr of what is not left to the server."""
    known = ", ".join(
        f"{name}={value!r}" for name, value in vars(spec).items() if value is not None
    )
    return f"{type(spec).__name__}({known})"


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class FeatureSelectionResult(Shown):
    """What a feature selection learned.

    Attributes:
        features: indices of the chosen columns among the features, ascending, (k,).
        names: of the chosen columns.
        scores: the learned score of every feature, (n,); -inf for one that is constant.
        inclusion_probabilities: of every feature to be chosen in training, at its end, (n,).
        test: with the chosen columns, on held-out rows: `loss`, and `accuracy`, or `rmse` and
            `r2`; of a reconstruction the loss is the mean binary cross-entropy of a column.
        validation: the same on the rows by which the model was chosen.
        references: the same network on `all` columns and on k `random` ones, on held-out rows.
        stability: share of the choice that stayed the same towards the end of training, in [0, 1].
        feature_shape: of an example, such as (8, 8), if it is a picture.
        classes: in the order of the network's outputs.
        epochs_run: which early stopping may have made fewer.
        warnings: what one should know, such as columns that are constant.
    """

    features: NDArray[np.int64]
    names: tuple[str, ...] = ()
    scores: NDArray[np.float64]
    inclusion_probabilities: NDArray[np.float64]
    test: Mapping[str, float]
    validation: Mapping[str, float] = field(default_factory=dict)
    references: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    stability: float = 0.0
    feature_shape: tuple[int, ...] = ()
    classes: tuple[str, ...] = ()
    epochs_run: int = 0
    warnings: tuple[str, ...] = ()

    def transform(self, x: ArrayLike) -> NDArray[Any]:
        """Return the chosen columns of x (..., n), with all features in their order.

        Raises:
            InvalidRequest: x has another number of columns.
        """
        return _columns(x, self.features, len(self.scores))


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class VaeResult(Shown):
    """What a VAE reached.

    Attributes:
        test: means over held-out examples: `reconstruction`, `prior`, their sum `loss` but with
            the exact prior, and `elbo` where the estimator draws by the k-subset law; with
            `bound`, `subset_elbo` where it does not. `top_reconstruction` is that of the codes
            with the k largest logits, not of drawn ones.
        validation: the same on the examples by which the model was chosen.
        usage: mean probability of every unit to be one, (latents, n).
        epochs_run: which early stopping may have made fewer.
        warnings: what one should know.
    """

    test: Mapping[str, float]
    validation: Mapping[str, float]
    usage: NDArray[np.float64]
    epochs_run: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class SparseRegressionResult(Shown):
    """The linear model that a sparse regression found: target = coefficients @ columns + intercept.

    Attributes:
        features: indices of the chosen columns among the features, ascending, (k,).
        names: of the chosen columns.
        coefficients: of the chosen columns, in the units of the data, (k,).
        intercept: 0 if there is none.
        target: the column that is predicted.
        scores: the learned score of every feature, (n,); -inf for one that is constant.
        inclusion_probabilities: of every feature to be drawn, at the end, (n,).
        test: on held-out rows: `loss`, `rmse` and `r2`.
        validation: the same on the rows by which the model was chosen.
        references: the same of least squares on `all` columns, and on k that are chosen
            `greedy`, by orthogonal matching pursuit, on held-out rows.
        stability: share of the choice that stayed the same towards the end of training, in [0, 1].
        epochs_run: how many evaluations there were.
        warnings: what one should know, such as columns that are constant.
    """

    features: NDArray[np.int64]
    names: tuple[str, ...]
    coefficients: NDArray[np.float64]
    intercept: float
    target: str
    scores: NDArray[np.float64]
    inclusion_probabilities: NDArray[np.float64]
    test: Mapping[str, float]
    validation: Mapping[str, float] = field(default_factory=dict)
    references: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    stability: float = 0.0
    epochs_run: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def equation(self) -> str:
        """The model, such as `v_t = -1.000 v_xx - 1.000 v_xxxx - 1.000 v*v_x`."""
        said = [
            f"{_signed(value)} {name}"
            for value, name in zip(self.coefficients.tolist(), self.names, strict=True)
        ]
        right = " ".join([*said, *([_signed(self.intercept)] if self.intercept else [])])
        # of the first, the sign is that of its number
        return f"{self.target} = {right[2:] if right[0] == '+' else '-' + right[2:]}"

    def transform(self, x: ArrayLike) -> NDArray[Any]:
        """Return the chosen columns of x (..., n), with all features in their order.

        Raises:
            InvalidRequest: x has another number of columns.
        """
        return _columns(x, self.features, len(self.scores))

    def predict(self, x: ArrayLike) -> NDArray[np.float64]:
        """Return the predictions (...) of rows x (..., n), with all features in their order.

        Raises:
            InvalidRequest: x has another number of columns.
        """
        predictions: NDArray[np.float64] = self.transform(x) @ self.coefficients + self.intercept
        return predictions

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.equation!r}, test={dict(self.test)!r})"


Result = FeatureSelectionResult | VaeResult | SparseRegressionResult


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'} {abs(value):#.4g}".removesuffix(".")


def _columns(x: ArrayLike, features: NDArray[np.int64], n: int) -> NDArray[Any]:
    rows = np.asarray(x)
    if rows.ndim == 0 or rows.shape[-1] != n:
        must = f"must have the {n} features of the job in its last dimension"
        raise InvalidRequest(f"x: {must}; got shape {rows.shape}", field="x")
    chosen: NDArray[Any] = rows[..., features]
    return chosen
