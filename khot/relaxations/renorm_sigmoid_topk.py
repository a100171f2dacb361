r"""Renormalised sigmoids (NCPSS): sigmoids, scaled so that they sum to k.

With p = sigmoid(x / tau), q = 1 - p, P = sum p and Q = sum q = n - P, either the p are
shrunk towards 0 or the q are:

    P >= k:  pi = k p / P,            P < k:  pi = 1 - (n - k) q / Q.

Both keep order and stay in [0, 1], and at P = k both are p.

**Stable forms.** Where all scores are far below 0 every p underflows, and so does every q
far above; p / P = softmax(log p) and q / Q = softmax(log q) do not. The second form loses
the digits of a small pi to the 1; there it is the sum of two terms >= 0,

    pi = p + (k - P) q / Q,

which in turn would lose order near 1. So that one is taken below 1/2, and the other above.
"""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from khot._rows import count_units, even, flattened, unflattened
from khot._scores import rounded, scaled, softmax


def renorm_sigmoid_topk(
    x: Tensor, k: float | Tensor, *, tau: float | Tensor = 1.0, dim: int = -1
) -> Tensor:
    r"""Return sigmoid(x / tau), scaled towards 0 or towards 1 so that it sums to k.

    .. math:: \pi = k \frac{p}{P} \text{ if } P \ge k, \text{ else }
              1 - (n - k) \frac{1 - p}{n - P}, \qquad p = \sigma(x / \tau), \ P = \sum_i p_i

    In closed form: order-preserving, k/n as tau grows, all zeros at k = 0 and all ones at
    k = n, and no more than sigmoid(x / tau) if that already sums to k.

    What it lacks: a shift of x changes the result, and far from 0 on either side it is k/n
    whatever the scores; as tau tends to 0 it is not the top-k but spreads k over the positive
    scores (or fills all of them, and spreads the rest over the others); and the gradient jumps
    where the sigmoids sum to k.

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
        Exact, in x, k and tau, in reverse and forward mode and of any order; O(n). Where the
        sigmoids sum to exactly k the two forms agree in value but not in slope, and it is
        that of the first. At k = 0 and k = n it is 0 in x and tau.

    Example:
        >>> import torch, khot
        >>> khot.renorm_sigmoid_topk(torch.tensor([2.0, 1.0, 0.0, -1.0]), 2)
        tensor([0.7399, 0.6141, 0.4200, 0.2259])

    References:
        Pervez, Lippe and Gavves (2023), Scalable Subset Sampling with Neural Conditional
        Poisson Networks.
    """
    rows, k, tau = flattened("renorm_sigmoid_topk", x, k, tau, dim)
    n = count_units("renorm_sigmoid_topk", rows, k, tau)
    s, unmasked = scaled(even(rows, -torch.inf), tau, centred=False)
    p = torch.sigmoid(s).masked_fill(~unmasked, 0.0)
    total = p.sum(-1, keepdim=True)
    shrunk = k * softmax(logsigmoid(s), unmasked)
    left_out = softmax(logsigmoid(-s), unmasked)
    grown = 1 - (n - k) * left_out
    grown = torch.where(grown > 0.5, grown, p + (k - total) * left_out)
    pi = torch.where((total >= k) & (k < n), shrunk, grown).masked_fill(~unmasked, 0.0)
    pi = pi - (pi - 1).clamp(min=0.0).detach()  # rounding may pass 1; the gradient is right
    return unflattened(rounded(pi[..., : rows.shape[-1]], x), x, dim)
