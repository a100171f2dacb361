"""Deterministic soft top-k maps, one file per map."""

from khot._solve import Diagnostics
from khot.relaxations.sigmoid_topk import sigmoid_topk, sigmoid_topk_with_diagnostics

__all__ = ["Diagnostics", "sigmoid_topk", "sigmoid_topk_with_diagnostics"]
