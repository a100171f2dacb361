r"""SoftSub: relaxed k-hot samples, by k softmaxes one after another of perturbed logits.

As `gumbel_sigmoid`, with `sequential_softmax_topk` as the relaxation of the top k: at k = 1
it is Gumbel-softmax. It takes O(n k) steps, its entries may exceed 1, and at tau = 1 it is
far from the top k it relaxes.
"""

import torch
from torch import Tensor

from khot._checks import check_flag, refuse
from khot._rows import refuse_spread
from khot.estimators._common import Draws, Number, largest, perturbed, prepared
from khot.relaxations.sequential_softmax_topk import relax


def softsub(
    logits: Tensor,
    k: int,
    *,
    tau: Number = 1.0,
    hard: bool = False,
    num_samples: int | None = None,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return a relaxed k-hot sample, sequential softmax of the logits with Gumbel noise.

    .. math:: p = \sum_{j=1}^k p^j, \quad p^j = \operatorname{softmax}(\alpha^j / \tau), \quad
        \alpha^1 = \text{logits} + G, \ \alpha^{j+1} = \alpha^j + \log(1 - p^j),
        \quad G_i \sim \text{Gumbel}

    Args:
        logits: as the x of `sequential_softmax_topk`; -inf masks a unit, which is never drawn.
        k: how many to draw, one whole number in [0, number of unmasked entries].
        tau: temperature > 0 of the relaxation, a number, or a tensor that broadcasts to the
            shape of logits without `dim`. It does not change the hard sample.
        hard: return the k largest of logits + G instead, with the gradient of p.
        num_samples: how many draws of each row, as a new first dimension. The first is
            the draw without it.
        dim: the dimension that holds the n units.
        generator: where the randomness comes from; torch's own if None.
        seeds: instead, one int64 seed for each row, as in `pivotal`.

    Returns:
        Tensor of the logits' shape and dtype, after num_samples if given, with entries >= 0,
        some perhaps above 1, that sum to k along `dim`; of zeros and ones if hard.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, a value is out of range, k is not whole, or both
            generator and seeds are given.

    Gradient:
        In logits and tau, that of p with the noise held. Unbiased of the gradient of the
        relaxed E[loss(p)]; as an estimate of that of E[loss(z)], z hard, biased.

    Example:
        >>> import torch, khot
        >>> logits = torch.tensor([2.0, 1.0, 0.0, -1.0], requires_grad=True)
        >>> khot.softsub(logits, 2, seeds=khot.row_seeds(0, 1)[0]).detach()
        tensor([1.2698, 0.5703, 0.1212, 0.0387])
        >>> z = khot.softsub(logits, 2, hard=True, seeds=khot.row_seeds(0, 1)[0])
        >>> z.detach()
        tensor([1., 1., 0., 0.])
        >>> (z * torch.tensor([1.0, 0.0, 0.0, 0.0])).sum().backward()
        >>> logits.grad
        tensor([ 0.1856, -0.1354, -0.0378, -0.0125])

    References:
        Xie and Ermon (2019), Reparameterizable subset sampling via continuous relaxations,
        Algorithm 2.
    """
    drawn = Draws(num_samples=num_samples, dim=dim, generator=generator, seeds=seeds)
    hard = check_flag("softsub", "hard", hard)
    given: object = k
    if isinstance(given, Tensor):
        refuse("softsub", "k must be one whole number", "Tensor", TypeError)
    rows = prepared("softsub", logits, k, tau, **drawn)
    refuse_spread(rows.who, rows.logits)
    x = perturbed(rows)
    z = largest(x, rows) if hard else None
    return rows.shaped(relax(rows.who, x, int(k), rows.tau, -1, instead=z))
