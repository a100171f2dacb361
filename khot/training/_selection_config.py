"""How to train a feature selector."""

from dataclasses import dataclass

from khot._checks import check_choice, refuse
from khot.models.feature_selector import LEARNS_K, check_estimator
from khot.training.data import OBJECTIVES

_WHO = "FeatureSelectionConfig"

# An epoch of few examples has few steps: by default there are as many epochs as make so many
# steps, and at most and at least so many epochs.
STEPS, MOST_EPOCHS, LEAST_EPOCHS = 4000, 200, 20


@dataclass(frozen=True, kw_only=True)
class FeatureSelectionConfig:
    """How to train; with the data, it decides every bit of the result.

    Attributes:
        k: features to choose, from 1 to all that are not constant; None: it is learned.
        penalty: of a k that is learned, what each feature costs: penalty * sum(pi) is added to
            the loss (of a regression: of standardised targets, so the share of their variance
            that is not explained). None: 0.01.
        initial_k: where a k that is learned begins, less than all features; None: at half of them.
        objective: "classification", "regression", or "reconstruction": of all features, each in
            [0, 1], from those chosen, by the mean binary cross-entropy of a feature.
        epochs: passes over the training data, at most; None: as many as make 4000 steps, but
            from 20 to 200.
        tuning: share of the epochs, the last ones, in which the choice stands still and the
            network learns on with it. The model kept is the best of these; of all if it is 0.
        batch_size: examples in a step.
        hidden: widths of the network's hidden layers.
        learning_rate: Adam's for the network, at the beginning; it falls to 0.
        mask_learning_rate: Adam's for the mask logits, likewise.
        weight_decay: Adam's for the network.
        tau: temperature of the mask.
        last_tau: the same when the tuning begins, reached by equal factors; None: it stays. It
            also stays where k is learned, for what the probabilities sum to depends on it.
        estimator: of the mask's gradient, any of the registry that takes k; None:
            `gumbel_sigmoid`, or `pi_st_implicit` where k is learned, the only one that can.
        hard: draw hard masks, with the gradients of relaxed ones, by an estimator that relaxes;
            those of the others are hard in any case.
        patience: end after this many epochs without a lower loss on the validation examples,
            counted where models are kept; None: never, and references after a quarter of them.
        standardize: subtract means and divide by standard deviations, of the training examples.
            For tables; pixels are as they are.
        references: train the same network on all features, and on k random ones, too.
        seed: of initialisation, order, masks and random features.
    """

    k: int | None
    penalty: float | None = None
    initial_k: float | None = None
    objective: str = "classification"
    epochs: int | None = None
    tuning: float = 0.25
    batch_size: int = 64
    hidden: tuple[int, ...] = (256,)
    learning_rate: float = 5e-3
    mask_learning_rate: float = 7e-2
    weight_decay: float = 3e-4
    tau: float = 1.0
    last_tau: float | None = 0.1
    estimator: str | None = None
    hard: bool = False
    patience: int | None = None
    standardize: bool = True
    references: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("k", "epochs", "patience", "batch_size"):
            value = getattr(self, name)
            if not _is_positive_integer(value) and (value is not None or name == "batch_size"):
                refuse(_WHO, f"{name} must be an integer of at least 1", repr(value))
        if not isinstance(self.hidden, tuple) or not all(map(_is_positive_integer, self.hidden)):
            refuse(_WHO, "hidden must be a tuple of integers of at least 1", repr(self.hidden))
        check_choice(_WHO, "objective", self.objective, OBJECTIVES)
        self._check_k()
        for name in ("learning_rate", "mask_learning_rate", "tau", "last_tau", "initial_k"):
            value = getattr(self, name)
            if value is None and name in ("last_tau", "initial_k"):
                continue
            # beyond, Adam's step is no float32; where it merely diverges, training says so
            if not 0 < _number(name, value) <= 1e30:
                refuse(_WHO, f"{name} must be in (0, 1e30]", repr(value))
        for name, end in {"tuning": 1, "weight_decay": 1e30}.items():
            if not 0 <= _number(name, value := getattr(self, name)) < end:
                refuse(_WHO, f"{name} must be in [0, {end:g})", repr(value))
        for name in ("hard", "standardize", "references"):
            if not isinstance(value := getattr(self, name), bool):
                refuse(_WHO, f"{name} must be True or False", repr(value))
        if not isinstance(self.seed, int) or not -(2**63) <= self.seed < 2**64:
            refuse(_WHO, "seed must be an integer of 64 bits", repr(self.seed))

    def _check_k(self) -> None:
        check_estimator(_WHO, self.used_estimator, self.k)
        if self.k is None:
            if not 0 <= _number("penalty", self.used_penalty) <= 1e30:
                refuse(_WHO, "penalty must be in [0, 1e30]", repr(self.penalty))
            return
        for name in ("penalty", "initial_k"):
            if (value := getattr(self, name)) is not None:
                refuse(_WHO, f"{name} must be None where k is given", repr(value))

    @property
    def used_estimator(self) -> str:
        """The estimator, or what stands for None."""
        return self.estimator or (LEARNS_K if self.k is None else "gumbel_sigmoid")

    @property
    def used_penalty(self) -> float:
        """The penalty, or what stands for None."""
        return 0.01 if self.penalty is None else self.penalty

    def epochs_of(self, examples: int) -> int:
        """Return how many epochs there are for so many training examples."""
        if self.epochs is not None:
            return self.epochs
        steps_per_epoch = -(-examples // self.batch_size)
        return max(LEAST_EPOCHS, min(MOST_EPOCHS, round(STEPS / steps_per_epoch)))

    def choosing_epochs_of(self, examples: int) -> int:
        """Return in how many of them the choice is learned, one at least."""
        epochs = self.epochs_of(examples)
        return max(1, epochs - round(self.tuning * epochs))

    def tau_at(self, share: float) -> float:
        """Return the temperature when this share of the choice is done."""
        if self.last_tau is None or self.k is None:
            return self.tau
        return float(self.tau ** (1 - share) * self.last_tau**share)


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        refuse(_WHO, f"{name} must be a number", repr(value))
    return value


def _is_positive_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
