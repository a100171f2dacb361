"""Learn which features a network needs; `_selection.py` says how."""

import warnings
from dataclasses import dataclass, field
from typing import cast

import torch

from khot._checks import refuse
from khot.models.feature_selector import FeatureSelector
from khot.training._selection import REFERENCES, SELECTION, WHO, Selection, measure, stages_of
from khot.training._selection_config import FeatureSelectionConfig
from khot.training.data import Split
from khot.training.loop import Callbacks, Checkpoint, run

__all__ = ["FeatureSelectionConfig", "FeatureSelectionResult", "train_feature_selector"]


@dataclass(frozen=True)
class FeatureSelectionResult:
    """What was learned.

    Metrics are `loss` (cross-entropy, or the mean squared error) and `accuracy`, or `rmse` and
    `r2`, in the units of y, of the network with the chosen features only. Of a reconstruction,
    the loss is the mean binary cross-entropy of a feature, `rmse` and `r2` those of all together.

    Attributes:
        features: those chosen, ascending.
        k: how many they are.
        scores: the mask logit of every feature; -inf of those that are constant.
        inclusion_probabilities: of every feature to be drawn, by these, at the end of the choice
            (`FeatureSelector.inclusion_probabilities`).
        constant: the features that are constant in the training examples.
        test: metrics on the test examples.
        validation: metrics on the validation examples.
        references: metrics on the test examples of the same network trained on other features:
            `all`, and `random`, k of them; empty if not wanted.
        stability: how far the choice had settled: the mean Jaccard similarity between it
            and those after each epoch of the last quarter of its learning, 1 if none differs.
        epochs_run: how many epochs there were, without those of the references.
        best_epoch: after which of them the model was kept, from 1.
        model: what was trained, in evaluation mode; it takes x as it is.
    """

    features: tuple[int, ...]
    k: int
    scores: tuple[float, ...]
    inclusion_probabilities: tuple[float, ...]
    constant: tuple[int, ...]
    test: dict[str, float]
    validation: dict[str, float]
    references: dict[str, dict[str, float]]
    stability: float
    epochs_run: int
    best_epoch: int
    model: FeatureSelector = field(compare=False, repr=False)


def train_feature_selector(
    config: FeatureSelectionConfig,
    split: Split,
    *,
    resume: Checkpoint | None = None,
    callbacks: Callbacks | None = None,
) -> FeatureSelectionResult | None:
    """Train a `khot.models.FeatureSelector`; return what it chose, or None if it was stopped.

    Features that are constant in the training examples are never chosen; a warning names them.

    Args:
        config: how to train.
        split: the examples.
        resume: a checkpoint of a training with this config on data of these shapes:
            it goes on from there, bit for bit as if it had never stopped.
        callbacks: who is told of progress and checkpoints, and may stop it.

    Raises:
        ValueError: the examples do not fit the objective or k, all features are constant, or
            resume is not a checkpoint of this training.
        Diverged: a loss or a parameter is no longer finite.
    """
    split.train.of(config.objective)
    _refuse_sparse_classes(split)
    first = Selection(config, split)
    constant = tuple(first.selector.constant.nonzero().flatten().tolist())
    if constant:
        names = ", ".join(map(str, constant))
        warnings.warn(f"{WHO}: constant features are never chosen; got {names}", stacklevel=2)
    stages = stages_of(first)
    outcomes = run(stages, resume=resume, callbacks=callbacks or Callbacks())
    if outcomes is None:
        return None
    outcome, selector = outcomes[SELECTION], first.selector.eval()
    others = {
        name: cast(FeatureSelector, outcomes[stage].task.model)
        for name, stage in REFERENCES.items()
        if stage in outcomes
    }
    with torch.no_grad():
        scores, probabilities = selector.scores(), selector.inclusion_probabilities()
    features = tuple(selector.chosen().tolist())
    return FeatureSelectionResult(
        features=features,
        k=len(features),
        scores=tuple(scores.tolist()),
        inclusion_probabilities=tuple(probabilities.tolist()),
        constant=constant,
        test=measure(selector, split.test),
        validation=measure(selector, split.validation),
        references={name: measure(other, split.test) for name, other in others.items()},
        stability=first.stability(outcome.epochs),
        epochs_run=outcome.epochs,
        best_epoch=outcome.epoch,
        model=selector,
    )


def _refuse_sparse_classes(split: Split) -> None:
    """Refuse labels that are no numbers of classes: each of them would get an output."""
    parts = (split.train.y, split.validation.y, split.test.y)
    most, m = max(int(y.max()) for y in parts), sum(map(len, parts))
    if not split.train.y.is_floating_point() and most >= m:
        refuse(
            WHO, f"y must number the classes from 0, so be less than the {m} examples", str(most)
        )
