r"""Sampford's design without rejection, by the conditional law of each next unit.

Sampford draws one unit with probability proportional to pi and k - 1 more, with
replacement, with probability proportional to w = pi / (1 - pi), and begins again unless
all differ. The law of what is accepted is

    p(s)  ~  sum_{i in s} (1 - pi_i)  prod_{j in s} w_j,   |s| = k,

and has inclusion probabilities pi, exactly. But at n = 784, k = 50 next to nothing is
accepted. So the law is drawn from unit by unit instead, which always takes n steps.

Over the units from i on, let F_m be the sum of prod w over their subsets of m units, and
G_m the same with each subset weighted by the sum of its 1 - pi. If the units before i
that were drawn have a = sum (1 - pi), and m are still to come, then

    P(i is drawn) = w_i [(a + 1 - pi_i) F_{m-1} + G_{m-1}] / [a F_m + G_m]
                  = q [a + (1 - pi_i) + h_{m-1}'] / [a + h_m],

F and G of the left side's brackets over the units after i and from i on; q is the
probability of i under the law ~ prod w alone (conditional Poisson), h = G / F, and h' is h
over the units after i. Everything follows from the ratios rho_m = F_{m-1} / F_m, with a
prime for after i, by means that neither overflow nor cancel:

    q = w_i rho_m' / (1 + w_i rho_m'),
    rho_m = (1 - q) rho_m' + q rho_{m-1}',   h_m = (1 - q) h_m' + q (h_{m-1}' + 1 - pi_i).

rho is infinite where m exceeds the units left, there q = 1: as many are drawn as must be.
(1 - q) rho' is computed as 1 / (1 / rho' + w_i), its limit also there.
Units at 1 are drawn beforehand and units at 0 never, which is what the limits say.

The table of q and h takes n (k + 1) numbers each, for some rows at a time.
"""

import torch
from torch import Tensor

from khot._checks import refuse
from khot._random import Source
from khot.sampling._draw import sample

_TABLE = 2**23  # entries, of the rows that are drawn at a time
_LARGEST = 2**27  # entries, of one row


def sampford(
    pi: Tensor,
    k: float | Tensor | None = None,
    *,
    num_samples: int | None = None,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return a hard k-hot draw from Sampford's law, whose inclusion probabilities are pi.

    .. math:: p(s) \propto \sum_{i \in s} (1 - \pi_i) \prod_{j \in s} \frac{\pi_j}{1 - \pi_j},
        \qquad |s| = k

    Exact, of fixed size, and of nearly the greatest entropy possible. No rejection: it
    takes O(n k), whatever pi is; the module's docstring says how.

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
        TypeError, ValueError: as `pivotal`, and if n (k + 1) is above 2^27, too large a
            table.

    Gradient:
        None: a draw is constant wherever it is differentiable.

    Example:
        >>> import torch, khot
        >>> pi = torch.tensor([0.9, 0.6, 0.5, 0.0, 1.0])
        >>> khot.sampford(pi, seeds=khot.row_seeds(0, 1)[0])
        tensor([1., 1., 0., 0., 1.])

    References:
        Sampford (1967), On sampling without replacement with unequal probabilities of
        selection.
    """
    return sample(
        "sampford",
        _drawn,
        pi,
        k,
        num_samples=num_samples,
        dim=dim,
        generator=generator,
        seeds=seeds,
    )


def _drawn(p: Tensor, k: Tensor, source: Source) -> Tensor:
    n = p.shape[-1]
    certain = p == 1
    to_go = k - certain.sum(-1, keepdim=True)
    size = n * (int(to_go.max()) + 1) if k.numel() else 0
    if size > _LARGEST:
        refuse("sampford", f"n (k + 1) must be at most {_LARGEST}", str(size))
    rows = max(1, _TABLE // max(1, size))
    parts = [
        _walked(p[i : i + rows], to_go[i : i + rows], source[slice(i, i + rows)])
        for i in range(0, len(p), rows)
    ]
    z = torch.cat(parts, 1) if parts else certain.expand(source.samples, *p.shape)
    return z | certain


def _walked(p: Tensor, to_go: Tensor, source: Source) -> Tensor:
    """Through the units in turn; those at 1 are not drawn here."""
    q, h = _tables(p, int(to_go.max()))
    n = p.shape[-1]
    u = source.uniforms(n)
    m = to_go.expand(source.samples, *to_go.shape)
    a = torch.zeros_like(m, dtype=p.dtype)
    z = torch.zeros_like(u, dtype=torch.bool)
    for i in range(n):
        rest = (1 - p[:, i : i + 1]).expand(m.shape)
        here, after = h[i].expand(*m.shape[:-1], -1), h[i + 1].expand(*m.shape[:-1], -1)
        chance = q[i].expand(*m.shape[:-1], -1).gather(-1, m)
        with_i = a + rest + after.gather(-1, (m - 1).clamp(min=0))
        drawn = (u[..., i : i + 1] * (a + here.gather(-1, m)) < chance * with_i) | (chance == 1)
        z[..., i : i + 1] = drawn
        m = m - drawn.to(m.dtype)
        a = a + torch.where(drawn, rest, 0.0)
    return z


def _tables(p: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """q (n, R, most + 1) and h (n + 1, R, most + 1); h[i] is over the units from i on."""
    rows, n = p.shape
    w = torch.where(p < 1, p / (1 - p), 0.0)
    q = p.new_empty(n, rows, most + 1)
    h = p.new_zeros(n + 1, rows, most + 1)
    rho = p.new_full((rows, most + 1), torch.inf)
    rho[:, 0] = 0
    for i in reversed(range(n)):
        wi, rest = w[:, i : i + 1], 1 - p[:, i : i + 1]
        chance = torch.where(wi > 0, 1 / (1 + 1 / (wi * rho)), 0.0)
        less = torch.nn.functional.pad(rho, (1, 0))[:, :-1]
        rho = 1 / (1 / rho + wi) + torch.where(chance > 0, chance * less, 0.0)
        q[i] = chance
        h[i] = (1 - chance) * h[i + 1]
        h[i, :, 1:] += chance[:, 1:] * (h[i + 1, :, :-1] + rest)
    return q, h
