r"""ReinMax: second order from one draw, for k = 1.

The true gradient of E[f(z)] is sum_{x,y} p(y) (f(x) - f(y)) dp(x)/d logits. The
straight-through estimator takes f'(y) (x - y) for the difference; Heun's rule,
(f'(x) + f'(y)) (x - y) / 2, is exact for quadratic f. With softmax, whose Jacobian where its
value is p is J(p) = diag(p) - p p^T, the mean over both ends can be had from one draw:

    2 J(pi_1)^T g - J(pi)^T g / 2,   pi_1 = (z + softmax(logits / tau)) / 2

has that mean at tau = 1 (Liu et al., Theorem 3.1). For linear f, as a check:
E[pi_1 pi_1^T] = (diag(pi) + 3 pi pi^T) / 4, so E[2 J(pi_1) - J(pi) / 2] = J(pi).
"""

import torch
from torch import Tensor

from khot._rows import even
from khot.estimators._common import Draws, Number, prepared, straight_through
from khot.relaxations.softmax_topk import softmax_topk
from khot.sampling.pivotal import pivotal


def reinmax(
    logits: Tensor,
    k: Number = 1,
    *,
    tau: Number = 1.0,
    num_samples: int | None = None,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return a hard one-hot draw from softmax(logits), with a gradient of second order.

    .. math:: z \sim \text{Categorical}(\pi_0), \qquad
        \pi_0 = \operatorname{softmax}(\text{logits}), \qquad
        dz := 2\, d\pi_1 - \tfrac12 d\pi_0, \qquad
        \pi_1 = \tfrac12 (z + \operatorname{softmax}(\text{logits} / \tau))

    Args:
        logits: float64, float32, bfloat16 or float16; -inf masks a unit, which is never drawn.
        k: 1, and nothing else; `pi_st2` is for other k.
        tau: temperature > 0 of the gradient alone, a number, or a tensor that broadcasts to
            the shape of logits without `dim`; the draw is at temperature 1.
        num_samples: how many draws of each row, as a new first dimension. The first is
            the draw without it.
        dim: the dimension that holds the n units.
        generator: where the randomness comes from; torch's own if None.
        seeds: instead, one int64 seed for each row, as in `pivotal`.

    Returns:
        Tensor of the logits' shape and dtype, after num_samples if given, of zeros and one
        1 along `dim`.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, a value is out of range, k is not 1, or both
            generator and seeds are given.

    Gradient:
        In logits: 2 J(pi_1)^T g - J(pi_0)^T g / 2, with J the Jacobian of softmax. At tau = 1
        unbiased of the second-order approximation of the gradient of E[loss(z)], hence of
        that gradient itself where the loss is quadratic in z; at other tau biased.

    Example:
        >>> import torch, khot
        >>> logits = torch.tensor([2.0, 1.0, 0.0, -1.0], requires_grad=True)
        >>> z = khot.reinmax(logits, seeds=khot.row_seeds(0, 1)[0])
        >>> z.detach()
        tensor([1., 0., 0., 0.])
        >>> (z * torch.tensor([1.0, 0.0, 0.0, 0.0])).sum().backward()
        >>> logits.grad
        tensor([ 0.1780, -0.1184, -0.0436, -0.0160])

    References:
        Liu, Dong, Liu, Yu and Gao (2023), Bridging discrete and backpropagation:
        straight-through and beyond; Differentiable Top-k: from one-hot to k-hot, Algorithm 4.
    """
    drawn = Draws(num_samples=num_samples, dim=dim, generator=generator, seeds=seeds)
    rows = prepared("reinmax", logits, k, tau, **drawn, only_k=1)
    rows.refuse_values()
    n, x = rows.logits.shape[-1], even(rows.logits, -torch.inf)
    pi = x.softmax(-1)
    z = rows.draw(pivotal, pi[:, :n])
    smoothed = pi.detach()
    if isinstance(rows.tau, Tensor) or rows.tau != 1:
        smoothed = softmax_topk(x.detach(), 1, tau=rows.tau).detach()
    moved = torch.where(x > -torch.inf, x, 0.0)
    middle = (even(z, 0.0) + smoothed).log() + (moved - moved.detach())
    second = 2 * middle.softmax(-1) - 0.5 * pi
    return rows.shaped(straight_through(z, second[..., :n]))
