r"""Gumbel top-k on log pi: weighted draws one after another, without replacement.

The k largest of log pi_i + G_i, G_i standard Gumbel, are k draws without replacement in
which each next unit is i with probability proportional to pi_i (Plackett and Luce). That
is the same as the k smallest of E_i / pi_i with exponential E_i = -log U_i, a race.

Its inclusion probabilities are **not** pi: they are pi only for k = 1. With k > 1 likely
units are drawn less often than pi says and unlikely ones more, by 0.15 at the law of this
package's tests, and there is no closed form for what they are.

The logarithm is computed here, for torch's rounds the last elements of a tensor otherwise
than the rest, and a row's draw must not depend on where it lies: with x = m 2^e and
m in [sqrt(1/2), sqrt(2)), log x = e log 2 + 2 artanh((m - 1) / (m + 1)), whose odd series
converges to the last bit in 11 terms.
"""

import math

import torch
from torch import Tensor

from khot._random import Source
from khot.sampling._draw import sample
from khot.sampling._order import smallest


def gumbel_topk(
    pi: Tensor,
    k: float | Tensor | None = None,
    *,
    num_samples: int | None = None,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return a hard k-hot draw, weighted by pi, whose inclusion probabilities are not pi.

    .. math:: z = \text{the } k \text{ largest of } \log \pi_i + G_i,
        \qquad G_i \sim \text{Gumbel}

    The design of most machine learning, here to be compared with: **p(z_i = 1) is not
    pi_i** unless k = 1. Use `pivotal` for that.

    Args:
        pi: as in `pivotal`, but its sum must be whole, and it is a matter of weights
            only: 0 is never drawn, but 1 is not always.
        k: if given, a whole number, and the first argument holds logits; then
            pi = sigmoid_topk(logits, k).
        num_samples: how many draws of each row, as a new first dimension.
        dim: the dimension that holds the n units.
        generator: where the randomness comes from; torch's own if None.
        seeds: instead, one int64 seed for each row, as in `pivotal`.

    Returns:
        Tensor of pi's shape and dtype, after num_samples if given, of zeros and exactly
        k ones along `dim`.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, a value is out of range, k is not whole, or both
            generator and seeds are given.

    Gradient:
        None: a draw is constant wherever it is differentiable.

    Example:
        >>> import torch, khot
        >>> pi = torch.tensor([0.9, 0.6, 0.5, 0.0, 1.0])
        >>> khot.gumbel_topk(pi, seeds=khot.row_seeds(0, 1)[0])
        tensor([1., 1., 0., 0., 1.])

    References:
        Yates and Grundy (1953), Selection without replacement from within strata with
        probability proportional to size; Kool, van Hoof and Welling (2019), Stochastic
        beams and where to find them.
    """
    return sample(
        "gumbel_topk",
        _raced,
        pi,
        k,
        num_samples=num_samples,
        dim=dim,
        generator=generator,
        seeds=seeds,
        whole_k=True,
    )


def _raced(p: Tensor, k: Tensor, source: Source) -> Tensor:
    return smallest(-_log(source.uniforms(p.shape[-1])) / p, k)


def _log(x: Tensor) -> Tensor:
    """log of normal numbers above 0, with + - * / alone."""
    m, e = torch.frexp(x)
    low = m < math.sqrt(0.5)
    m = torch.where(low, 2 * m, m)
    s = (m - 1) / (m + 1)
    square = s * s
    series = torch.full_like(x, 1 / 21)
    for power in range(19, 0, -2):
        series = series * square + 1 / power
    return (e - low.to(e.dtype)).to(x.dtype) * math.log(2) + 2 * s * series
