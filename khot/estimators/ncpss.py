r"""NCPSS: iterated Poisson draws, differentiated as renormalised sigmoids.

Straight-through as `pi_st`, with pi = renorm_sigmoid_topk(logits, k) and the sampler of the
same authors. That one does not have pi for inclusion probabilities, nor k ones in every
draw, so E[z] is not pi, and the gradient is biased even where the loss is linear.
"""

import torch
from torch import Tensor

from khot.estimators._common import Draws, Number, prepared, straight_through
from khot.relaxations.renorm_sigmoid_topk import relax
from khot.sampling.iterated_poisson import iterated_poisson


def ncpss(
    logits: Tensor,
    k: Number,
    *,
    tau: Number = 1.0,
    num_samples: int | None = None,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return a hard draw of about k ones, differentiated as renormalised sigmoids.

    .. math:: z \sim \text{iterated Poisson}(\pi), \qquad
        \pi = \text{renorm sigmoid}_k(\text{logits} / \tau), \qquad dz := d\pi

    **Not every draw has k ones**: a few have less, many have more (`iterated_poisson`).

    Args:
        logits: as the x of `renorm_sigmoid_topk`; -inf masks a unit, which is never drawn.
        k: about how many to draw, a whole number in [0, number of unmasked entries], or
            a tensor of such that broadcasts to the shape of logits without `dim`.
        tau: temperature > 0, a number or a tensor like k.
        num_samples: how many draws of each row, as a new first dimension. The first is
            the draw without it.
        dim: the dimension that holds the n units.
        generator: where the randomness comes from; torch's own if None.
        seeds: instead, one int64 seed for each row, as in `pivotal`.

    Returns:
        Tensor of the logits' shape and dtype, after num_samples if given, of zeros and
        ones, of the latter about k along `dim`.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, a value is out of range, k is not whole, or both
            generator and seeds are given.

    Gradient:
        Straight-through, in logits, k and tau: that of pi, at the cotangent of z. Biased,
        for E[z] is not pi.

    Example:
        >>> import torch, khot
        >>> logits = torch.tensor([2.0, 1.0, 0.0, -1.0], requires_grad=True)
        >>> z = khot.ncpss(logits, 2, seeds=khot.row_seeds(0, 1)[0])
        >>> z.detach()
        tensor([1., 1., 1., 1.])
        >>> (z * torch.tensor([1.0, 0.0, 0.0, 0.0])).sum().backward()
        >>> logits.grad
        tensor([ 0.0556, -0.0611, -0.0777, -0.0611])

    References:
        Pervez, Lippe and Gavves (2023), Scalable subset sampling with neural conditional
        Poisson networks.
    """
    drawn = Draws(num_samples=num_samples, dim=dim, generator=generator, seeds=seeds)
    rows = prepared("ncpss", logits, k, tau, **drawn)
    pi = relax(rows.who, rows.logits, rows.k, rows.tau, -1)
    return rows.shaped(straight_through(rows.draw(iterated_poisson, pi), pi))
