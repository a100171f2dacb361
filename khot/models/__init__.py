"""Networks with k-hot layers, one file per network."""

from khot.models.feature_selector import FeatureSelector
from khot.models.files import load, save
from khot.models.sparse_regressor import SparseRegressor
from khot.models.vae import KHotVAE

__all__ = ["FeatureSelector", "KHotVAE", "SparseRegressor", "load", "save"]
