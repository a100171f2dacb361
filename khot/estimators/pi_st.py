r"""Straight-through on inclusion probabilities: draw z, differentiate pi.

With pi = sigmoid_topk(logits, k) and z drawn with exactly these inclusion
probabilities, E[z] = pi, and the gradient of a loss f is taken as if z were pi:

    J_pi^T g,   g = df/dz at the drawn z,   J_pi = d pi / d logits.

The true gradient of E[f(z)] is sum_{x,y} p(y) (f(x) - f(y)) dp(x)/d logits.
Replacing f(x) - f(y) by f'(y) (x - y), what is left is E[J_pi^T g] (Proposition
3): the estimate is exact for linear f, and for others it errs by how far f is from
linear between k-hot vectors. It is without bias *of that approximation*, for any
design with exact inclusion probabilities, for only E[z] = pi is used.

At k = 1 it is the categorical straight-through estimator with marginals sigma_1(logits),
which is not softmax: of two units it is softmax(logits / 2).
"""

import torch
from torch import Tensor

from khot._sigmoid import relax, relax_with_diagnostics
from khot._solve import Diagnostics
from khot.estimators._common import Draws, Number, prepared, straight_through
from khot.sampling.pivotal import pivotal


def pi_st(
    logits: Tensor,
    k: Number,
    *,
    tau: Number = 1.0,
    num_samples: int | None = None,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return a hard k-hot draw that is differentiated as its inclusion probabilities.

    .. math:: z \sim \text{pivotal}(\pi), \qquad
        \pi = \sigma_k(\text{logits} / \tau), \qquad dz := d\pi

    Args:
        logits: as the x of `sigmoid_topk`; -inf masks a unit, which is never drawn.
        k: how many to draw, a whole number in [0, number of unmasked entries], or
            a tensor of such that broadcasts to the shape of logits without `dim`.
        tau: temperature > 0, a number or a tensor like k.
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
        ValueError: a shape does not fit, a value is out of range, k is not whole
            (`pi_st_implicit` takes any), or both generator and seeds are given.

    Gradient:
        Straight-through, in logits, k and tau: that of pi, at the cotangent of z.
        Unbiased of the first-order approximation of the gradient of E[loss(z)]
        (Proposition 3), hence of that gradient itself where the loss is linear in
        z. Needs the gradient of the loss at z, not its value.

    Example:
        >>> import torch, khot
        >>> logits = torch.tensor([2.0, 1.0, 0.0, -1.0], requires_grad=True)
        >>> z = khot.pi_st(logits, 2, seeds=khot.row_seeds(0, 1)[0])
        >>> z.detach()
        tensor([1., 1., 0., 0.])
        >>> (z * torch.tensor([1.0, 0.0, 0.0, 0.0])).sum().backward()
        >>> logits.grad
        tensor([ 0.1202, -0.0456, -0.0456, -0.0290])

    References:
        Differentiable Top-k: from one-hot to k-hot, Algorithm 1, Proposition 3.
    """
    drawn = Draws(num_samples=num_samples, dim=dim, generator=generator, seeds=seeds)
    rows = prepared("pi_st", logits, k, tau, **drawn)
    pi = relax(rows.who, rows.logits, rows.k, rows.tau, -1)
    return rows.shaped(straight_through(rows.draw(pivotal, pi), pi))


def pi_st_with_diagnostics(
    logits: Tensor,
    k: Number,
    *,
    tau: Number = 1.0,
    num_samples: int | None = None,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> tuple[Tensor, Diagnostics]:
    """Return `pi_st` of the same arguments, and how each row of pi was solved."""
    drawn = Draws(num_samples=num_samples, dim=dim, generator=generator, seeds=seeds)
    rows = prepared("pi_st", logits, k, tau, **drawn)
    shape = logits.movedim(dim, -1).shape[:-1]
    pi, solved = relax_with_diagnostics(rows.who, rows.logits, rows.k, rows.tau, -1, shape=shape)
    return rows.shaped(straight_through(rows.draw(pivotal, pi), pi)), solved
