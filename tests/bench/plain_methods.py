"""The six methods of the paper's Tables 3 and 4 as they are published, in plain PyTorch.

What the benchmarks put khot's estimators beside: nothing here is khot's, but it is written with
care. Each takes logits (R, n), a whole k and how many samples of each row, S, and returns
(S, R, n) with a gradient in the logits. What the samples of a row share is computed once.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Method = Callable[[Tensor, int, int], Tensor]

NEVER = -1e9  # a logarithm of 0 that can be differentiated twice
ROUNDS = 10  # of Poisson draws
TOLERANCE = 1e-8  # of the root finder, as in the paper's Appendix B


def softsub(logits: Tensor, k: int, samples: int) -> Tensor:
    """Xie and Ermon (2019), Algorithm 2, as in their code: k softmaxes one after another."""
    scores = noisy(logits, samples)
    one = torch.zeros_like(scores)
    total = torch.zeros_like(scores)
    for _ in range(k):
        scores = scores + (1 - one).clamp(min=torch.finfo(one.dtype).tiny).log()
        one = scores.softmax(-1)
        total = total + one
    return total


def ncpss(logits: Tensor, k: int, samples: int) -> Tensor:
    """Pervez et al. (2023): rescaled sigmoids, and Poisson draws until k have come."""
    pi = rescaled(logits.sigmoid(), k)
    left = pi.detach().expand(samples, *pi.shape)
    z = torch.rand(left.shape) < left
    for _ in range(ROUNDS - 1):
        missing = (k - z.sum(-1, keepdim=True)).clamp(min=0)
        if not missing.any():
            break
        chance = rescaled(left.masked_fill(z, 0.0), missing, (~z).sum(-1, keepdim=True))
        z = z | ((torch.rand(left.shape) < chance) & (missing > 0))
    return straight_through(z.to(pi.dtype), pi)


def rescaled(p: Tensor, k: int | Tensor, n: int | Tensor | None = None) -> Tensor:
    """Probabilities of n units shrunk towards 0 or, if they sum to less than k, grown towards 1."""
    n, total = p.shape[-1] if n is None else n, p.sum(-1, keepdim=True)
    return torch.where(total >= k, p * k / total, 1 - (1 - p) * (n - k) / (n - total))


def simple(logits: Tensor, k: int, samples: int) -> Tensor:
    """Ahmed et al. (2023), Algorithms 1 to 3: the table of logarithms, and autograd through it.

    Of elementary symmetric polynomials, whose gradient is the marginals. Differentiating those
    once more gives the product with their Jacobian.
    """
    with torch.enable_grad():
        theta = logits if logits.requires_grad else logits.detach().requires_grad_()
        table = exactly(theta, k)
        (mu,) = torch.autograd.grad(table[-1][:, k].sum(), theta, create_graph=True)
    z = walk(theta.detach(), torch.stack(table).detach(), k, samples)
    return straight_through(z, mu)


def exactly(theta: Tensor, k: int) -> list[Tensor]:
    """For i = 0..n the logarithms (R, k + 1) of the sums over subsets of the first i units."""
    state = torch.full((len(theta), k + 1), NEVER, dtype=theta.dtype)
    state[:, 0] = 0.0
    table = [state]
    for unit in theta.split(1, -1):
        taken = functional.pad(state[:, :-1] + unit, (1, 0), value=NEVER)
        state = torch.stack([state, taken]).logsumexp(0)
        table.append(state)
    return table


def walk(theta: Tensor, table: Tensor, k: int, samples: int) -> Tensor:
    """Exact draws (S, R, n), from the last unit to the first."""
    left = torch.full((len(theta), samples), k)
    units = []
    for i in range(theta.shape[-1], 0, -1):
        without = table[i - 1].gather(-1, (left - 1).clamp(min=0))
        chance = (without + theta[:, i - 1 : i] - table[i].gather(-1, left)).exp()
        unit = (torch.rand(left.shape) < chance) & (left > 0)
        left = left - unit.long()
        units.append(unit)
    return torch.stack(units[::-1], -1).transpose(0, 1).to(theta.dtype)


def pi_st(logits: Tensor, k: int, samples: int) -> Tensor:
    """Algorithm 1, with the design that the paper's Appendix B chooses."""
    pi = sigmoid_topk(logits, k)
    return straight_through(adjusted_pareto(pi.detach(), k, samples), pi)


def pi_st2(logits: Tensor, k: int, samples: int) -> Tensor:
    """Algorithm 5 at tau = 1."""
    pi = sigmoid_topk(logits, k)
    z = adjusted_pareto(pi.detach(), k, samples)
    middle = torch.logit((z + pi.detach()) / 2)
    pi1 = sigmoid_topk((middle - logits).detach() + logits, k)
    return straight_through(z, 2 * pi1 - pi / 2)


def gumbel_sigmoid(logits: Tensor, k: int, samples: int) -> Tensor:
    """Algorithm 3: sigmoid top-k of noisy logits."""
    return sigmoid_topk(noisy(logits, samples), k)


def gumbel_sigmoid_hard(logits: Tensor, k: int, samples: int) -> Tensor:
    """The same, and the sample is the top k of those noisy logits, as in the paper's tables."""
    scores = noisy(logits, samples)
    return straight_through(largest(scores.detach(), k), sigmoid_topk(scores, k))


def noisy(logits: Tensor, samples: int) -> Tensor:
    """With Gumbel noise, as in torch's own `gumbel_softmax`."""
    return logits - torch.empty(samples, *logits.shape, dtype=logits.dtype).exponential_().log()


def straight_through(z: Tensor, p: Tensor) -> Tensor:
    return (z - p).detach() + p


def largest(x: Tensor, k: int) -> Tensor:
    return torch.zeros_like(x).scatter_(-1, x.topk(k, -1, sorted=False).indices, 1.0)


def adjusted_pareto(pi: Tensor, k: int, samples: int) -> Tensor:
    """Bondesson et al. (2006): order sampling, with its heuristic adjustment."""
    d = pi * (1 - pi)
    adjusted = (d * (pi - 0.5) / d.sum(-1, keepdim=True) ** 2).exp() * (1 - pi) / pi
    u = torch.rand(samples, *pi.shape, dtype=pi.dtype)
    return largest(-u / (1 - u) * adjusted, k)


class _SigmoidTopk(torch.autograd.Function):
    """By the paper's root finder in float64, differentiated implicitly."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: int) -> Tensor:
        wide = x.double()
        p = torch.sigmoid(wide + root(wide, k)).to(x.dtype)
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (p,) = ctx.saved_tensors
        d = p * (1 - p)
        dg = d * g
        return dg - d * (dg.sum(-1, keepdim=True) / d.sum(-1, keepdim=True)), None


sigmoid_topk: Callable[[Tensor, int], Tensor] = _SigmoidTopk.apply


def root(x: Tensor, k: int) -> Tensor:
    """c with sum sigmoid(x + c) = k, (..., 1): Halley's method from the better of two guesses."""
    n = x.shape[-1]
    share = torch.tensor(k / n, dtype=x.dtype)
    by_mean = torch.logit(share) - x.mean(-1, keepdim=True)
    by_rank = -x.kthvalue(max(1, n - k), -1, keepdim=True).values
    off = [((x + c).sigmoid().sum(-1, keepdim=True) - k).abs() for c in (by_mean, by_rank)]
    c = torch.where(off[0] < off[1], by_mean, by_rank)
    for _ in range(100):
        s = torch.sigmoid(x + c)
        f = s.sum(-1, keepdim=True) - k
        if float(f.abs().max()) < TOLERANCE:
            break
        d = s * (1 - s)
        slope, bend = d.sum(-1, keepdim=True), (d * (1 - 2 * s)).sum(-1, keepdim=True)
        c = c - 2 * f * slope / (2 * slope**2 - f * bend)
    return c


METHODS: dict[str, Method] = {
    "softsub": softsub,
    "ncpss": ncpss,
    "simple": simple,
    "pi_st": pi_st,
    "pi_st2": pi_st2,
    "gumbel_sigmoid": gumbel_sigmoid,
}
