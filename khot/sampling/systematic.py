r"""Systematic sampling: one uniform number decides the whole draw.

The units are laid end to end on a line, unit i as an interval of length pi_i, and the
points U, U + 1, ..., U + k - 1 are marked on it: the units they fall in are drawn. A unit
of length pi_i <= 1 has at most one point, and with probability pi_i one: inclusion
probabilities are pi, in any order of the units. In their given order at most n different
draws are possible, and many pairs are never drawn together; that is useful where
neighbours are alike. Permuted at random, the entropy is high.

**Fixed size.** Lengths are whole multiples of 2^-F, F = min(52, 62 - log2 n), and so is
U: nothing is rounded after that. The ends C_i of the intervals must end at k, which the
sum of pi is only near: they are kept in

    [k - (uncertain units after i), k],

where neighbours differ by 0 to 1 as they must, the last is k, and all are as they were
but for what the sum is off by, which the last units share. Units at 0 and 1 are not laid
on the line, so they get 0 and 1 always.
"""

import torch
from torch import Tensor

from khot._checks import refuse
from khot._random import Source
from khot.sampling._draw import sample


def systematic(
    pi: Tensor,
    k: float | Tensor | None = None,
    *,
    num_samples: int | None = None,
    permuted: bool = True,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return a hard k-hot draw with inclusion probabilities pi, by points at equal distances.

    .. math:: z_i = 1 \text{ if one of } U, U + 1, \dots \text{ lies in }
        [C_{i-1}, C_i), \qquad C_i = \pi_1 + \dots + \pi_i

    Exact and of fixed size. The module's docstring has the proof.

    Args:
        pi: inclusion probabilities, with a whole sum or not, as in `pivotal`.
        k: if given, the first argument holds logits, and pi = sigmoid_topk(logits, k).
        num_samples: how many draws of each row, as a new first dimension.
        permuted: lay the units on the line in a random order, for high entropy; else in
            the order of their index, which has little: units are then drawn spread over
            the index.
        dim: the dimension that holds the n units.
        generator: where the randomness comes from; torch's own if None.
        seeds: instead, one int64 seed for each row, as in `pivotal`.

    Returns:
        As `pivotal`.

    Raises:
        TypeError, ValueError: as `pivotal`, and if permuted is no bool.

    Gradient:
        None: a draw is constant wherever it is differentiable.

    Example:
        >>> import torch, khot
        >>> pi = torch.tensor([0.5, 0.5, 0.5, 0.5])
        >>> khot.systematic(pi, permuted=False, seeds=khot.row_seeds(0, 1)[0])
        tensor([1., 0., 1., 0.])

    References:
        Madow (1949), On the theory of systematic sampling; Tillé (2006), Sampling
        algorithms, Section 7.1.
    """
    if not isinstance(permuted, bool):
        refuse("systematic", "permuted must be a bool", type(permuted).__name__, TypeError)
    return sample(
        "systematic",
        lambda p, k, source: _marked(p, k, source, permuted=permuted),
        pi,
        k,
        num_samples=num_samples,
        dim=dim,
        generator=generator,
        seeds=seeds,
    )


def _marked(p: Tensor, k: Tensor, source: Source, *, permuted: bool) -> Tensor:
    n = p.shape[-1]
    bits = min(52, 62 - n.bit_length())
    unit = torch.arange(n, device=p.device).expand(source.samples, *p.shape)
    if permuted:
        unit = source.permutations(n)
    u = source.uniforms(1, block=-(-n // 4))  # the blocks before have the order
    part = (p * 2.0**bits).round().to(torch.int64).expand(unit.shape).gather(-1, unit)
    certain = part >= 2**bits
    uncertain = (part > 0) & ~certain
    last = (k - certain.sum(-1, keepdim=True)) << bits
    after = uncertain.sum(-1, keepdim=True) - uncertain.cumsum(-1)
    ends = (part * uncertain).cumsum(-1)
    ends = torch.maximum(torch.minimum(ends, last), last - (after << bits))
    marks = (ends + (2**bits - 1) - (u * 2.0**bits).to(torch.int64)) >> bits
    drawn = marks.diff(dim=-1, prepend=torch.zeros_like(last)) > 0
    return torch.zeros_like(drawn).scatter_(-1, unit, drawn | certain)
