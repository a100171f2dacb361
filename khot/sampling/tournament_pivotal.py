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

from khot import _checks, _random

_WHO = "tournament_pivotal"


def tournament_pivotal(
    pi: Tensor,
    *,
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
            float16, such as those of `sigmoid_topk`. Their sum along `dim` must be
            a whole number k, within max(1e-6, 4 eps) max(1, k) with eps that of
            the dtype, and at most 1/4. Units at exactly 0 or 1 get that always.
        dim: the dimension that holds the n units.
        generator: where the randomness comes from; torch's own if None.
        seeds: instead, int64 of a shape that broadcasts to that of pi without
            `dim`: a row's draw is then a function of its seed and its pi, bit for
            bit, alone or in any batch. `row_seeds` makes them.

    Returns:
        Tensor of pi's shape and dtype, of zeros and exactly k ones along `dim`.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, a value is not in [0, 1], the sum is not
            whole, or both generator and seeds are given.

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
    pi = _checks.check_scores(_WHO, pi, dim, name="pi").detach()
    units_last = pi.movedim(dim, -1)
    rows = units_last.shape[:-1]
    seed = _random.seeds_for(_WHO, seeds, generator, rows, pi.device)
    p = units_last.reshape(-1, pi.shape[dim])
    work = p.to(_checks.work_dtype(pi))
    _refuse_values(work, p.dtype)
    z = _draw(work, seed).to(pi.dtype)
    return z.reshape(units_last.shape).movedim(-1, dim)


def _draw(p: Tensor, seeds: Tensor) -> Tensor:
    """Rows p (R, n) and their seeds (R,) to rows of 0 and 1."""
    n = p.shape[-1]
    unit = _random.permutations(seeds, n)
    u = _random.uniforms(seeds, n - 1, block=-(-n // 4))  # the blocks before have the order
    z = torch.zeros_like(p)
    p = p.gather(-1, unit)
    while (fights := p.shape[-1] // 2) > 0:
        # an odd one out waits for the next round
        pairs, rest = slice(0, 2 * fights), slice(2 * fights, None)
        a, b = p[:, pairs].unflatten(-1, (fights, 2)).unbind(-1)
        first, second = unit[:, pairs].unflatten(-1, (fights, 2)).unbind(-1)
        total = a + b
        light = total <= 1
        first_goes_on = (u[:, :fights] * total < a) | (b == 0)
        first_gets_one = (u[:, :fights] * ((1 - a) + (1 - b)) < 1 - b) | (a == 1)
        stays = torch.where(light, first_goes_on, ~first_gets_one)
        z.scatter_(-1, torch.where(stays, second, first), (~light).to(z.dtype))
        p = torch.cat((torch.where(light, total, total - 1), p[:, rest]), -1)
        unit = torch.cat((torch.where(stays, first, second), unit[:, rest]), -1)
        u = u[:, fights:]
    return z.scatter_(-1, unit, (p > 0.5).to(z.dtype))


def _refuse_values(p: Tensor, dtype: torch.dtype) -> None:
    """Refuse what only the values show; one look at the device when all is well."""
    bad_p = ~((p >= 0) & (p <= 1)).all(-1)
    total = p.sum(-1)
    k = total.round()
    allowed = (max(1e-6, 4 * torch.finfo(dtype).eps) * k.clamp(min=1)).clamp(max=0.25)
    bad_sum = ~((total - k).abs() <= allowed)
    if not bool((bad_p | bad_sum).any()):
        return
    if bad_p.any():
        got = f"another value in {int(bad_p.sum())} of {len(p)} rows"
        _checks.refuse(_WHO, "pi must be in [0, 1]", got)
    got = f"another in {int(bad_sum.sum())} of {len(p)} rows"
    if len(p) == 1:
        got = f"{float(total):.6g}, off by {float((total - k).abs()):.1g}"
    _checks.refuse(_WHO, "pi must have a whole sum in each row", got)
