"""Feature selection: `khot.training.train_feature_selector` on one of the data sets."""

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray

from khot.training import (
    Callbacks,
    Checkpoint,
    Examples,
    FeatureSelectionConfig,
    train_feature_selector,
)
from khot_server.jobs import datasets
from khot_server.jobs.spec import FeatureSelectionResult, FeatureSelectionSpec


def prepare(
    spec: FeatureSelectionSpec, device: torch.device
) -> Callable[[Checkpoint | None, Callbacks], FeatureSelectionResult | None]:
    """Return what trains by `spec`."""
    config = FeatureSelectionConfig(k=spec.k, epochs=spec.epochs, seed=spec.seed)
    data = datasets.load(spec.dataset)
    examples = _examples(data.x, data.y, device), _examples(data.test_x, data.test_y, device)

    def train(resume: Checkpoint | None, callbacks: Callbacks) -> FeatureSelectionResult | None:
        learned = train_feature_selector(config, *examples, resume=resume, callbacks=callbacks)
        if learned is None:
            return None
        return FeatureSelectionResult(
            features=learned.features,
            scores=learned.scores,
            test_loss=learned.test_loss,
            test_accuracy=learned.test_accuracy,
            feature_shape=data.feature_shape,
        )

    return train


def _examples(x: NDArray[Any], y: NDArray[Any], device: torch.device) -> Examples:
    return Examples(torch.from_numpy(x).to(device), torch.from_numpy(y).to(device))
