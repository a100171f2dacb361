r"""The pivotal method as a tournament: exact inclusion probabilities in log2(n) rounds.

Two units with probabilities a and b fight, and one of them is decided:

    a + b <= 1:  one gets 0, the other goes on with a + b;
                 the first goes on with probability a / (a + b);
    a + b > 1:   one gets 1, the other goes on with a + b - 1;
                 the first gets 1 with probability (1 - b) / (2 - a - b).

**Exact.** A fight keeps the mean of either unit. In the first case the first one's
is (a + b) a / (a + b) = a; in the second, with q = (1 - b) / (2 - a - b), it is
q + (1 - q)(a + b - 1) = a. The fights are independent of each other and of the
order, so E[z] = pi whatever the order is; a random one spreads the joint law over
more subsets (the entropy comes close to the greatest possible).

**Fixed size.** A fight keeps the sum of the two, so the one unit left at the end
has sum(pi) minus the ones given out, which is 0 or 1 up to the rounding of pi: it
is rounded, and the row has round(sum(pi)) ones, always.

**Certain units.** 2 - a - b is computed as (1 - a) + (1 - b). Against b = 0 the
first goes on if u a < a, against a = 1 it gets 1 if u (1 - b) < 1 - b: both true
for every u < 1, and said apart only for the smallest of floats. So a unit at
exactly 0 or 1 gets its value always, not only almost surely.

**Bit for bit.** Only + - *, comparisons, gathering, and a sort of different
integers are used, all of which give an element the same bits wherever it lies in
a tensor. With seeds, a row's draw depends on its seed and its pi alone.
"""

import torch
from torch import Tensor

from khot._random import Source
from khot.sampling._draw import sample


def tournament_pivotal(
    pi: Tensor,
    k: float | Tensor | None = None,
    *,
    num_samples: int | None = None,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return a hard k-hot draw with inclusion probabilities pi, by a tournament of fights.

    .. math:: z \in \{0, 1\}^n, \qquad \sum_i z_i = k, \qquad E[z] = \pi

    Units fight in pairs in a random order, ceil(log2 n) rounds for all rows at
    once; the module's docstring has the rules and their proof.

    Args:
        pi: inclusion probabilities in [0, 1], float64, float32, bfloat16 or
            float16, such as those of `sigmoid_topk`. Their sum along `dim` is taken
            for the whole number k that it is within max(1e-6, 4 eps) max(1, k) of,
            with eps that of the dtype, and at most 1/4. A sum that is near no whole
            number is drawn with a phantom unit (`khot/sampling/_draw.py`). Units at
            exactly 0 or 1 get that always.
        k: if given, the first argument holds logits, and pi = sigmoid_topk(logits, k).
        num_samples: how many draws of each row, as a new first dimension. The first
            is the draw without it.
        dim: the dimension that holds the n units.
        generator: where the randomness comes from; torch's own if None.
        seeds: instead, int64 of a shape that broadcasts to that of pi without
            `dim`: a row's draw is then a function of its seed and its pi, bit for
            bit, alone or in any batch. `row_seeds` makes them.

    Returns:
        Tensor of pi's shape and dtype, after num_samples if given, of zeros and
        exactly k ones along `dim`; floor(k) or floor(k) + 1 if k is not whole.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, a value is out of range, or both
            generator and seeds are given.

    Gradient:
        None: a draw is constant wherever it is differentiable. `khot.pi_st` is
        this draw with a gradient.

    Example:
        >>> import torch, khot
        >>> pi = torch.tensor([0.9, 0.6, 0.5, 0.0, 1.0])
        >>> khot.tournament_pivotal(pi, seeds=khot.row_seeds(0, 1)[0])
        tensor([1., 1., 0., 0., 1.])

    References:
        Deville and Tillé (1998), Unequal probability sampling without replacement
        through a splitting method, the pivotal method.
    """
    return sample(
        "tournament_pivotal",
        _fight,
        pi,
        k,
        num_samples=num_samples,
        dim=dim,
        generator=generator,
        seeds=seeds,
    )


def _fight(p: Tensor, _k: Tensor, source: Source) -> Tensor:
    """Rows p (R, n) to zeros and ones (S, R, n), as `_draw` has it."""
    n = p.shape[-1]
    unit = source.permutations(n)
    u = source.uniforms(n - 1, block=-(-n // 4))  # the blocks before have the order
    p = p.expand(unit.shape)
    z = torch.zeros_like(p, memory_format=torch.contiguous_format)
    p = p.gather(-1, unit)
    while (fights := p.shape[-1] // 2) > 0:
        # an odd one out waits for the next round
        pairs, rest = slice(0, 2 * fights), slice(2 * fights, None)
        a, b = p[..., pairs].unflatten(-1, (fights, 2)).unbind(-1)
        first, second = unit[..., pairs].unflatten(-1, (fights, 2)).unbind(-1)
        total = a + b
        light = total <= 1
        first_goes_on = (u[..., :fights] * total < a) | (b == 0)
        first_gets_one = (u[..., :fights] * ((1 - a) + (1 - b)) < 1 - b) | (a == 1)
        stays = torch.where(light, first_goes_on, ~first_gets_one)
        z.scatter_(-1, torch.where(stays, second, first), (~light).to(z.dtype))
        p = torch.cat((torch.where(light, total, total - 1), p[..., rest]), -1)
        unit = torch.cat((torch.where(stays, first, second), unit[..., rest]), -1)
        u = u[..., fights:]
    return z.scatter_(-1, unit, (p > 0.5).to(z.dtype))
