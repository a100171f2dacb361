r"""Perturb-and-MAP: the k largest of noisy logits; and I-MLE's gradient of such a draw.

**The noise.** With Gumbel noise, the k largest are k draws one after another without
replacement. For the k-subset law one wants noise whose sum over k units is Gumbel: what
perturbs the score of a whole k-hot vector is then nearly Gumbel, as in the Gumbel-max trick.
A standard Gumbel less its mean is sum_i (E_i - 1) / i of exponential E_i, an exponential is
a sum of k independent Gamma(1/k), and so

    eps = 1/k (sum_{i=1..s} Gamma(1/k, k/i) - log s) = sum_{i=1..s} Gamma(1/k, 1) / i - log(s) / k

has, for s -> inf, that property (Niepert et al. 2021); s = 10 here, as there. Its mean is
(H_s - log s) / k and its variance sum_i i^-2 / k.

**The gamma numbers** are exact, by rejection, and a function of the row's seed alone. With
a = 1/k <= 1 and b = 1 + a/e (Ahrens and Dieter 1974, GS), a try takes u, v in (0, 1): p = b u;

    p <= 1:  x = p^k,               kept if -log v >= x,
    p > 1:   x = -log(k b (1 - u)), kept if -log v >= (1 - a) log x.

Three of four tries or more are kept, and nearly all for large k. u and v take one block of
Philox: try r of number e in sample s is that of the counter (e, s, r, 0). Tries go on until
each number is kept, so nothing is cut off.

**The gradient.** z = draw(theta) at fixed random numbers; with z' = draw(theta - lambda g),
the draw that the cotangent g would rather have, it is (z - z') / lambda: a difference of
samples in place of one of marginals, mu(theta) - mu(theta - lambda g).
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from khot import _checks, _random
from khot._random import Source
from khot._rows import even
from khot.estimators._common import Rows, gumbels, largest

TERMS = 10  # s
NOISES = ("sum_of_gamma", "gumbel")
_ELEMENTS = 1 << 18  # of the random numbers that are made at once

Redraw = Callable[[Tensor], Tensor]  # theta (R, n) or (S, R, n) to z (S, R, n)


def checked_noise(who: str, noise: object) -> None:
    """Refuse a name that no noise has."""
    _checks.check_choice(who, "noise", noise, NOISES)


def checked_strength(who: str, strength: object) -> float:
    """Refuse what is not a finite number above 0."""
    strength = _checks.check_number(who, "strength", strength)
    if not 0 < strength < math.inf:
        _checks.refuse(who, "strength must be finite and above 0", f"{strength:g}")
    return strength


def noise(kind: str, k: Tensor, source: Source, n: int) -> Tensor:
    """Noise (S, R, n) in the work dtype, for whole k, (R, 1) or (1, 1)."""
    if kind == "gumbel":
        return gumbels(source, n, _checks.work_dtype(k))
    k = k.clamp(min=1)  # where nothing is drawn, any noise will do
    total = torch.zeros((), dtype=k.dtype, device=k.device)
    drawn = gammas(k, source, TERMS * n).unflatten(-1, (TERMS, n))
    for i in range(TERMS):
        total = total + drawn[:, :, i] / (i + 1)
    return total - math.log(TERMS) / k


def gammas(k: Tensor, source: Source, count: int) -> Tensor:
    """Gamma(1/k, 1) numbers, (S, R, count), for whole k >= 1, (R, 1) or (1, 1)."""
    rows = len(source.seeds)
    k = k.expand(rows, 1)
    size = max(1, _ELEMENTS // max(1, count * source.samples))
    cuts = [slice(i, i + size) for i in range(0, rows, size)]
    parts = [_gammas(k[cut], source[cut], count) for cut in cuts]
    return torch.cat(parts, 1) if parts else k.new_empty(source.samples, 0, count)


def _gammas(k: Tensor, source: Source, count: int) -> Tensor:
    shape = source.samples, len(k), count
    pairs = source.uniforms(2 * count).reshape(-1, 2)
    x, kept = _tried(pairs[:, 0], pairs[:, 1], k.expand(shape).reshape(-1))
    left, round_ = (~kept).nonzero().squeeze(-1), 1
    while len(left):
        row, element = (left // count) % len(k), left % count
        u, v = _one_more(source.seeds[row], element, left // (len(k) * count), round_)
        again, kept = _tried(u, v, k[row, 0])
        x[left] = again
        left, round_ = left[~kept], round_ + 1
    return x.reshape(shape)


def _one_more(seed: Tensor, element: Tensor, sample: Tensor, r: int) -> tuple[Tensor, Tensor]:
    """The numbers u and v of try r."""
    counter = element, sample, torch.full_like(element, r), torch.zeros_like(element)
    c0, c1, c2, c3 = _random.philox(counter, (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF))
    return _random._uniform(c0, c1), _random._uniform(c2, c3)


def _tried(u: Tensor, v: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """One try for each element of three flat tensors: x, and whether it is kept."""
    count = len(u)
    u, v, k = (even(part.unsqueeze(0), 0.5).squeeze(0) for part in (u, v, k))
    b = 1 + 1 / (math.e * k)
    p = b * u
    x = p.log().clamp_(max=0).mul_(k).exp_()
    allowed = v.log().neg_()
    kept = allowed >= x
    high = (p > 1).nonzero().squeeze(-1)  # a few of a hundred, for large k
    # 1 - u is exact, b - p would not be
    tail = _log(k[high] * b[high] * (1 - u[high])).neg()
    x[high], kept[high] = tail, allowed[high] >= (1 - 1 / k[high]) * _log(tail)
    return x[:count], kept[:count]


def _log(x: Tensor) -> Tensor:
    """log of a flat tensor, with the same bits for an element anywhere in it."""
    return even(x.unsqueeze(0), 1.0).log().squeeze(0)[: len(x)]


def perturbed(eps: Tensor, rows: Rows) -> Redraw:
    """The draw that adds eps (S, R, n) and takes the k largest."""
    return lambda theta: largest(theta.to(eps.dtype) + eps, rows)


def difference(theta: Tensor, strength: float, draw: Redraw) -> Tensor:
    """draw(theta), (S, R, n), with I-MLE's gradient; `draw` has its random numbers fixed."""
    return _difference(theta, strength, draw)


class _Difference(torch.autograd.Function):
    @staticmethod
    def forward(theta: Tensor, _strength: float, draw: Redraw) -> Tensor:
        return draw(theta).to(theta.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        theta, ctx.strength, ctx.draw = inputs
        ctx.save_for_backward(theta, output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:
        theta, z = ctx.saved_tensors
        dtype = _checks.work_dtype(theta)
        rather = ctx.draw(theta.to(dtype) - ctx.strength * g.to(dtype))
        pulled = ((z.to(dtype) - rather.to(dtype)) / ctx.strength).sum(0)
        return pulled.to(theta.dtype), None, None


_difference: Callable[..., Tensor] = _Difference.apply
