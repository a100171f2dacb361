"""Learn which k features a classifier needs.

A mask is drawn for each example in each step, and the mask logits learn with the
network, at a higher rate: their gradient is the small one. An estimator that learns from
the values of losses gets that of each example, less the mean of the others' in the batch,
which does not depend on the example's own mask. All that
is random comes from three seeds made of the config's one: initial weights, order
(by epoch), and masks (by the index of the example in the whole training).
"""

from dataclasses import asdict, dataclass

import torch
from torch import Tensor
from torch.nn import functional

from khot import _random
from khot._checks import refuse
from khot.estimators import with_losses
from khot.models.feature_selector import ESTIMATORS, FeatureSelector
from khot.training.loop import Callbacks, Checkpoint, Examples, Task, run

_WHO = "train_feature_selector"


@dataclass(frozen=True, kw_only=True)
class FeatureSelectionConfig:
    """How to train; with the data, it decides every bit of the result.

    Attributes:
        k: features to choose, from 1 to all.
        epochs: passes over the training data.
        batch_size: examples in a step.
        hidden: widths of the network's hidden layers.
        learning_rate: Adam's for the network.
        mask_learning_rate: Adam's for the mask logits.
        tau: temperature of the mask.
        last_tau: the same at the end, reached by equal factors; None: it stays.
        estimator: of the mask's gradient, one of `khot.models.feature_selector.ESTIMATORS`.
        seed: of initialisation, order and masks.
    """

    k: int
    epochs: int = 30
    batch_size: int = 64
    hidden: tuple[int, ...] = (64,)
    learning_rate: float = 1e-2
    mask_learning_rate: float = 7e-2
    tau: float = 1.0
    last_tau: float | None = None
    estimator: str = "pi_st"
    seed: int = 0

    def __post_init__(self) -> None:
        who = "FeatureSelectionConfig"
        for name in ("k", "epochs", "batch_size"):
            if not _is_positive_integer(value := getattr(self, name)):
                refuse(who, f"{name} must be an integer of at least 1", repr(value))
        if not isinstance(self.hidden, tuple) or not all(map(_is_positive_integer, self.hidden)):
            refuse(who, "hidden must be a tuple of integers of at least 1", repr(self.hidden))
        if self.estimator not in ESTIMATORS:
            refuse(who, f"estimator must be one of {', '.join(ESTIMATORS)}", repr(self.estimator))
        for name in ("learning_rate", "mask_learning_rate", "tau", "last_tau"):
            value = getattr(self, name)
            if name == "last_tau" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                refuse(who, f"{name} must be a number", repr(value))
            # beyond, Adam's step is no float32; where it merely diverges, training says so
            if not 0 < value <= 1e30:
                refuse(who, f"{name} must be in (0, 1e30]", repr(value))
        if not isinstance(self.seed, int) or not -(2**63) <= self.seed < 2**64:
            refuse(who, "seed must be an integer of 64 bits", repr(self.seed))

    def tau_at(self, share: float) -> float:
        """Return the temperature when this share of the training is done."""
        if self.last_tau is None:
            return self.tau
        return float(self.tau ** (1 - share) * self.last_tau**share)


@dataclass(frozen=True)
class FeatureSelectionResult:
    """What was learned.

    Attributes:
        features: the k chosen, ascending.
        scores: the mask logit of every feature.
        test_loss: cross-entropy on the test examples, with the chosen features only.
        test_accuracy: share of the test examples classified correctly, likewise.
    """

    features: tuple[int, ...]
    scores: tuple[float, ...]
    test_loss: float
    test_accuracy: float


def train_feature_selector(
    config: FeatureSelectionConfig,
    train: Examples,
    test: Examples,
    *,
    resume: Checkpoint | None = None,
    callbacks: Callbacks | None = None,
) -> FeatureSelectionResult | None:
    """Train a `khot.models.FeatureSelector`; return what it chose, or None if it was stopped.

    Args:
        config: how to train.
        train: the examples to learn from.
        test: held out; measured with the k largest mask logits at each epoch's end.
        resume: a checkpoint of a training with this config on data of these shapes:
            it goes on from there, bit for bit as if it had never stopped.
        callbacks: who is told of progress and checkpoints, and may stop it.

    Raises:
        ValueError: train and test do not fit each other or k, or resume is not a
            checkpoint of this training.
        Diverged: a loss or a parameter is no longer finite.
    """
    n = train.x.shape[1]
    if test.x.shape[1] != n:
        refuse(_WHO, f"test must have the {n} features of train", str(test.x.shape[1]))
    if config.k > n:
        refuse(_WHO, f"k must be in [1, {n}], the number of features", str(config.k))
    task = _FeatureSelection(config, train, test)
    if not run(task, resume=resume, callbacks=callbacks or Callbacks()):
        return None
    chosen, scores = task.selector.chosen(), task.selector.logits.detach()
    return FeatureSelectionResult(tuple(chosen.tolist()), tuple(scores.tolist()), **task.evaluate())


class _FeatureSelection(Task):
    def __init__(self, config: FeatureSelectionConfig, train: Examples, test: Examples) -> None:
        self.config, self.train, self.test = config, train, test
        weights, order, masks = _random.row_seeds(config.seed, 3)
        self.order_seed, self.mask_seed = order.reshape(1), int(masks)
        self.selector = self._selector(int(weights))
        super().__init__(
            who=_WHO,
            identity={
                "kind": "feature_selection",
                "config": asdict(config),
                "shapes": [list(examples.x.shape) for examples in (train, test)],
            },
            model=self.selector,
            optimizer=torch.optim.Adam(
                [
                    {"params": self.selector.network.parameters(), "lr": config.learning_rate},
                    {"params": [self.selector.logits], "lr": config.mask_learning_rate},
                ]
            ),
            epochs=config.epochs,
            steps_per_epoch=-(-len(train.x) // config.batch_size),
        )

    def _selector(self, seed: int) -> FeatureSelector:
        n = self.train.x.shape[1]
        classes = int(max(self.train.y.max(), self.test.y.max())) + 1
        # torch's layers take their first weights from the global generator only
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = FeatureSelector(
                n,
                classes,
                self.config.k,
                hidden=self.config.hidden,
                tau=self.config.tau,
                estimator=self.config.estimator,
            )
        return model.to(self.train.x.device)

    def loss(self, step: int) -> tuple[Tensor, Tensor | None]:
        epoch, batch = divmod(step, self.steps_per_epoch)
        size = self.config.batch_size
        rows = self._order(epoch)[batch * size : (batch + 1) * size]
        seeds = _random.row_seeds(self.mask_seed, len(rows), first=step * size)
        self.selector.tau = self.config.tau_at(step / (self.epochs * self.steps_per_epoch))
        masks, diagnostics = self.selector.draw(len(rows), seeds=seeds)
        seen = masks.detach() if self.selector.needs_loss else masks
        out = self.selector.classify(self.train.x[rows], seen)
        losses = functional.cross_entropy(out, self.train.y[rows], reduction="none")
        if self.selector.needs_loss:
            losses = with_losses(masks, losses, baseline=_means_of_others(losses.detach()))
        return losses.mean(), None if diagnostics is None else diagnostics.iterations

    def _order(self, epoch: int) -> Tensor:
        """The order of the examples in this epoch; the last one asked for is kept."""
        if self._kept is None or self._kept[0] != epoch:
            order = _random.permutations(self.order_seed, len(self.train.x), sample=epoch)
            self._kept = epoch, order[0]
        return self._kept[1]

    _kept: tuple[int, Tensor] | None = None

    def evaluate(self) -> dict[str, float]:
        self.selector.eval()
        with torch.no_grad():
            out = self.selector(self.test.x)
            loss = functional.cross_entropy(out, self.test.y)
            accuracy = (out.argmax(-1) == self.test.y).double().mean()
        return {"test_loss": float(loss), "test_accuracy": float(accuracy)}


def _means_of_others(losses: Tensor) -> Tensor:
    """For each loss the mean of all others; 0 for one alone."""
    return (losses.sum() - losses) / max(len(losses) - 1, 1)


def _is_positive_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
