r"""Pareto sampling: rank by the odds of a uniform number over the odds of pi.

The ranking variables are

    Q_i = U_i / (1 - U_i) * (1 - pi_i) / pi_i,

and the k smallest win (Rosén 1997): the odds of a uniform number have a Pareto law,
P(Q_i < t) = t pi_i / (t pi_i + 1 - pi_i), which is pi_i at t = 1. Were the threshold
always 1, the draw would be Poisson sampling with exactly pi; the k-th smallest only lies
near 1, the nearer the greater d = sum pi (1 - pi), so inclusion probabilities are pi up
to an error of the order of 1/d. Units at pi = 1 rank 0 and always win; units at pi = 0
rank infinitely high and never do, for at least k others are above 0.

Only - * / and comparisons are used, so a row's draw is the same wherever it is drawn.
"""

import torch
from torch import Tensor

from khot._random import Source
from khot.sampling._draw import sample
from khot.sampling._order import smallest


def pareto(
    pi: Tensor,
    k: float | Tensor | None = None,
    *,
    num_samples: int | None = None,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return a hard k-hot draw with inclusion probabilities near pi, by Pareto ranking.

    .. math:: z = \text{the } k \text{ smallest of }
        \frac{U_i}{1 - U_i} \cdot \frac{1 - \pi_i}{\pi_i}

    Quick wherever topk is, of fixed size and high entropy, but **not exact**: the error
    is of the order of 1/d, d = sum pi (1 - pi). `adjusted_pareto` is nearer, `pivotal`
    is exact.

    Args:
        pi: inclusion probabilities, with a whole sum or not, as in `pivotal`.
        k: if given, the first argument holds logits, and pi = sigmoid_topk(logits, k).
        num_samples: how many draws of each row, as a new first dimension.
        dim: the dimension that holds the n units.
        generator: where the randomness comes from; torch's own if None.
        seeds: instead, one int64 seed for each row, as in `pivotal`.

    Returns:
        As `pivotal`.

    Raises:
        TypeError, ValueError: as `pivotal`.

    Gradient:
        None: a draw is constant wherever it is differentiable.

    Example:
        >>> import torch, khot
        >>> pi = torch.tensor([0.9, 0.6, 0.5, 0.0, 1.0])
        >>> khot.pareto(pi, seeds=khot.row_seeds(0, 1)[0])
        tensor([1., 0., 1., 0., 1.])

    References:
        Rosén (1997), On sampling with probability proportional to size.
    """
    return sample(
        "pareto",
        _ranked,
        pi,
        k,
        num_samples=num_samples,
        dim=dim,
        generator=generator,
        seeds=seeds,
    )


def _ranked(p: Tensor, k: Tensor, source: Source) -> Tensor:
    return smallest(rankings(p, source), k)


def rankings(p: Tensor, source: Source) -> Tensor:
    """The ranking variables of rows p (R, n), shape (S, R, n)."""
    u = source.uniforms(p.shape[-1])
    return u / (1 - u) * ((1 - p) / p)
