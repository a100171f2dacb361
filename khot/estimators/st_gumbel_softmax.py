r"""Straight-through Gumbel-softmax: a categorical draw, differentiated as its relaxation.

The largest of logits + G, G_i standard Gumbel, is a draw from softmax(logits). With the
noise held, softmax in place of the largest gives the sample a derivative. The value is the
hard draw and the derivative that of another, soft one: it tends to the gradient of the
relaxed loss as tau tends to 0, where its variance has no bound.
"""

import torch
from torch import Tensor

from khot._rows import even
from khot.estimators._common import Draws, Number, largest, perturbed, prepared, straight_through
from khot.relaxations.softmax_topk import softmax_topk


def st_gumbel_softmax(
    logits: Tensor,
    k: Number = 1,
    *,
    tau: Number = 1.0,
    num_samples: int | None = None,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return a hard one-hot draw from softmax(logits), differentiated as a soft one.

    .. math:: z = \text{one-hot}(\arg\max_i (\text{logits}_i + G_i)), \qquad
        dz := d \operatorname{softmax}((\text{logits} + G) / \tau), \qquad G_i \sim \text{Gumbel}

    Args:
        logits: float64, float32, bfloat16 or float16; -inf masks a unit, which is never drawn.
        k: 1, and nothing else; `gumbel_sigmoid` is for other k.
        tau: temperature > 0 of the gradient alone, a number, or a tensor that broadcasts to
            the shape of logits without `dim`.
        num_samples: how many draws of each row, as a new first dimension. The first is
            the draw without it.
        dim: the dimension that holds the n units.
        generator: where the randomness comes from; torch's own if None.
        seeds: instead, one int64 seed for each row, as in `pivotal`.

    Returns:
        Tensor of the logits' shape and dtype, after num_samples if given, of zeros and one
        1 along `dim`.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, a value is out of range, k is not 1, or both
            generator and seeds are given.

    Gradient:
        In logits and tau: that of the soft sample, at the cotangent of the hard one. Biased.

    Example:
        >>> import torch, khot
        >>> logits = torch.tensor([2.0, 1.0, 0.0, -1.0], requires_grad=True)
        >>> z = khot.st_gumbel_softmax(logits, seeds=khot.row_seeds(0, 1)[0])
        >>> z.detach()
        tensor([1., 0., 0., 0.])
        >>> (z * torch.tensor([1.0, 0.0, 0.0, 0.0])).sum().backward()
        >>> logits.grad
        tensor([ 0.1653, -0.1322, -0.0252, -0.0079])

    References:
        Jang, Gu and Poole (2017), Categorical reparameterization with Gumbel-softmax,
        Section 2.2; Maddison, Mnih and Teh (2017), The concrete distribution.
    """
    drawn = Draws(num_samples=num_samples, dim=dim, generator=generator, seeds=seeds)
    rows = prepared("st_gumbel_softmax", logits, k, tau, **drawn, only_k=1)
    rows.refuse_values()
    x = perturbed(rows)
    p = softmax_topk(even(x, -torch.inf), 1, tau=rows.tau)[..., : x.shape[-1]]
    return rows.shaped(straight_through(largest(x, rows), p))
