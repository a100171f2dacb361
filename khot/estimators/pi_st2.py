r"""The second-order estimator: ReinMax's two Jacobians, for k-hot draws.

ReinMax (`reinmax.py`) averages the derivative of the loss at both ends of a step, which it
can do with one draw because log inverts softmax and E[z] = pi. For k-hot draws the inverse
of sigma_k, up to a constant, is the logit, and E[z] = pi holds for every exact design. So
with J(p) = diag(d) - d d^T / sum d, d = p (1 - p), the Jacobian of sigma_k where its value is
p, the gradient is

    2 J(pi_1)^T g - J(pi)^T g / 2,   pi_1 = (z + sigma_k(logits / tau)) / 2.

**What it is.** At n = 2, k = 1 it is ReinMax at logits / 2, and its mean is the true gradient
for every quadratic loss. Beyond, it is *not* of second order: E[d(pi_1)] = 3/4 d(pi) as for
ReinMax, but d d^T / sum d is a ratio, whose mean has no such closed form, and even for a
linear loss the mean is off, by some hundredths of the gradient for logits ~ N(0, 1). The
paper calls it "potentially second-order" for that reason. What it corrects is the curvature
that `pi_st` does not see, which is far more: on the paper's polynomial programme it finds
the optimum and `pi_st` does not (`tests/bench/bench_polynomial_programming.py`).

**Stable.** J(pi_1) is that of sigma_k at the logits of pi_1, log pi_1 - log(1 - pi_1), with
1 - pi_1 = ((1 - z) + (1 - pi)) / 2 and not from pi_1, which may round to 1. Adding
logits - logits, the second constant, gives them the gradient and no rounding at an offset.
"""

import torch
from torch import Tensor

from khot._sigmoid import relax
from khot.estimators._common import Draws, Number, prepared, straight_through
from khot.sampling.pivotal import pivotal


def pi_st2(
    logits: Tensor,
    k: Number,
    *,
    tau: Number = 1.0,
    num_samples: int | None = None,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return a hard k-hot draw whose gradient corrects for the curvature of the loss.

    .. math:: z \sim \text{pivotal}(\pi_0), \qquad \pi_0 = \sigma_k(\text{logits}), \qquad
        dz := 2\, d\pi_1 - \tfrac12 d\pi_0, \qquad
        \pi_1 = \tfrac12 (z + \sigma_k(\text{logits} / \tau))

    Args:
        logits: as the x of `sigmoid_topk`; -inf masks a unit, which is never drawn.
        k: how many to draw, a whole number in [0, number of unmasked entries], or
            a tensor of such that broadcasts to the shape of logits without `dim`.
        tau: temperature > 0 of the gradient alone, a number or a tensor like k; the draw
            is at temperature 1.
        num_samples: how many draws of each row, as a new first dimension. The first is
            the draw without it.
        dim: the dimension that holds the n units.
        generator: where the randomness comes from; torch's own if None.
        seeds: instead, one int64 seed for each row, as in `pivotal`.

    Returns:
        Tensor of the logits' shape and dtype, after num_samples if given, of zeros and
        exactly k ones along `dim`.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, a value is out of range, k is not whole, or both
            generator and seeds are given.

    Gradient:
        In logits: 2 J(pi_1)^T g - J(pi_0)^T g / 2, with J the Jacobian of sigma_k. At n = 2,
        k = 1 and tau = 1 unbiased of the second-order approximation, hence of the gradient of
        E[loss(z)] for a quadratic loss; beyond, biased, slightly even for a linear loss.

    Example:
        >>> import torch, khot
        >>> logits = torch.tensor([2.0, 1.0, 0.0, -1.0], requires_grad=True)
        >>> z = khot.pi_st2(logits, 2, seeds=khot.row_seeds(0, 1)[0])
        >>> z.detach()
        tensor([1., 1., 0., 0.])
        >>> (z * torch.tensor([1.0, 0.0, 0.0, 0.0])).sum().backward()
        >>> logits.grad
        tensor([ 0.0766, -0.0310, -0.0310, -0.0146])

    References:
        Differentiable Top-k: from one-hot to k-hot, Algorithm 5, Appendix C.
    """
    drawn = Draws(num_samples=num_samples, dim=dim, generator=generator, seeds=seeds)
    rows = prepared("pi_st2", logits, k, tau, **drawn)
    who, x = rows.who, rows.logits
    size = rows.k.detach() if isinstance(rows.k, Tensor) else rows.k
    pi = relax(who, x, size, 1.0, -1)
    z = rows.draw(pivotal, pi)
    smoothed = pi.detach()
    if isinstance(rows.tau, Tensor) or rows.tau != 1:
        smoothed = relax(who, x.detach(), size, rows.tau, -1).detach()
    unmasked = x > -torch.inf
    moved = torch.where(unmasked, x, 0.0)
    middle = _logit(z, smoothed).masked_fill(~unmasked, -torch.inf) + (moved - moved.detach())
    return rows.shaped(straight_through(z, 2 * relax(who, middle, size, 1.0, -1) - 0.5 * pi))


def _logit(z: Tensor, pi: Tensor) -> Tensor:
    """logit((z + pi) / 2), finite."""
    least = torch.finfo(pi.dtype).tiny
    ones, zeros = z + pi, (1 - z) + (1 - pi)
    return ones.clamp(min=least).log() - zeros.clamp(min=least).log()
