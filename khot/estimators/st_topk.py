"""Straight-through top-k: the k largest, differentiated as sigmoid top-k.

What `pi_st` tends to as its pi hardens, but for any pi: there is no randomness, so a unit
that is not among the k largest is never tried, and gets there only if the gradient at the
chosen ones says so.
"""

import torch
from torch import Tensor

from khot._sigmoid import relax
from khot.estimators._common import Draws, Number, largest, prepared, straight_through


def st_topk(
    logits: Tensor,
    k: Number,
    *,
    tau: Number = 1.0,
    num_samples: int | None = None,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return the hard k-hot vector of the k largest logits, differentiated as a soft one.

    .. math:: z = \arg\max_{z \in \{0, 1\}^n, \sum_i z_i = k} \langle z, \text{logits} \rangle,
        \qquad dz := d\sigma_k(\text{logits} / \tau)

    It takes the arguments of an estimator, so that it may stand where one does, but is
    **deterministic**: generator and seeds change nothing.

    Args:
        logits: as the x of `sigmoid_topk`; -inf masks a unit, which is never chosen.
        k: how many to choose, a whole number in [0, number of unmasked entries], or
            a tensor of such that broadcasts to the shape of logits without `dim`.
        tau: temperature > 0 of the gradient, a number or a tensor like k.
        num_samples: how many copies, as a new first dimension.
        dim: the dimension that holds the n units.
        generator: taken, and left as it is.
        seeds: taken, and checked.

    Returns:
        Tensor of the logits' shape and dtype, after num_samples if given, of zeros and
        exactly k ones along `dim`; ties go to the lower index.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, a value is out of range, k is not whole, or both
            generator and seeds are given.

    Gradient:
        Straight-through, in logits, k and tau: that of sigmoid_topk, at the cotangent of z.
        Biased: the loss of z is constant wherever it is differentiable.

    Example:
        >>> import torch, khot
        >>> logits = torch.tensor([2.0, 1.0, 0.0, -1.0], requires_grad=True)
        >>> z = khot.st_topk(logits, 2)
        >>> z.detach()
        tensor([1., 1., 0., 0.])
        >>> (z * torch.tensor([1.0, 0.0, 0.0, 0.0])).sum().backward()
        >>> logits.grad
        tensor([ 0.1202, -0.0456, -0.0456, -0.0290])

    References:
        Bengio, Léonard and Courville (2013), Estimating or propagating gradients through
        stochastic neurons; Differentiable Top-k: from one-hot to k-hot, Section 2.
    """
    if seeds is None:  # leave the generator, and torch's own, as it is
        generator, seeds = None, torch.zeros((), dtype=torch.int64)
    drawn = Draws(num_samples=num_samples, dim=dim, generator=generator, seeds=seeds)
    rows = prepared("st_topk", logits, k, tau, **drawn)
    p = relax(rows.who, rows.logits, rows.k, rows.tau, -1)
    z = largest(rows.logits.unsqueeze(0), rows).repeat(rows.source.samples, 1, 1)
    return rows.shaped(straight_through(z, p))
