r"""The pivotal method in random order: exact inclusion probabilities in one pass.

Units come up one after another and fight the one that is carried along. With a the
probability of the carried unit and b that of the next,

    a + b < 1:   one gets 0, the other is carried on with a + b;
                 the carried one stays with probability a / (a + b);
    a + b >= 1:  one gets 1, the other is carried on with a + b - 1;
                 the carried one gets 1 with probability (1 - b) / (2 - a - b).

**Exact.** A fight keeps the mean of either unit: in the first case the carried one's is
(a + b) a / (a + b) = a, in the second, with q = (1 - b) / (2 - a - b), it is
q + (1 - q)(a + b - 1) = a. So E[z] = pi in every order; a random one, drawn apart from
the fights, spreads the joint law over more subsets. Fights at a + b >= 1 give out
floor(sum pi) ones, and the unit left at the end has what is left of the sum, which is 0
or 1 up to the rounding of pi: it is rounded, and the row has k ones, always.

**In parallel.** *What* is carried is the fractional part of the sum so far, whoever
carries it, so with a running sum all fights can be decided at once; *who* carries it is
the last unit that won its way in, a running maximum. Both are in integers, for sums of
floats would depend on the order they are taken in: probabilities are rounded to whole
multiples of 2^-52, as adding them to 1 would.

**Certain units.** A newcomer with b = 0 gets 0 always, by rule; one with b = 1 gets 1
always, for u (1 - a) < 0 is false for every u.

**Bit for bit.** The order and the sums are found in integers, the rest is + - * and
comparisons. The C kernel walks through the row instead and draws the same.
"""

import torch
from torch import Tensor

from khot._native import pivotal as native
from khot._random import Source
from khot.sampling._draw import sample

_UNIT = 2**52


def pivotal(
    pi: Tensor,
    k: float | Tensor | None = None,
    *,
    num_samples: int | None = None,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return a hard k-hot draw with inclusion probabilities pi, by fights in a random order.

    .. math:: z \in \{0, 1\}^n, \qquad \sum_i z_i = k, \qquad E[z] = \pi

    The default design: exact, of fixed size and high entropy, and the quickest here. The
    module's docstring has the rules and their proof.

    Args:
        pi: inclusion probabilities in [0, 1], float64, float32, bfloat16 or float16,
            such as those of `sigmoid_topk`. Their sum along `dim` is taken for the
            whole number k that it is within max(1e-6, 4 eps) max(1, k) of, with eps
            that of the dtype, and at most 1/4. A sum that is near no whole number is
            drawn with a phantom unit (`khot/sampling/_draw.py`). Units at exactly 0 or
            1 get that always.
        k: if given, the first argument holds logits, and pi = sigmoid_topk(logits, k).
        num_samples: how many draws of each row, as a new first dimension. The first is
            the draw without it.
        dim: the dimension that holds the n units.
        generator: where the randomness comes from; torch's own if None.
        seeds: instead, int64 of a shape that broadcasts to that of pi without `dim`: a
            row's draw is then a function of its seed and its pi, bit for bit, alone or
            in any batch. `row_seeds` makes them.

    Returns:
        Tensor of pi's shape and dtype, after num_samples if given, of zeros and exactly
        k ones along `dim`; floor(k) or floor(k) + 1 if k is not whole.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, a value is out of range, or both generator and
            seeds are given.

    Gradient:
        None: a draw is constant wherever it is differentiable.

    Example:
        >>> import torch, khot
        >>> pi = torch.tensor([0.9, 0.6, 0.5, 0.0, 1.0])
        >>> khot.pivotal(pi, seeds=khot.row_seeds(0, 1)[0])
        tensor([0., 1., 1., 0., 1.])

    References:
        Deville and Tillé (1998), Unequal probability sampling without replacement
        through a splitting method, the pivotal method.
    """
    return sample(
        "pivotal",
        _fight,
        pi,
        k,
        num_samples=num_samples,
        dim=dim,
        generator=generator,
        seeds=seeds,
        kernel=native.draw,
    )


def _fight(p: Tensor, _k: Tensor, source: Source) -> Tensor:
    """Rows p (R, n) to zeros and ones (S, R, n), as `_draw` has it."""
    n = p.shape[-1]
    unit = source.shuffles(n)
    u = source.uniforms(n, block=-(-n // 4))  # the blocks before have the order
    parts = (p * _UNIT).round().to(torch.int64)
    part = parts.expand(unit.shape).gather(-1, unit)
    after = part.cumsum(-1) & (_UNIT - 1)  # a sum that overflows is still right below 2^52
    carried = torch.nn.functional.pad(after, (1, 0))
    heavy = carried[..., :-1] + part >= _UNIT
    a, b = carried[..., :-1].to(p.dtype) / _UNIT, part.to(p.dtype) / _UNIT
    won = u * torch.where(heavy, (1 - a) + (1 - b), a + b) < torch.where(heavy, 1 - b, a)
    stays = (won ^ heavy) | (part == 0)
    # place 0 is nobody, who carries 0 at the start; the j-th unit has place j
    place = torch.arange(1, n + 1, device=p.device)
    carrier = torch.where(stays, 0, place).cummax(-1).values
    before = torch.nn.functional.pad(carrier, (1, 0))
    decided = torch.where(stays, place, before[..., :-1])
    z = torch.zeros_like(carried, dtype=torch.bool).scatter_(-1, decided, heavy)
    z = z.scatter_(-1, before[..., -1:], carried[..., -1:] >= _UNIT // 2)
    return torch.zeros_like(unit, dtype=torch.bool).scatter_(-1, unit, z[..., 1:])
