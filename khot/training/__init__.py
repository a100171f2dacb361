"""Training loops with callbacks for progress, checkpoints and stopping; no server needed."""

from khot.training.data import Examples, Split, split, split_rows
from khot.training.feature_selection import (
    FeatureSelectionConfig,
    FeatureSelectionResult,
    train_feature_selector,
)
from khot.training.loop import Callbacks, Checkpoint, Diverged, Progress
from khot.training.roots import Roots
from khot.training.sparse_regression import (
    SparseRegressionConfig,
    SparseRegressionResult,
    train_sparse_regression,
)
from khot.training.vae import UnlabelledSplit, VAEConfig, VAEResult, evaluate_vae, train_vae

__all__ = [
    "Callbacks",
    "Checkpoint",
    "Diverged",
    "Examples",
    "FeatureSelectionConfig",
    "FeatureSelectionResult",
    "Progress",
    "Roots",
    "SparseRegressionConfig",
    "SparseRegressionResult",
    "Split",
    "UnlabelledSplit",
    "VAEConfig",
    "VAEResult",
    "evaluate_vae",
    "split",
    "split_rows",
    "train_feature_selector",
    "train_sparse_regression",
    "train_vae",
]
