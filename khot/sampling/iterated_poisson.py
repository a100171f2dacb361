r"""Iterated Poisson sampling, the sampler of NCPSS: independent draws, repeated for the rest.

The first round draws every unit by itself with probability pi_i. If fewer than k have
come, the units not drawn get another chance with their pi renormalised to the number m
that is missing: with r of them above 0 and of sum s,

    s >= m:  pi_i m / s,        s < m:  1 - (1 - pi_i) (r - m) / (r - s),

which sums to m and stays in [0, 1]. And so on, for a bounded number of rounds, as all
rows go through every one of them together.

It does not guarantee k: a round may draw too many, and then it ends there. Nor are the
inclusion probabilities pi, for rounds after the first only ever add. It is here to be
compared with. Sums are taken in an order that depends on n alone, so a row's draw is the
same wherever it is drawn, and the C kernel's too.
"""

from functools import partial

import torch
from torch import Tensor

from khot._checks import refuse
from khot._native import iterated_poisson as native
from khot._random import Source
from khot.sampling._draw import row_sum, sample


def iterated_poisson(
    pi: Tensor,
    k: float | Tensor | None = None,
    *,
    num_samples: int | None = None,
    rounds: int = 10,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return a hard draw of about k ones, by independent draws repeated for those missing.

    .. math:: z_i \sim \text{Bernoulli}(\pi_i), \text{ and again for those not drawn,
        while } \sum_i z_i < k

    The sampler of neural conditional Poisson subset sampling. **Neither of fixed size nor
    exact**; rarely below k after ten rounds, often above.

    Args:
        pi: inclusion probabilities, with a whole sum or not, as in `pivotal`.
        k: if given, the first argument holds logits, and pi = sigmoid_topk(logits, k).
        num_samples: how many draws of each row, as a new first dimension.
        rounds: how many at most, at least 1. One is Poisson sampling, which is exact.
        dim: the dimension that holds the n units.
        generator: where the randomness comes from; torch's own if None.
        seeds: instead, one int64 seed for each row, as in `pivotal`.

    Returns:
        Tensor of pi's shape and dtype, after num_samples if given, of zeros and ones.

    Raises:
        TypeError, ValueError: as `pivotal`, and if rounds is no integer of at least 1.

    Gradient:
        None: a draw is constant wherever it is differentiable.

    Example:
        >>> import torch, khot
        >>> pi = torch.tensor([0.9, 0.6, 0.5, 0.0, 1.0])
        >>> khot.iterated_poisson(pi, seeds=khot.row_seeds(0, 1)[0])
        tensor([1., 1., 1., 0., 1.])

    References:
        Pervez, Lippe and Gavves (2023), Scalable subset sampling with neural conditional
        Poisson networks.
    """
    if isinstance(rounds, bool) or not isinstance(rounds, int):
        refuse("iterated_poisson", "rounds must be an integer", type(rounds).__name__, TypeError)
    if rounds < 1:
        refuse("iterated_poisson", "rounds must be at least 1", str(rounds))
    return sample(
        "iterated_poisson",
        lambda p, k, source: _repeated(p, k, source, rounds),
        pi,
        k,
        num_samples=num_samples,
        dim=dim,
        generator=generator,
        seeds=seeds,
        kernel=partial(native.draw, rounds=rounds),
    )


def _repeated(p: Tensor, k: Tensor, source: Source, rounds: int) -> Tensor:
    n = p.shape[-1]
    z = source.uniforms(n) < p
    for i in range(1, rounds):
        missing = (k - z.sum(-1, keepdim=True)).clamp(min=0).to(p.dtype)
        if not bool((missing > 0).any()):
            break
        rest = torch.where(z, 0.0, p)
        total = row_sum(rest)
        free = (rest > 0).sum(-1, keepdim=True)
        less = rest * (missing / torch.where(total > 0, total, 1.0))
        out = (1 - rest) * ((free - missing) / torch.where(free > total, free - total, 1.0))
        u = source.uniforms(n, block=i * -(-n // 2))
        # 1 - u is exact, and so the kernel, which may contract 1 - out, draws the same
        wins = torch.where(total >= missing, u < less, out < 1 - u)
        z = z | (wins & (rest > 0) & (missing > 0))
    return z
