"""Gradients through a hard draw, one file per estimator."""

from khot.estimators.gumbel_sigmoid import gumbel_sigmoid, gumbel_sigmoid_with_diagnostics
from khot.estimators.imle import imle
from khot.estimators.losses import with_losses
from khot.estimators.ncpss import ncpss
from khot.estimators.pi_st import pi_st, pi_st_with_diagnostics
from khot.estimators.pi_st2 import pi_st2
from khot.estimators.pi_st_implicit import pi_st_implicit
from khot.estimators.reinmax import reinmax
from khot.estimators.score_function import score_function
from khot.estimators.simple import simple
from khot.estimators.softsub import softsub
from khot.estimators.st_gumbel_softmax import st_gumbel_softmax
from khot.estimators.st_topk import st_topk

__all__ = [
    "gumbel_sigmoid",
    "gumbel_sigmoid_with_diagnostics",
    "imle",
    "ncpss",
    "pi_st",
    "pi_st2",
    "pi_st_implicit",
    "pi_st_with_diagnostics",
    "reinmax",
    "score_function",
    "simple",
    "softsub",
    "st_gumbel_softmax",
    "st_topk",
    "with_losses",
]
