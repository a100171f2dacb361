"""Hard top-k: the k largest, and no randomness."""

import torch
from torch import Tensor

from khot._random import Source
from khot.sampling._draw import sample


def topk(
    pi: Tensor,
    k: float | Tensor | None = None,
    *,
    num_samples: int | None = None,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return the hard k-hot vector of the k largest, ties going to the lower index.

    .. math:: z = \arg\max_{z \in \{0, 1\}^n, \sum_i z_i = k} \langle z, \pi \rangle

    What every design tends to as pi hardens; what one uses at test time. It takes the
    arguments of a design, so that it may stand where one does, but is **deterministic**:
    generator and seeds change nothing.

    Args:
        pi: as in `pivotal`, but its sum must be whole.
        k: if given, a whole number, and the first argument holds logits.
        num_samples: how many copies, as a new first dimension.
        dim: the dimension that holds the n units.
        generator: taken, as by a design.
        seeds: taken and checked, as by a design.

    Returns:
        Tensor of pi's shape and dtype, after num_samples if given, of zeros and exactly
        k ones along `dim`.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, a value is out of range, k is not whole, or both
            generator and seeds are given.

    Gradient:
        None: it is constant wherever it is differentiable.

    Example:
        >>> import torch, khot
        >>> khot.topk(torch.tensor([0.5, 2.0, -1.0, 0.5]), 2)
        tensor([1., 1., 0., 0.])

    References:
        Differentiable Top-k: from one-hot to k-hot, Section 2.
    """
    return sample(
        "topk",
        _largest,
        pi,
        k,
        num_samples=num_samples,
        dim=dim,
        generator=generator,
        seeds=seeds,
        whole_k=True,
    )


def _largest(p: Tensor, k: Tensor, source: Source) -> Tensor:
    unit = p.sort(dim=-1, descending=True, stable=True).indices
    wins = torch.arange(p.shape[-1], device=p.device) < k
    z = torch.zeros_like(p, dtype=torch.bool).scatter_(-1, unit, wins)
    return z.expand(source.samples, *p.shape)
