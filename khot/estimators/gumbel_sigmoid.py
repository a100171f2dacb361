r"""Gumbel-sigmoid: relaxed k-hot samples, by sigmoid top-k of perturbed logits.

The k largest of logits + G, G_i standard Gumbel, are k draws without replacement with
weights exp(logits) (`khot.sampling.gumbel_topk`). With the noise held, sigmoid_topk in place
of the top k gives a sample in the capped simplex that is a smooth function of the logits:
the gradient of E[f(p)] is E of the gradient (reparametrisation), for any loss f of soft
samples. As tau tends to 0 the samples become hard, and their gradients large and rare.

The inclusion probabilities of the hard samples are not sigmoid_topk(logits, k), and have no
closed form; `pi_st` is the estimator that has them.
"""

import torch
from torch import Tensor

from khot import _checks
from khot._sigmoid import relax, relax_with_diagnostics
from khot._solve import Diagnostics
from khot.estimators._common import (
    Draws,
    Number,
    Rows,
    largest,
    perturbed,
    prepared,
    straight_through,
)


def gumbel_sigmoid(
    logits: Tensor,
    k: Number,
    *,
    tau: Number = 1.0,
    hard: bool = False,
    num_samples: int | None = None,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return a relaxed k-hot sample, sigmoid top-k of the logits with Gumbel noise.

    .. math:: p = \sigma_k((\text{logits} + G) / \tau), \qquad G_i \sim \text{Gumbel}

    Args:
        logits: as the x of `sigmoid_topk`; -inf masks a unit, which is never drawn.
        k: how many to draw, in [0, number of unmasked entries], or a tensor of such that
            broadcasts to the shape of logits without `dim`; whole if hard.
        tau: temperature > 0 of the relaxation, a number or a tensor like k. It does not
            change the hard sample.
        hard: return the k largest of logits + G instead, with the gradient of p.
        num_samples: how many draws of each row, as a new first dimension. The first is
            the draw without it.
        dim: the dimension that holds the n units.
        generator: where the randomness comes from; torch's own if None.
        seeds: instead, one int64 seed for each row, as in `pivotal`.

    Returns:
        Tensor of the logits' shape and dtype, after num_samples if given, with entries in
        [0, 1] that sum to k along `dim`; of zeros and ones if hard.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, a value is out of range, k is not whole where the
            sample is hard, or both generator and seeds are given.

    Gradient:
        In logits, k and tau, that of p with the noise held. Unbiased of the gradient of the
        relaxed E[loss(p)]; as an estimate of that of E[loss(z)], z hard, biased.

    Example:
        >>> import torch, khot
        >>> logits = torch.tensor([2.0, 1.0, 0.0, -1.0], requires_grad=True)
        >>> khot.gumbel_sigmoid(logits, 2, seeds=khot.row_seeds(0, 1)[0]).detach()
        tensor([0.9108, 0.6833, 0.2915, 0.1144])
        >>> z = khot.gumbel_sigmoid(logits, 2, hard=True, seeds=khot.row_seeds(0, 1)[0])
        >>> z.detach()
        tensor([1., 1., 0., 0.])
        >>> (z * torch.tensor([1.0, 0.0, 0.0, 0.0])).sum().backward()
        >>> logits.grad
        tensor([ 0.0703, -0.0290, -0.0277, -0.0136])

    References:
        Differentiable Top-k: from one-hot to k-hot, Algorithm 3.
    """
    drawn = Draws(num_samples=num_samples, dim=dim, generator=generator, seeds=seeds)
    rows, x = _noisy(logits, k, tau, hard, drawn)
    p = relax(rows.who, x, rows.k, rows.tau, -1)
    return rows.shaped(straight_through(largest(x, rows), p) if hard else p)


def gumbel_sigmoid_with_diagnostics(
    logits: Tensor,
    k: Number,
    *,
    tau: Number = 1.0,
    hard: bool = False,
    num_samples: int | None = None,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> tuple[Tensor, Diagnostics]:
    """Return `gumbel_sigmoid` of the same arguments, and how each row of each sample was solved."""
    drawn = Draws(num_samples=num_samples, dim=dim, generator=generator, seeds=seeds)
    rows, x = _noisy(logits, k, tau, hard, drawn)
    shape = logits.movedim(dim, -1).shape[:-1]
    shape = shape if num_samples is None else torch.Size((num_samples, *shape))
    p, solved = relax_with_diagnostics(rows.who, x, rows.k, rows.tau, -1, shape=shape)
    return rows.shaped(straight_through(largest(x, rows), p) if hard else p), solved


def _noisy(logits: Tensor, k: Number, tau: Number, hard: bool, drawn: Draws) -> tuple[Rows, Tensor]:
    """The checked rows, and their scores with noise."""
    hard = _checks.check_flag("gumbel_sigmoid", "hard", hard)
    rows = prepared("gumbel_sigmoid", logits, k, tau, **drawn, whole_k=hard)
    return rows, perturbed(rows)
