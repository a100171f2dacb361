r"""The k-subset law as a mixture of independent draws: its DFT form, in torch operations.

Let t = theta + c with any c, p = sigmoid(t) and S the size of a draw that takes each
unit by itself with probability p_i. The k-subset law is that draw given S = k. With
omega = exp(i x) and f_i = 1 - p_i + p_i omega, the size has the generating function
phi = prod_i f_i, and for N nodes x_l = 2 pi l / N

    P(S = k) = 1/N sum_l phi(x_l) omega_l^-k =: P,     rho_l = phi(x_l) omega_l^-k / (N P),

so that with q_i(l) = p_i omega_l / f_i(l), the probabilities of a tilted draw,

    E[g(z)] = sum_l rho_l E_{q(l)}[g(z)]

for every multilinear g: **a mixture of independent draws with complex weights that
sum to 1**. As q - p = v (omega - 1) / f, v = p (1 - p), it follows that

    log Z   = log P + sum_i log(1 + e^t_i)     (of t; of theta it is less k c),
    mu_i    = p_i + v_i Re sum_l rho_l (omega_l - 1) / f_i(l),
    (J g)_i = v_i Re sum_l [g_i rho_l omega_l / f_i(l)^2
                            + rho_l (omega_l - 1) (K_l - K) / f_i(l)],
              K_l = (omega_l - 1) sum_j g_j v_j / f_j(l),  K = Re sum_l rho_l K_l,
    C_ij    = v_i v_j Re sum_l rho_l (omega_l - 1)^2 / (f_i f_j) - (mu_i - p_i)(mu_j - p_j)

with J the Jacobian of the marginals, which is the covariance C of z (Theorem 1 and its
second derivative). Each is of the size of v_i, and nothing cancels. Nor does anything in
log P(z) = -sum_i |t_i| [z_i != (t_i > 0)] - rest if what is kept of log Z is

    rest = log Z - sum_i max(t_i, 0) = log P + sum_i log(1 + e^-|t_i|).

**The shift.** With sigmoid top-k's c, E S = k: k is the mode of S, P is at least about
1 / (1 + 2.5 sd(S)) and the weights are small numbers of one sign or nearly. With c = 0, P may
be 1e-300 and all digits are lost. The law does not depend on c, so it is a constant.

**Few nodes.** Taking N nodes adds the sizes k + N, k - N, ... to k. By Bennett's
inequality they weigh less than e^-T once V h(N / V) >= T, with V = sum_i v_i and
h(x) = (1 + x) log(1 + x) - x: N is about sqrt(2 T V), however large n and k are. And
|phi|^2 = prod (1 - 4 v_i sin^2(x/2)) <= exp(-4 V sin^2(x/2)) leaves about T / 3 of
the nodes on either side of 0, of which one side is enough, as the two are conjugate:
never more than 30, for double precision. So all of this costs O(n). N is odd, for f
vanishes at x = pi and p = 1/2.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from khot._rows import steady

# e^-T is what the nodes left out may weigh: of a float64 and of a float32.
TAILS = {torch.float64: 44.0, torch.float32: 22.0}


def nodes(least: float, most: float, n: int, tail: float) -> tuple[int, int]:
    """N, and how many nodes x >= 0 are needed, for sums of v between least and most."""
    size = tail / 3 + math.sqrt(tail * tail / 9 + 2 * tail * most)  # Bernstein: not too few
    for _ in range(3):
        if most > 0:  # Newton from above, on a convex function
            x = size / most
            size -= (most * ((1 + x) * math.log1p(x) - x) - tail) / math.log1p(x)
    count = min(math.ceil(size), n + 1) | 1
    if 2 * least <= tail:
        return count, (count + 1) // 2
    last = math.asin(math.sqrt(tail / (2 * least))) * count / math.pi
    return count, min(math.ceil(last), (count + 1) // 2)


Complex = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Mixture:
    """Rows of the law: units (R, 1, n), nodes (1, L, 1) and their weights (R, L, 1)."""

    p: Tensor
    v: Tensor
    h2: Tensor  # 1 - cos x = 2 sin^2(x/2)
    sin: Tensor
    rho: Complex
    rest: Tensor  # log Z less the positive part of t, (R, 1)

    @property
    def step(self) -> Complex:
        """omega - 1."""
        return -self.h2, self.sin

    @property
    def inverse(self) -> Complex:
        """1 / f, (R, L, n)."""
        size = 1 - 2 * self.v * self.h2
        return (1 - self.p * self.h2) / size, -self.p * self.sin / size

    def over_f(self, y: Complex) -> Tensor:
        """Re sum_l y_l / f(l), (R, 1, n)."""
        slope = y[1] * self.sin - y[0] * self.h2
        parts = (y[0] + slope * self.p) / (1 - 2 * self.h2 * self.v)
        return parts.sum(1, keepdim=True)


def mixture(t: Tensor, k: Tensor, count: int, used: int) -> Mixture:
    """The mixture for centred logits t (R, n) and k (R, 1), with `used` of `count` nodes."""
    p, q = torch.sigmoid(t).unsqueeze(1), torch.sigmoid(-t).unsqueeze(1)
    index = torch.arange(used, device=t.device, dtype=t.dtype).reshape(1, -1, 1)
    x = index * (2 * math.pi / count)
    h2, sin = 2 * (x / 2).sin().square(), x.sin()
    phi = _product((1 - p * h2, p * sin))
    # k l mod N is exact, and k x would not be
    turn = torch.remainder(k.unsqueeze(-1) * index, count) * (2 * math.pi / count)
    cos, sin_turn = (steady(f, turn.flatten(0, 1)).view_as(turn) for f in (torch.cos, torch.sin))
    real, imaginary = _times(phi, (cos, -sin_turn))
    weight = torch.where(index > 0, 2.0, 1.0)
    size = (weight * real).sum(1, keepdim=True)
    rho = weight * real / size, weight * imaginary / size
    log_size = steady(torch.log, (size / count).squeeze(1))
    rest = log_size + torch.log1p(torch.exp(-t.abs())).sum(-1, keepdim=True)
    return Mixture(p, p * q, h2, sin, rho, rest)


def marginals(of: Mixture) -> Tensor:
    """mu, (R, n)."""
    return (of.p + of.v * of.over_f(_times(of.rho, of.step))).squeeze(1)


def times_covariance(of: Mixture, g: Tensor) -> Tensor:
    """J g for g (R, n), which is also the product of g with J: it is symmetric."""
    g, v = g.unsqueeze(1), of.v
    total = v.sum(-1, keepdim=True)
    mean = (v * g).sum(-1, keepdim=True) / torch.where(total > 0, total, 1.0)
    g = g - mean  # J does not see a constant, for the size is one
    real, imaginary = of.inverse
    gv = g * v
    summed = (gv * real).sum(-1, keepdim=True), (gv * imaginary).sum(-1, keepdim=True)
    pull = _times(of.step, summed)
    pull = pull[0] - _times(of.rho, pull)[0].sum(1, keepdim=True), pull[1]
    tilted = _times(of.rho, (1 - of.h2, of.sin))
    square = real.square() - imaginary.square(), 2 * real * imaginary
    own = _times(tilted, square)[0].sum(1, keepdim=True)
    others = of.over_f(_times(_times(of.rho, of.step), pull))
    return (v * (g * own + others)).squeeze(1)


def covariance(of: Mixture) -> Tensor:
    """C, (R, n, n), but for its diagonal."""
    shift = (of.v * of.over_f(_times(of.rho, of.step))).squeeze(1)
    real, imaginary = (of.v * part for part in of.inverse)
    scaled = _times(_times(of.rho, _times(of.step, of.step)), (real, imaginary))
    pairs = scaled[0].mT @ real - scaled[1].mT @ imaginary
    return pairs - shift.unsqueeze(-1) * shift.unsqueeze(-2)


def _product(f: Complex) -> Complex:
    """Over the last dimension: halves with each other, until one is left."""
    a, b = f
    while (n := a.shape[-1]) > 1:
        half = n // 2
        first, second = slice(0, half), slice(half, 2 * half)
        real, imaginary = _times((a[..., first], b[..., first]), (a[..., second], b[..., second]))
        if n % 2:
            real = torch.cat((real, a[..., -1:]), -1)
            imaginary = torch.cat((imaginary, b[..., -1:]), -1)
        a, b = real, imaginary
    return a, b


def _times(a: Complex, b: Complex) -> Complex:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]
