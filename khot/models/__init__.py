"""Networks with k-hot layers, one file per network."""

from khot.models.feature_selector import FeatureSelector

__all__ = ["FeatureSelector"]
