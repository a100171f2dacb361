r"""Sparse top-k: the p-norm regularised top-k, whose entries reach 0 and 1.

Maximising <x, y> - (tau / p) ||y||_p^p over the k-capped simplex gives, with nu the
multiplier of sum y = k, x_i - tau y_i^(p-1) = nu wherever 0 < y_i < 1; so

    y_i = clip((x_i - nu) / tau, 0, 1)^(1/(p-1)).

p = 2 is the Euclidean projection of x / tau; p = 4/3 cubes, and meets 0 smoothly.
`_sparse.py` says how nu is found and how y is differentiated.
"""

from torch import Tensor

from khot._checks import check_number, refuse
from khot._sparse import relax


def sparse_topk(
    x: Tensor,
    k: float | Tensor,
    *,
    tau: float | Tensor = 1.0,
    p: float = 2.0,
    dim: int = -1,
) -> Tensor:
    r"""Return the sparse soft k-hot vector that a p-norm keeps from being hard.

    .. math:: y = \arg\max_{y \in \Delta_k} \langle x, y \rangle - \frac{\tau}{p} \|y\|_p^p
              = \mathrm{clip}((x - \nu) / \tau, 0, 1)^{1/(p-1)}, \qquad \sum_i y_i = k

    Order-preserving, invariant to shifts of x, k/n as tau grows; *equal* to the hard top-k
    once tau is below the gap between the k-th and the next score. All zeros at k = 0 and all
    ones at k = n. O(n): no sort, some ten passes over the row, more over wild ones.

    What it lacks: a unit at exactly 0 or 1 gets no gradient, so a unit far from the threshold
    never learns; and the gradient jumps where a unit reaches 1 or, for p = 2, leaves 0.

    Args:
        x: scores, float64, float32, bfloat16 or float16. -inf masks a unit: it
            gets exactly 0 and a gradient of exactly 0. NaN and +inf are refused.
        k: how many to choose, in [0, number of unmasked entries], not
            necessarily whole: a number, or a tensor that broadcasts to the shape
            of x without `dim`.
        tau: weight of the norm > 0 (lambda in the paper), a number or a tensor like k.
        p: of the norm, 2 or 4/3.
        dim: the dimension that holds the n units.

    Returns:
        Tensor of x's shape and dtype, entries in [0, 1], summing to k along `dim`.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, or a value is out of range.

    Gradient:
        Exact, by implicit differentiation over the units with 0 < y < 1, in x, k and tau, in
        reverse and forward mode; O(n). Of any order for p = 2 and of the first three for
        p = 4/3. Where no unit is between 0 and 1 it is 0 in x and tau, and in k that for k
        growing: shared by the greatest scores with y = 0 (at k = n, by the least scores).

    Example:
        >>> import torch, khot
        >>> khot.sparse_topk(torch.tensor([2.0, 1.0, 0.5, -1.0]), 2)
        tensor([1.0000, 0.7500, 0.2500, 0.0000])
        >>> khot.sparse_topk(torch.tensor([2.0, 1.0, 0.5, -1.0]), 2, tau=0.5)
        tensor([1., 1., 0., 0.])

    References:
        Sander, Puigcerver, Djolonga, Peyré and Blondel (2023), Fast, Differentiable and
        Sparse Top-k: a Convex Analysis Perspective.
    """
    p = check_number("sparse_topk", "p", p)
    cube = abs(p - 4 / 3) < 1e-6
    if not cube and p != 2:
        refuse("sparse_topk", "p must be 2 or 4/3", str(p))
    return relax("sparse_topk", x, k, tau, dim, cube=cube)
