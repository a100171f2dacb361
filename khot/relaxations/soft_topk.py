r"""SOFT top-k: the top-k as entropic optimal transport, which is sigmoid top-k.

Each of the n units sends mass 1, to an anchor at 1 that takes k and an anchor at 0 that
takes the other n - k. With squared distances and an entropy term, the plan is

    argmin over Z >= 0 of  sum_ij C_ij Z_ij + epsilon sum_ij Z_ij log Z_ij,
    C_i1 = (x_i - 1)^2,  C_i0 = x_i^2,  Z_i0 + Z_i1 = 1,  sum_i Z_i1 = k,

and p_i = Z_i1 is the soft k-hot vector: large scores are near 1. (The paper's plan is
Z / n, which has the same minimiser, and it selects the smallest by reading the other
column.)

**Theorem.** soft_topk(x, k, epsilon) = sigmoid_topk(x, k, tau = epsilon / 2).

*Proof.* C_i1 - C_i0 = 1 - 2 x_i, and with Z_i0 = 1 - p_i the objective is, up to a
constant,

    sum_i (1 - 2 x_i) p_i - epsilon sum_i H(p_i),    H the binary entropy.

As the p_i sum to k, the 1 adds a constant. Divided by -2, it is the objective
<x, p> + (epsilon / 2) sum_i H(p_i) that sigmoid top-k maximises over the same set. QED

So the exact method is sigmoid top-k's, kernels and gradient included. `_sinkhorn.py` is
the iteration that the paper uses, and shows that it is one on the same shift c; the
gradient is the same implicit one.

**How far from the hard top-k z.** If d is the gap between the k-th and the next largest
score, then |p - z|_1 <= epsilon n log(2) / d: p costs at least d |p - z|_1 more than z
(every vertex of the set that differs from z in m pairs costs at least 2 m d more), and
gains at most epsilon n log 2 of entropy. The paper's Theorem 2 bounds
sqrt(2) |p - z|_2 by epsilon log(2n) / d; its proof loses a factor n (the vertices of its
Lemma 3 have mass 1/n, but their cost is taken with mass 1), and its bound fails where
many units lie at the edges of the gap.
"""

import torch
from torch import Tensor

from khot._checks import as_float, check_choice
from khot._rows import name_arguments
from khot._sigmoid import relax

_WHO = name_arguments("soft_topk", tau="epsilon", taus=2.0)
_SOLVERS = {"exact": "halley", "sinkhorn": "sinkhorn"}


def soft_topk(
    x: Tensor,
    k: float | Tensor,
    *,
    epsilon: float | Tensor = 1.0,
    method: str = "exact",
    dim: int = -1,
) -> Tensor:
    r"""Return the soft k-hot vector of entropic optimal transport to two anchors.

    .. math:: p_i = Z_{i1}, \qquad Z = \arg\min \sum_{ij} C_{ij} Z_{ij}
        + \epsilon \sum_{ij} Z_{ij} \log Z_{ij}, \quad C_{ij} = (x_i - j)^2

    over the plans that send mass 1 from each unit, n - k to the anchor 0 and k to the
    anchor 1. It is `sigmoid_topk` with tau = epsilon / 2, and has all its properties:
    in the k-capped simplex, order-preserving, invariant to shifts of x.

    What it lacks: anything that `sigmoid_topk` has not. With `method="sinkhorn"`, kept
    for comparison, the entries are in [0, 1] and ordered but sum to k only as far as the
    iteration gets: within 1e-12 where it converges, which takes more steps the smaller
    epsilon is; after 1000 steps the row is returned as it is, its sum off by up to some
    thousandths of k, and its gradient is that at the sum it has.

    Args:
        x: scores, float64, float32, bfloat16 or float16. -inf masks a unit: it gets
            exactly 0 and a gradient of exactly 0. NaN and +inf are refused.
        k: how many to choose, in [0, number of unmasked entries], not necessarily
            whole: a number, or a tensor that broadcasts to the shape of x without `dim`.
        epsilon: weight of the entropy > 0, a number or a tensor like k. The cost is not
            normalised: scaling x and epsilon together changes nothing.
        method: "exact", or "sinkhorn" for the published iteration, stabilised.
        dim: the dimension that holds the n units.

    Returns:
        Tensor of x's shape and dtype, entries in [0, 1], summing to k along `dim`.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, a value is out of range, or there is no such
            method.

    Gradient:
        Exact, by implicit differentiation, in x, k and epsilon, in reverse and forward
        mode and of any order; O(n). Not through the steps of the iteration.

    Example:
        >>> import torch, khot
        >>> x = torch.tensor([2.0, 1.0, 0.0, -1.0])
        >>> khot.soft_topk(x, 2, epsilon=2.0)
        tensor([0.8176, 0.6225, 0.3775, 0.1824])
        >>> khot.soft_topk(x, 2, epsilon=2.0, method="sinkhorn")
        tensor([0.8176, 0.6225, 0.3775, 0.1824])

    References:
        Xie, Dai, Chen, Dai, Zhao, Zha, Wei and Pfister, Differentiable Top-k with
        Optimal Transport (2020), Sections 2 and 3, Algorithm 1.
    """
    check_choice(_WHO, "method", method, _SOLVERS)
    return relax(_WHO, x, k, _half(epsilon), dim, solver=_SOLVERS[method])


def _half(epsilon: float | Tensor) -> float | Tensor:
    """tau; what is no real number is left for `relax` to refuse."""
    if isinstance(epsilon, Tensor):
        return epsilon if epsilon.dtype == torch.bool else epsilon / 2
    number = isinstance(epsilon, (int, float)) and not isinstance(epsilon, bool)
    return as_float(_WHO, "epsilon", epsilon) / 2 if number else epsilon
