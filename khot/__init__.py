"""khot: choose k of n things, differentiably.

The PyTorch library of k-hot relaxations, sampling designs and gradient
estimators. `khot.sigmoid_topk` is the place to start.
"""

from importlib.metadata import version as _version

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "khot: the library must have PyTorch; got an environment without it. "
        "Install it with: pip install 'khot[torch]' "
        "(the client, khot_client, works without it)",
        name="torch",
    ) from None

from khot._native import NativeInfo, native_info
from khot._random import row_seeds
from khot.estimators import pi_st, pi_st_with_diagnostics
from khot.registry import Design, Estimator, Operator, Relaxation, operator, operators
from khot.relaxations import Diagnostics, sigmoid_topk, sigmoid_topk_with_diagnostics
from khot.sampling import tournament_pivotal

__version__ = _version("khot")

__all__ = [
    "Design",
    "Diagnostics",
    "Estimator",
    "NativeInfo",
    "Operator",
    "Relaxation",
    "__version__",
    "native_info",
    "operator",
    "operators",
    "pi_st",
    "pi_st_with_diagnostics",
    "row_seeds",
    "sigmoid_topk",
    "sigmoid_topk_with_diagnostics",
    "tournament_pivotal",
]
