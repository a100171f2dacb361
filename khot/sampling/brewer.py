r"""Brewer's method: k draws one after another, with probabilities that add up to pi.

With r draws to go and the units of s drawn, each other unit is drawn next with
probability proportional to

    pi_i (N - pi_i) / (N - r pi_i),   N = k - sum_{j in s} pi_j.

After all k draws a unit has been drawn with probability pi_i, exactly (Brewer 1975, for
any k Tillé 2006, Section 6.4). Since r = k - |s|, N - r = sum_{j in s} (1 - pi_j) = a, and
the two factors are sums of what is not negative,

    N - pi_i = a + (r - 1) + (1 - pi_i),   N - r pi_i = a + r (1 - pi_i),

so nothing cancels. Units at 1 are drawn beforehand, which is what the limit of the
weights says; units at 0 have weight 0.

**A weighted draw, bit for bit.** The weights are added up in pairs i and i + h (the order
of `_draw.row_sum`), all levels are kept, and one number in [0, total) is followed from the
top: it goes to the pair's second if it is not below the weight of its first. A weight of 0
is never followed, whatever the rounding, so every draw is a new unit.
"""

import torch
from torch import Tensor

from khot._random import Source
from khot.sampling._draw import sample


def brewer(
    pi: Tensor,
    k: float | Tensor | None = None,
    *,
    num_samples: int | None = None,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return a hard k-hot draw with inclusion probabilities pi, one unit after another.

    .. math:: p(\text{next} = i) \propto \pi_i \frac{N - \pi_i}{N - r \pi_i}, \qquad
        N = k - \sum_{j \in s} \pi_j, \quad r = k - |s|

    Exact, of fixed size, and of an entropy that is hardly below the greatest possible.
    k passes over the row, so O(n k).

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
        >>> khot.brewer(pi, seeds=khot.row_seeds(0, 1)[0])
        tensor([1., 1., 0., 0., 1.])

    References:
        Brewer (1975), A simple procedure for sampling pi-ps without replacement; Tillé
        (2006), Sampling algorithms, Section 6.4.
    """
    return sample(
        "brewer",
        _one_by_one,
        pi,
        k,
        num_samples=num_samples,
        dim=dim,
        generator=generator,
        seeds=seeds,
    )


def _one_by_one(p: Tensor, k: Tensor, source: Source) -> Tensor:
    z = (p == 1).expand(source.samples, *p.shape).clone()
    to_go = k - (p == 1).sum(-1, keepdim=True)
    draws = int(to_go.max()) if k.numel() else 0
    u = source.uniforms(draws)
    a = p.new_zeros(*z.shape[:-1], 1)
    for i in range(draws):
        r = (to_go - i).clamp(min=0).to(p.dtype)
        rest = 1 - p
        weight = p * (a + (r - 1) + rest) / (a + r * rest)
        unit = _pick(torch.where(z, 0.0, weight), u[..., i : i + 1])
        draws_on = (r > 0).expand(unit.shape)
        z.scatter_(-1, unit, z.gather(-1, unit) | draws_on)
        a = a + torch.where(draws_on, rest.expand(z.shape).gather(-1, unit), 0.0)
    return z


def _pick(weight: Tensor, u: Tensor) -> Tensor:
    """The index of one unit of each row, (..., 1), with probability proportional to its weight."""
    levels = [weight]
    while (n := levels[-1].shape[-1]) > 1:
        w, half = levels[-1], 1 << ((n - 1).bit_length() - 1)
        levels.append(torch.cat((w[..., : n - half] + w[..., half:], w[..., n - half : half]), -1))
    at = u * levels.pop()
    unit = torch.zeros_like(at, dtype=torch.int64)
    for w in reversed(levels):
        half = 1 << ((w.shape[-1] - 1).bit_length() - 1)
        first, partner = w.gather(-1, unit), unit + half
        there = partner < w.shape[-1]
        second = w.gather(-1, torch.where(there, partner, unit))
        goes = there & (second > 0) & (at >= first)
        at, unit = torch.where(goes, at - first, at), torch.where(goes, partner, unit)
    return unit
