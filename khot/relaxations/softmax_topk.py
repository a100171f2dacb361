r"""k times softmax: the k = 1 relative that the others are compared with.

It sums to k, and that is all: nothing keeps an entry from exceeding 1. Scores are taken
from the row's greatest down, so that an offset costs no digits.
"""

from torch import Tensor

from khot._rows import count_units, flattened, kept, unflattened
from khot._scores import rounded, scaled, softmax


def softmax_topk(
    x: Tensor, k: float | Tensor, *, tau: float | Tensor = 1.0, dim: int = -1
) -> Tensor:
    r"""Return k softmax(x / tau).

    .. math:: p = k \operatorname{softmax}(x / \tau)

    Order-preserving, invariant to shifts of x, k/n as tau grows. At k = 1 it is softmax,
    the maximiser of <x, p> - tau sum_i p_i log p_i over the simplex, and the hard top-1 as
    tau tends to 0.

    What it lacks: for k > 1 entries exceed 1, up to k; as tau tends to 0 it is k times the
    top-1, not the top-k; at k = n it is not all ones. At k = 1 it is not `sigmoid_topk`,
    whose entropy is that of n coins and not of one die: of two units, sigmoid_topk at tau is
    softmax at 2 tau.

    Args:
        x: scores, float64, float32, bfloat16 or float16. -inf masks a unit: it
            gets exactly 0 and a gradient of exactly 0. NaN and +inf are refused.
        k: what it sums to, in [0, number of unmasked entries], not necessarily whole: a
            number, or a tensor that broadcasts to the shape of x without `dim`.
        tau: temperature > 0, a number or a tensor like k.
        dim: the dimension that holds the n units.

    Returns:
        Tensor of x's shape and dtype, entries in [0, k], summing to k along `dim`.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, or a value is out of range.

    Gradient:
        Exact, in x, k and tau, in reverse and forward mode and of any order; O(n).

    Example:
        >>> import torch, khot
        >>> khot.softmax_topk(torch.tensor([2.0, 1.0, 0.0, -1.0]), 2)
        tensor([1.2878, 0.4738, 0.1743, 0.0641])

    References:
        Differentiable Top-k: from one-hot to k-hot, Section 2.1.
    """
    rows, k, tau = flattened("softmax_topk", x, k, tau, dim)
    n = count_units("softmax_topk", rows, k, tau)
    p = k * softmax(*scaled(rows, tau, centred=True))
    return unflattened(rounded(kept(p, n), x), x, dim)
