"""Feature selection as scikit-learn has it. Importing this imports scikit-learn.

Here or on a server, the same training makes the same choice: the same rows are split by the same
seed, and trained on with the same options. The library and the service both want rows to test
with; the choice does not depend on them, so they get one.
"""

import uuid
import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from khot_client import Client, FeatureSelection, FeatureSelectionResult, KhotError

if TYPE_CHECKING:
    from khot.training import FeatureSelectionResult as LocalResult

__all__ = ["KHotSelector"]

AUTO = "auto"
OBJECTIVES = {
    "binary": "classification",
    "multiclass": "classification",
    "continuous": "regression",
}
CANCEL_S = 5.0  # for a job to end, before which it cannot be deleted
MIN_ROWS = 3  # one to learn from, one to choose by, one to test with
# Parameters that the library and the service have under the same names.
PASSED_ON = (
    "estimator",
    "epochs",
    "learning_rate",
    "mask_learning_rate",
    "batch_size",
    "tau",
    "patience",
    "standardize",
)


class KHotSelector(SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """Choose the k columns that a small network needs, learned together with it.

    In training, the network sees of each example only k columns, drawn by scores that learn
    with it; those of the greatest scores at the end are chosen. So columns are judged by
    what they add to each other, not one by one. `khot.training` has the details.

    Args:
        n_features_to_select: a whole number of columns; a share of them in (0, 1), rounded; None:
            half of them; "auto": as many as are worth `penalty` each.
        estimator: of the gradient through the draw, by its name in khot's registry; None: the
            default of khot.training, which is the service's too. With "auto" it must be None, or
            `pi_st_implicit`, the only one that can.
        objective: "classification" or "regression"; None: regression if y has fractions
            (`type_of_target` says "continuous").
        epochs: passes over the training rows, at most; None: as many as make 4000 steps, but
            from 20 to 200.
        hidden: widths of the network's hidden layers; none makes it linear.
        learning_rate: Adam's for the network.
        mask_learning_rate: Adam's for the scores.
        batch_size: rows in a step.
        tau: temperature of the draws at the start.
        last_tau: the same at the end; None: it stays.
        patience: end after this many epochs without a lower loss on the validation rows; None:
            never.
        penalty: with "auto", what each column costs, in units of the loss.
        validation_fraction: share of the rows by which models are compared; at least one row is.
        standardize: subtract means and divide by standard deviations, within the training only.
        random_state: of the split, initialisation, order and draws; an int for the same choice
            every time.
        address: host:port of a khot service that is to do the training, and keeps nothing of it;
            None: it is done here, which needs torch.
        token: for that service; better left to `$KHOT_TOKEN`, for a repr shows it.
        tls: of the connection, as in `Client`.

    Attributes:
        scores_: the learned score of each column, a logit, (n,); -inf of those that are constant.
        inclusion_probabilities_: of each column to be drawn at the end of training, (n,).
        support_: which columns are chosen, (n,) of truth values.
        n_features_: how many they are.
        classes_: the labels of y; only in classification.
        n_features_in_: columns seen in `fit`.
        feature_names_in_: their names, if X had all of them as text.

    Columns that are constant are chosen last. Where no more of the others are there than are
    wanted, nothing is learned: all their scores are 0.
    """

    classes_: NDArray[Any]

    def __init__(
        self,
        *,
        n_features_to_select: int | float | str | None = None,
        estimator: str | None = None,
        objective: str | None = None,
        epochs: int | None = None,
        hidden: tuple[int, ...] = (256,),
        learning_rate: float = 5e-3,
        mask_learning_rate: float = 7e-2,
        batch_size: int = 64,
        tau: float = 1.0,
        last_tau: float | None = 0.1,
        patience: int | None = None,
        penalty: float = 0.01,
        validation_fraction: float = 0.1,
        standardize: bool = True,
        random_state: int | np.random.RandomState | None = None,
        address: str | None = None,
        token: str | None = None,
        tls: bool | str | None = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.estimator = estimator
        self.objective = objective
        self.epochs = epochs
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.mask_learning_rate = mask_learning_rate
        self.batch_size = batch_size
        self.tau = tau
        self.last_tau = last_tau
        self.patience = patience
        self.penalty = penalty
        self.validation_fraction = validation_fraction
        self.standardize = standardize
        self.random_state = random_state
        self.address = address
        self.token = token
        self.tls = tls

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn which columns to choose.

        Args:
            X: finite numbers (m, n), m at least 3.
            y: classes or numbers (m,).

        Raises:
            ValueError: X, y or a parameter cannot be used.
            ImportError: torch is not there, and no address given.
            KhotError: the service cannot be reached, or refuses: it wants 10 rows, and 3 of each
                class.
        """
        x, target = validate_data(self, X, y, dtype=np.float32, ensure_min_samples=MIN_ROWS)
        work = _Work(x, *self._target(target), self._k(x.shape[1]))
        varying = (x != x[0]).any(0)
        left = int(varying.sum())
        if not left:
            _refuse("X must have a column that is not constant", f"{len(varying)} constant ones")
        self.scores_ = np.where(varying, 0.0, -np.inf)
        self.inclusion_probabilities_ = varying.astype(np.float64)
        wanted = work.k or 1
        chosen = np.argsort(~varying, kind="stable")[:wanted]
        if wanted < left:
            result = self._here(work) if self.address is None else self._there(work)
            self.scores_ = np.asarray(result.scores, np.float64)
            self.inclusion_probabilities_ = np.asarray(result.inclusion_probabilities, np.float64)
            chosen = np.asarray(result.features)
        self.support_ = np.isin(np.arange(len(varying)), chosen)
        self.n_features_ = len(chosen)
        return self

    def _target(self, y: NDArray[Any]) -> tuple[NDArray[Any], str]:
        """The classes of y as numbers from 0, or its numbers; and the objective."""
        if hasattr(self, "classes_"):
            del self.classes_  # of another y
        objective = self.objective
        if objective is None:
            kind = type_of_target(y, input_name="y", raise_unknown=True)
            if (objective := OBJECTIVES.get(kind)) is None:
                _refuse(f"y must be of a type of {', '.join(OBJECTIVES)}", kind)
        if objective == "regression":
            return np.asarray(y, np.float32), objective
        if objective != "classification":
            _refuse("objective must be classification, regression or None", repr(objective))
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            _refuse("y must have at least 2 classes", "1 class")
        return codes.astype(np.int64), objective

    def _k(self, n: int) -> int | None:
        """How many of n columns are wanted; None: that is to be learned."""
        wanted = _plain(self.n_features_to_select)
        if wanted is None:
            return max(1, n // 2)
        if wanted == AUTO:
            return None
        if isinstance(wanted, int) and not isinstance(wanted, bool) and 1 <= wanted <= n:
            return wanted
        if isinstance(wanted, float) and 0 < wanted < 1:
            return max(1, round(wanted * n))
        must = f"must be a whole number in [1, {n}], a share in (0, 1), {AUTO!r} or None"
        _refuse(f"n_features_to_select {must}", repr(wanted))

    def _options(self, work: "_Work") -> dict[str, Any]:
        """What the library and the service are told alike."""
        return {name: _plain(getattr(self, name)) for name in PASSED_ON} | {
            "k": work.k,
            "objective": work.objective,
            "penalty": _plain(self.penalty) if work.k is None else None,
            "hidden": tuple(map(_plain, self.hidden)),
            "last_tau": _plain(self.tau if self.last_tau is None else self.last_tau),
            "references": False,
            "seed": check_random_state(self.random_state).randint(np.iinfo(np.int32).max),
        }

    def _shares(self, rows: int) -> dict[str, Any]:
        """Of the rows to choose models by, and of the one to test with."""
        fraction = _plain(self.validation_fraction)
        if not isinstance(fraction, float) or not 0 < fraction < 1:
            _refuse("validation_fraction must be a number in (0, 1)", repr(fraction))
        return {"validation": max(fraction, 1 / rows), "test": 1 / rows}

    def _here(self, work: "_Work") -> "LocalResult":
        try:
            import torch

            from khot.training import FeatureSelectionConfig, split, train_feature_selector
        except ImportError as error:
            must = "without an address, torch must be there: pip install 'khot[torch]'"
            raise ImportError(f"KHotSelector: {must}; got: {error}") from error
        config = FeatureSelectionConfig(**self._options(work))
        # copies: torch takes neither what is read-only nor steps backwards
        x, y = (torch.from_numpy(np.array(values, order="C")) for values in (work.x, work.y))
        parts = split(
            x,
            y,
            objective=work.objective,
            seed=config.seed,
            **self._shares(len(work.x)),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of constant columns: scores_ tell
            result = train_feature_selector(config, parts)
        assert result is not None  # nobody stops it
        return result

    def _there(self, work: "_Work") -> FeatureSelectionResult:
        options = self._options(work)
        shares = {f"{name}_share": share for name, share in self._shares(len(work.x)).items()}
        with Client(self.address, token=self.token, tls=self.tls) as client:
            # an id of its own: a fit beside this one may have the same rows, and deletes its own
            own = uuid.uuid4().hex
            dataset = client.upload(work.x, work.y, name="KHotSelector", upload_id=own)
            spec = FeatureSelection(
                dataset=dataset.id, split_seed=options["seed"], **options, **shares
            )
            try:
                return _result(client, spec)
            finally:
                with suppress(KhotError):  # what was learned, or went wrong, counts more
                    client.delete_dataset(dataset.id)

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        return self.support_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


@dataclass(frozen=True)
class _Work:
    """What to learn from: x (m, n), y (m,), for which objective; and how many to choose."""

    x: NDArray[np.float32]
    y: NDArray[Any]
    objective: str
    k: int | None


def _result(client: Client, spec: FeatureSelection) -> FeatureSelectionResult:
    """What the job found, that is then gone from the server."""
    job = client.submit(spec, labels={"from": "KHotSelector"})
    try:
        result = job.wait()
    except KeyboardInterrupt:
        with suppress(KhotError):  # it was cancelled, as nobody else would want it
            job.cancel()
            job.wait(CANCEL_S)
        raise
    finally:
        with suppress(KhotError):
            job.delete()
    assert isinstance(result, FeatureSelectionResult)
    return result


def _plain(value: Any) -> Any:
    """Python's own number for numpy's, as grids of parameters have them."""
    return value.item() if isinstance(value, np.generic) else value


def _refuse(must: str, got: str) -> NoReturn:
    raise ValueError(f"KHotSelector: {must}; got {got}")
