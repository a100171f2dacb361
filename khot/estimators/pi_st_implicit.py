r"""Straight-through with a k that is learned: any real k, and a gradient in it.

Inclusion probabilities that sum to no whole number cannot all be kept by draws of one
size. With a phantom unit of probability

    pi_{n+1} = 1 - (K - floor K),   K = sum_i pi_i,

they sum to floor K + 1; it is drawn with the others and left out. The others keep their
probabilities, E[z] = pi, and the size is floor K with probability pi_{n+1} (the phantom is
among the floor K + 1) and floor K + 1 otherwise; the paper's Equation 15 has the two
swapped. A K that is whole needs no phantom.

Nothing in Proposition 3 uses that all z have one size, so the gradient J_pi^T g is as good
here as that of `pi_st`, in k as in the logits. Where k is not given, pi = sigmoid(logits),
every unit by itself, and k is what they sum to: a penalty on pi.sum() sets it.
"""

import torch
from torch import Tensor

from khot._checks import per_row
from khot._rows import even
from khot._scores import rounded, scaled
from khot._sigmoid import relax
from khot.estimators._common import Number, Rows, prepared, straight_through
from khot.sampling.pivotal import pivotal


def pi_st_implicit(
    logits: Tensor,
    k: Number | None = None,
    *,
    tau: Number = 1.0,
    num_samples: int | None = None,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return a hard draw of floor(k) or floor(k) + 1 units, differentiated as its probabilities.

    .. math:: z \sim \text{pivotal}(\pi), \qquad dz := d\pi, \qquad
        \pi = \sigma_k(\text{logits} / \tau) \text{, or } \sigma(\text{logits} / \tau)
        \text{ without } k

    Args:
        logits: as the x of `sigmoid_topk`; -inf masks a unit, which is never drawn.
        k: the mean number of ones, any number in [0, number of unmasked entries], or a
            tensor of such that broadcasts to the shape of logits without `dim`; None for
            sum(sigmoid(logits / tau)).
        tau: temperature > 0, a number or a tensor like k.
        num_samples: how many draws of each row, as a new first dimension. The first is
            the draw without it.
        dim: the dimension that holds the n units.
        generator: where the randomness comes from; torch's own if None.
        seeds: instead, one int64 seed for each row, as in `pivotal`.

    Returns:
        Tensor of the logits' shape and dtype, after num_samples if given, of zeros and
        floor(k) or floor(k) + 1 ones along `dim`, in the mean k; exactly k if that is whole.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, a value is out of range, or both generator and
            seeds are given.

    Gradient:
        Straight-through, in logits, k and tau: that of pi, at the cotangent of z.
        Unbiased of the first-order approximation of the gradient of E[loss(z)], hence of
        that gradient itself where the loss is linear in z.

    Example:
        >>> import torch, khot
        >>> k = torch.tensor(2.5, requires_grad=True)
        >>> logits = torch.tensor([2.0, 1.0, 0.0, -1.0])
        >>> z = khot.pi_st_implicit(logits, k, num_samples=1000, seeds=khot.row_seeds(0, 1)[0])
        >>> z.sum(-1).unique().tolist()
        [2.0, 3.0]
        >>> z.mean(0).sum().backward()
        >>> round(k.grad.item(), 4)
        1.0

    References:
        Differentiable Top-k: from one-hot to k-hot, Algorithm 2, Equations 14 and 15.
    """
    rows = prepared(
        "pi_st_implicit",
        logits,
        0.0 if k is None else k,
        tau,
        num_samples=num_samples,
        dim=dim,
        generator=generator,
        seeds=seeds,
        whole_k=False,
    )
    pi = relax(rows.who, rows.logits, rows.k, rows.tau, -1) if k is not None else _sigmoid(rows)
    return rows.shaped(straight_through(rows.draw(pivotal, pi), pi))


def _sigmoid(rows: Rows) -> Tensor:
    """sigmoid(logits / tau), with the same bits for a row in any batch."""
    rows.refuse_values()
    x = rows.logits
    tau = per_row(rows.who, "tau", rows.tau, x, x.shape[:1])
    s, unmasked = scaled(even(x, -torch.inf), tau, centred=False)
    return rounded(torch.sigmoid(s).masked_fill(~unmasked, 0.0), x)[:, : x.shape[-1]]
