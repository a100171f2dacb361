"""Deterministic soft top-k maps, one file per map."""

from khot._solve import Diagnostics
from khot.relaxations.renorm_sigmoid_topk import renorm_sigmoid_topk
from khot.relaxations.sequential_softmax_topk import sequential_softmax_topk
from khot.relaxations.sigmoid_topk import sigmoid_topk, sigmoid_topk_with_diagnostics
from khot.relaxations.soft_topk import soft_topk
from khot.relaxations.softmax_topk import softmax_topk
from khot.relaxations.sorted_soft_topk import sorted_soft_topk
from khot.relaxations.sparse_topk import sparse_topk

__all__ = [
    "Diagnostics",
    "renorm_sigmoid_topk",
    "sequential_softmax_topk",
    "sigmoid_topk",
    "sigmoid_topk_with_diagnostics",
    "soft_topk",
    "softmax_topk",
    "sorted_soft_topk",
    "sparse_topk",
]
