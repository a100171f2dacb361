"""Gradients through a hard draw, one file per estimator."""

from khot.estimators.pi_st import pi_st, pi_st_with_diagnostics

__all__ = ["pi_st", "pi_st_with_diagnostics"]
