"""Training loops with callbacks for progress, checkpoints and stopping; no server needed."""

from khot.training.feature_selection import (
    FeatureSelectionConfig,
    FeatureSelectionResult,
    train_feature_selector,
)
from khot.training.loop import Callbacks, Checkpoint, Diverged, Examples, Progress

__all__ = [
    "Callbacks",
    "Checkpoint",
    "Diverged",
    "Examples",
    "FeatureSelectionConfig",
    "FeatureSelectionResult",
    "Progress",
    "train_feature_selector",
]
