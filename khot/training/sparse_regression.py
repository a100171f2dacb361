"""Learn which k columns a linear model needs, and solve for its coefficients.

In each step, subsets of k columns are drawn from the law that the logits make, each costs what
ridge regression on its columns leaves of the target, and the logits learn by the mean cost. What a
subset costs, and what its gradient is, says `khot/models/_subset_risk.py`: in the form of moments,
so that a step sees all training examples and costs the same however many they are. An estimator
that learns from the values of losses gets that of each subset, less the mean of the others' in the
step.

An epoch is the steps from one evaluation to the next. There the likeliest subset, which is the k
largest logits, is given the coefficients of least squares, without the ridge, and tried on the
validation examples. The one kept is the best of those in the last quarter, when the law has
settled. The rate falls to 0 along half a cosine, as in a feature selection.

It begins with all columns alike, and all that is random comes from the config's seed, by the step.
"""

import math
import warnings
from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor

from khot import _random
from khot._checks import refuse
from khot._solve import Diagnostics
from khot.estimators import with_losses
from khot.models._subset_risk import orthogonal_matching_pursuit, subset_risk
from khot.models.feature_selector import check_estimator
from khot.models.sparse_regressor import SparseRegressor, predicted
from khot.training._adam import Adam
from khot.training._selection import means_of_others
from khot.training.data import Examples, Split
from khot.training.loop import PROGRESS_STEPS, Callbacks, Checkpoint, Diverged, Stage, Task, run
from khot.training.task import defaults

_WHO = "train_sparse_regression"

STEPS_PER_EPOCH = 20


@dataclass(frozen=True, kw_only=True)
class SparseRegressionConfig:
    """How to train; with the data, it decides every bit of the result.

    Attributes:
        k: columns to choose, from 1 to all that are not constant.
        intercept: whether the model has one.
        estimator: of the gradient through the draws, any of the registry that takes k.
        steps: how many; the last 20 begun are ended.
        num_samples: subsets that are drawn in a step, at least 2.
        learning_rate: Adam's for the logits, at the beginning; it falls to 0.
        tau: temperature of the draws.
        last_tau: the same at the end, reached by equal factors; None: it stays.
        ridge: rho, in units of the mean square of the target, with columns of mean square 1. The
            coefficients that are reported are without.
        references: compare with all columns, and with k by orthogonal matching pursuit.
        seed: of the draws.
    """

    k: int
    intercept: bool = True
    estimator: str = "gumbel_sigmoid"
    steps: int = 400
    num_samples: int = 16
    learning_rate: float = 0.1
    tau: float = 1.0
    last_tau: float | None = None
    ridge: float = 1e-4
    references: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        who = "SparseRegressionConfig"
        for name, least in {"k": 1, "steps": 1, "num_samples": 2}.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                refuse(who, f"{name} must be an integer of at least {least}", repr(value))
        check_estimator(who, self.estimator, self.k)
        for name in ("learning_rate", "tau", "last_tau", "ridge"):
            value = getattr(self, name)
            if name == "last_tau" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                refuse(who, f"{name} must be a number", repr(value))
            # beyond, Adam's step is no float32; where it merely diverges, training says so
            if not 0 < value <= 1e30:
                refuse(who, f"{name} must be in (0, 1e30]", repr(value))
        for name in ("intercept", "references"):
            if not isinstance(value := getattr(self, name), bool):
                refuse(who, f"{name} must be True or False", repr(value))
        if not isinstance(self.seed, int) or not -(2**63) <= self.seed < 2**64:
            refuse(who, "seed must be an integer of 64 bits", repr(self.seed))

    @property
    def steps_per_epoch(self) -> int:
        """Steps from one evaluation to the next."""
        return min(STEPS_PER_EPOCH, self.steps)

    @property
    def epochs(self) -> int:
        """How many evaluations there are."""
        return -(-self.steps // self.steps_per_epoch)

    def tau_at(self, share: float) -> float:
        """Return the temperature when this share of the training is done."""
        if self.last_tau is None:
            return self.tau
        return float(self.tau ** (1 - share) * self.last_tau**share)


@dataclass(frozen=True)
class SparseRegressionResult:
    """What was learned.

    Metrics are `loss`, the mean squared error, `rmse` and `r2`, in the units of y.

    Attributes:
        features: the columns chosen, ascending.
        coefficients: of these, by least squares on the training examples, in the units of the data.
        intercept: 0 if there is none.
        scores: the logit of every column; -inf of those that are constant.
        inclusion_probabilities: of every column to be drawn, by these.
        constant: the columns that are constant in the training examples.
        test: metrics on the test examples.
        validation: metrics on the validation examples.
        references: metrics on the test examples of least squares on other columns: `all`, and
            `greedy`, k of them by orthogonal matching pursuit; empty if not wanted.
        stability: how far the choice had settled: the mean Jaccard similarity between it and those
            after each epoch of the last quarter, 1 if none differs.
        epochs_run: how many epochs there were, each of 20 steps.
        best_epoch: after which of them the model was kept, from 1.
        model: what was trained, in evaluation mode; it takes x as it is.
    """

    features: tuple[int, ...]
    coefficients: tuple[float, ...]
    intercept: float
    scores: tuple[float, ...]
    inclusion_probabilities: tuple[float, ...]
    constant: tuple[int, ...]
    test: dict[str, float]
    validation: dict[str, float]
    references: dict[str, dict[str, float]]
    stability: float
    epochs_run: int
    best_epoch: int
    model: SparseRegressor = field(compare=False, repr=False)


def train_sparse_regression(
    config: SparseRegressionConfig,
    split: Split,
    *,
    resume: Checkpoint | None = None,
    callbacks: Callbacks | None = None,
) -> SparseRegressionResult | None:
    """Train a `khot.models.SparseRegressor`; return what it chose, or None if it was stopped.

    Columns that are constant in the training examples are never chosen; a warning names them.

    Args:
        config: how to train.
        split: the examples, with targets.
        resume: a checkpoint of a training with this config on data of these shapes:
            it goes on from there, bit for bit as if it had never stopped.
        callbacks: who is told of progress and checkpoints, and may stop it.

    Raises:
        ValueError: the examples have classes, do not fit k, or have one target alone; or resume is
            not a checkpoint of this training.
        Diverged: a loss or a parameter is no longer finite.

    Example:
        >>> import torch
        >>> from khot.training import SparseRegressionConfig, split, train_sparse_regression
        >>> x = torch.randn(200, 12, generator=torch.Generator().manual_seed(0))
        >>> parts = split(x, 2 * x[:, 3] - x[:, 8] + 1, objective="regression")
        >>> result = train_sparse_regression(SparseRegressionConfig(k=2, steps=100), parts)
        >>> result.features, [round(c, 3) for c in result.coefficients], round(result.intercept, 3)
        ((3, 8), [2.0, -1.0], 1.0)
    """
    split.train.of("regression")
    task = _SparseRegression(config, split)
    constant = tuple(task.regressor.constant.nonzero().flatten().tolist())
    if constant:
        names = ", ".join(map(str, constant))
        warnings.warn(f"{_WHO}: constant columns are never chosen; got {names}", stacklevel=2)
    stages = [Stage("regression", task.steps, lambda _: task)]
    outcomes = run(stages, resume=resume, callbacks=callbacks or Callbacks())
    if outcomes is None:
        return None
    outcome, regressor = outcomes["regression"], task.regressor.eval()
    chosen = regressor.chosen()
    with torch.no_grad():
        probabilities = regressor.inclusion_probabilities()
    return SparseRegressionResult(
        features=tuple(chosen.tolist()),
        coefficients=tuple(regressor.coefficients[chosen].tolist()),
        intercept=float(regressor.intercept),
        scores=tuple(regressor.scores().tolist()),
        inclusion_probabilities=tuple(probabilities.tolist()),
        constant=constant,
        test=_of(regressor, split.test),
        validation=_of(regressor, split.validation),
        references=task.references() if config.references else {},
        stability=task.stability(),
        epochs_run=outcome.epochs,
        best_epoch=outcome.epoch,
        model=regressor,
    )


class _SparseRegression(Task):
    def __init__(self, config: SparseRegressionConfig, split: Split) -> None:
        self.config, self.split = config, split
        x = split.train.x
        self.regressor = SparseRegressor(
            x.shape[1],
            config.k,
            intercept=config.intercept,
            tau=config.tau,
            estimator=config.estimator,
        ).to(x.device)
        self.moments = self.regressor.fit(x, split.train.y)
        parts = (split.train, split.validation, split.test)
        super().__init__(
            who=_WHO,
            identity={
                "kind": "sparse_regression",
                "config": asdict(config),
                "shapes": [list(part.x.shape) for part in parts],
            },
            model=self.regressor,
            optimizer=Adam([{"params": [self.regressor.logits]}]),
            epochs=config.epochs,
            steps_per_epoch=config.steps_per_epoch,
            unit=float(self.regressor.target_scale) ** 2,
            defaults=defaults(config),
        )

    def loss(self, step: int) -> tuple[Tensor, Diagnostics | None]:
        config, regressor = self.config, self.regressor
        falling = (1 + math.cos(math.pi * step / self.steps)) / 2
        self.optimizer.param_groups[0]["lr"] = config.learning_rate * falling
        regressor.tau = config.tau_at(step / max(self.steps - 1, 1))
        seeds = _random.row_seeds(config.seed, 1, first=step)[0]
        masks, solved = regressor.draw(
            config.num_samples,
            seeds=seeds.to(regressor.logits.device),
            diagnostics=(step + 1) % PROGRESS_STEPS == 0,  # a sample of them tells as much
        )
        try:
            if not regressor.needs_loss:
                return subset_risk(masks, self.moments, config.ridge).mean(), solved
            losses = subset_risk(masks.detach(), self.moments, config.ridge)
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
            must = "ridge must be large enough for columns that are nearly the same"
            raise Diverged(f"{_WHO}: {must}; got {config.ridge}") from error
        return with_losses(masks, losses, baseline=means_of_others(losses)).mean(), solved

    def evaluate(self) -> dict[str, float]:
        self.regressor.solve(self.moments)
        self.memory.append(self.regressor.chosen().tolist())
        del self.memory[: -self._quarter]
        measured = _of(self.regressor, self.split.validation)
        return {f"validation_{name}": value for name, value in measured.items()}

    def eligible(self, epoch: int) -> bool:
        """In the last quarter."""
        return epoch > self.epochs - self._quarter

    @property
    def _quarter(self) -> int:
        return -(-self.epochs // 4)

    def stability(self) -> float:
        """Return how like the kept choice those of the last quarter were (Jaccard)."""
        kept = set(self.regressor.chosen().tolist())
        shares = (len(kept & set(a)) / len(kept | set(a)) for a in self.memory)
        return math.fsum(shares) / len(self.memory)

    def references(self) -> dict[str, dict[str, float]]:
        """Return what least squares on other columns does on the test examples."""
        constant = self.regressor.constant
        greedy = orthogonal_matching_pursuit(self.moments, self.config.k, constant)
        others = {"all": (~constant).nonzero().squeeze(-1), "greedy": greedy}
        return {
            name: _measured(self.split.test, *self.regressor.solved(self.moments, columns))
            for name, columns in others.items()
        }


def _of(regressor: SparseRegressor, examples: Examples) -> dict[str, float]:
    return _measured(examples, regressor.coefficients, regressor.intercept)


def _measured(examples: Examples, coefficients: Tensor, intercept: Tensor) -> dict[str, float]:
    y = examples.y.double()
    loss = float((predicted(examples.x, coefficients, intercept) - y).square().mean())
    variance = float(y.var(correction=0))
    r2 = 1 - loss / variance if variance > 0 else 0.0
    return {"loss": loss, "rmse": math.sqrt(loss), "r2": r2}
