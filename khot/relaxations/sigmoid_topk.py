r"""Sigmoid top-k: the k-hot softmax.

For scores s = x / tau, the map is p = sigmoid(s + c) with the one shift c that makes
the entries sum to k. `_solve.py` says how c is found, `_implicit.py` how p is
differentiated, and `_sigmoid.py` leads there in every mode of torch.
"""

from torch import Tensor

from khot._sigmoid import relax, relax_with_diagnostics
from khot._solve import Diagnostics


def sigmoid_topk(
    x: Tensor, k: float | Tensor, *, tau: float | Tensor = 1.0, dim: int = -1
) -> Tensor:
    r"""Return the soft k-hot vector sigmoid(x / tau + c), c such that it sums to k.

    .. math:: p = \sigma(x / \tau + c), \qquad \sum_i p_i = k

    It is the maximiser of <x, p> + tau sum_i H(p_i) over the k-capped simplex,
    with H the binary entropy: order-preserving, invariant to shifts of x, k/n as
    tau grows, the hard top-k as tau tends to 0, all zeros at k = 0 and all ones
    at k = n. The root c is found in about 3 sums over the row, whatever n.

    Args:
        x: scores, float64, float32, bfloat16 or float16. -inf masks a unit: it
            gets exactly 0 and a gradient of exactly 0. NaN and +inf are refused.
        k: how many to choose, in [0, number of unmasked entries], not
            necessarily whole: a number, or a tensor that broadcasts to the shape
            of x without `dim`.
        tau: temperature > 0, a number or a tensor like k.
        dim: the dimension that holds the n units.

    Returns:
        Tensor of x's shape and dtype, entries in [0, 1], summing to k along `dim`.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, or a value is out of range.

    Gradient:
        Exact, by implicit differentiation, in x, k and tau, in reverse and
        forward mode and of any order; O(n). At k = 0 and k = n it is 0 in x and
        tau, and in k the one-sided limit softmax(x / tau) or softmax(-x / tau).

    Example:
        >>> import torch, khot
        >>> khot.sigmoid_topk(torch.tensor([2.0, 1.0, 0.0, -1.0]), 2)
        tensor([0.8176, 0.6225, 0.3775, 0.1824])

    References:
        Differentiable Top-k: from one-hot to k-hot, Equations 9 to 11,
        Propositions 1 and 2.
    """
    return relax("sigmoid_topk", x, k, tau, dim)


def sigmoid_topk_with_diagnostics(
    x: Tensor, k: float | Tensor, *, tau: float | Tensor = 1.0, dim: int = -1
) -> tuple[Tensor, Diagnostics]:
    """Return `sigmoid_topk` of the same arguments, and how each row was solved."""
    return relax_with_diagnostics("sigmoid_topk", x, k, tau, dim)
