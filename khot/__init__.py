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

from khot._bits import pack_bits
from khot._native import NativeInfo, native_info, set_kernel_threads
from khot._random import row_seeds, seeds_of_items
from khot.distributions import KSubset
from khot.estimators import (
    gumbel_sigmoid,
    gumbel_sigmoid_with_diagnostics,
    imle,
    ncpss,
    pi_st,
    pi_st2,
    pi_st_implicit,
    pi_st_with_diagnostics,
    reinmax,
    score_function,
    simple,
    softsub,
    st_gumbel_softmax,
    st_topk,
    with_losses,
)
from khot.registry import Design, Estimator, Operator, Relaxation, operator, operators
from khot.relaxations import (
    Diagnostics,
    renorm_sigmoid_topk,
    sequential_softmax_topk,
    sigmoid_topk,
    sigmoid_topk_with_diagnostics,
    soft_topk,
    softmax_topk,
    sorted_soft_topk,
    sparse_topk,
)
from khot.sampling import (
    adjusted_pareto,
    brewer,
    conditional_poisson,
    gumbel_topk,
    iterated_poisson,
    log_prob,
    pareto,
    pivotal,
    sampford,
    systematic,
    topk,
    tournament_pivotal,
)
from khot.vjp import Gradients, vjp

__version__ = _version("khot")

__all__ = [
    "Design",
    "Diagnostics",
    "Estimator",
    "Gradients",
    "KSubset",
    "NativeInfo",
    "Operator",
    "Relaxation",
    "__version__",
    "adjusted_pareto",
    "brewer",
    "conditional_poisson",
    "gumbel_sigmoid",
    "gumbel_sigmoid_with_diagnostics",
    "gumbel_topk",
    "imle",
    "iterated_poisson",
    "log_prob",
    "native_info",
    "ncpss",
    "operator",
    "operators",
    "pack_bits",
    "pareto",
    "pi_st",
    "pi_st2",
    "pi_st_implicit",
    "pi_st_with_diagnostics",
    "pivotal",
    "reinmax",
    "renorm_sigmoid_topk",
    "row_seeds",
    "sampford",
    "score_function",
    "seeds_of_items",
    "sequential_softmax_topk",
    "set_kernel_threads",
    "sigmoid_topk",
    "sigmoid_topk_with_diagnostics",
    "simple",
    "soft_topk",
    "softmax_topk",
    "softsub",
    "sorted_soft_topk",
    "sparse_topk",
    "st_gumbel_softmax",
    "st_topk",
    "systematic",
    "topk",
    "tournament_pivotal",
    "vjp",
    "with_losses",
]
