r"""SIMPLE: draw from the k-subset law, differentiate its marginals.

The k-subset law P(z) ~ exp(<theta, z>) over the z with k ones has marginals mu(theta) = E[z]
that can be computed, and so can their Jacobian J, which is the covariance of z. The gradient of
a loss f is taken as if z were mu:

    J g,   g = df/dz at the drawn z

(Algorithm 3; J is symmetric, so this is a directional derivative of mu). As in `pi_st`,
replacing f(x) - f(y) by f'(y) (x - y) in the true gradient sum_{x,y} P(y) (f(x) - f(y)) dP(x)
leaves J E[g]: the estimate is exact for linear f, without bias of this first-order
approximation for others, and random only through g. At k = 1 mu is softmax(theta): the categorical
straight-through estimator.

Draws and products with J are those of `khot/_ksubset.py`: O(k (n - k)) and O(n). For S samples,
J is one and the same, so their cotangents are added first.

Its two flavours take away one of the exact halves each (Section 5.1):

- **F** (exact forward): estimates the marginals of the backward by exact draws, (z - z') /
  strength with z' drawn at theta - strength g by the same random numbers, as I-MLE does with
  inexact ones.
- **B** (exact backward): J g, but at a z by perturb-and-MAP, as in I-MLE.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from khot import _checks, _ksubset
from khot.estimators import _perturb
from khot.estimators._common import Draws, prepared
from khot.estimators._k_subset import drawn, theta, whole_k

_WHO = "simple"
FLAVOURS = ("simple", "f", "b")


def simple(
    logits: Tensor,
    k: float | Tensor,
    *,
    tau: float | Tensor = 1.0,
    flavour: str = "simple",
    strength: float = 1.0,
    noise: str = "sum_of_gamma",
    num_samples: int | None = None,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return a k-hot draw of the k-subset law that is differentiated as its exact marginals.

    .. math:: z \sim P(z) \propto e^{\langle \theta, z \rangle}, \quad \sum_i z_i = k, \qquad
        \theta = \text{logits} / \tau, \qquad dz := d\mu, \quad \mu = \mathbb{E} z

    Args:
        logits: float64, float32, bfloat16 or float16; -inf masks a unit, which is never drawn.
        k: how many to draw, a whole number in [0, number of unmasked entries], or
            a tensor of such that broadcasts to the shape of logits without `dim`.
        tau: temperature > 0, a number or a tensor like k.
        flavour: "simple"; "f", whose gradient is a difference of exact draws; or "b", whose
            draw is that of `imle`.
        strength: of flavour f, as in `imle`.
        noise: of flavour b, as in `imle`.
        num_samples: how many draws of each row, as a new first dimension. The first
            is the draw without it.
        dim: the dimension that holds the n units.
        generator: where the randomness comes from; torch's own if None.
        seeds: instead, one int64 seed for each row, as in `pivotal`.

    Returns:
        Tensor of the logits' shape and dtype, after num_samples if given, of zeros and
        exactly k ones along `dim`.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, a value is out of range, k is not whole, flavour or
            noise has no such name, or both generator and seeds are given.

    Gradient:
        Straight-through, in logits and tau: J g, with J the Jacobian of the exact marginals
        and g the cotangent of z. Unbiased of J E[g], the first-order approximation of the
        gradient of E[loss(z)], hence of that gradient itself where the loss is linear in z.
        Needs the gradient of the loss at z, not its value. Of flavour f, that of `imle`.

    Example:
        >>> import torch, khot
        >>> logits = torch.tensor([2.0, 1.0, 0.0, -1.0], requires_grad=True)
        >>> z = khot.simple(logits, 2, seeds=khot.row_seeds(0, 1)[0])
        >>> z.detach()
        tensor([1., 1., 0., 0.])
        >>> (z * torch.tensor([1.0, 0.0, 0.0, 0.0])).sum().backward()
        >>> logits.grad
        tensor([ 0.1050, -0.0257, -0.0536, -0.0257])

    References:
        SIMPLE: A Gradient Estimator for k-Subset Sampling, Algorithm 3, Equation 8.
    """
    _checks.check_choice(_WHO, "flavour", flavour, FLAVOURS)
    strength = _perturb.checked_strength(_WHO, strength)
    _perturb.checked_noise(_WHO, noise)
    draws = Draws(num_samples=num_samples, dim=dim, generator=generator, seeds=seeds)
    rows = prepared(_WHO, logits, k, tau, **draws)
    rows.refuse_values()
    x, column = theta(rows), whole_k(rows)

    def exact(x: Tensor) -> Tensor:
        return drawn(x, column, rows)

    if flavour == "f":
        return rows.shaped(_perturb.difference(x, strength, exact))
    draw: _perturb.Redraw = exact
    if flavour == "b":
        eps = _perturb.noise(noise, column, rows.source, x.shape[-1])
        draw = _perturb.perturbed(eps, rows)
    return rows.shaped(_as_marginals(x, column, draw))


class _Marginals(torch.autograd.Function):
    """(theta, k, draw) -> z (S, R, n), differentiated as the marginals of theta."""

    @staticmethod
    def forward(theta: Tensor, _k: Tensor, draw: _perturb.Redraw) -> Tensor:
        return draw(theta).to(theta.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        theta, k, _ = inputs
        ctx.samples = len(output)
        ctx.save_for_backward(theta, k)
        ctx.save_for_forward(theta, k)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        theta, k = ctx.saved_tensors
        total = g.squeeze(0) if len(g) == 1 else g.sum(0)
        return _ksubset.times_covariance(theta, k, total), None, None

    @staticmethod
    def jvp(ctx: Any, dtheta: Tensor | None, *_: None) -> Tensor | None:
        if dtheta is None:
            return None
        theta, k = ctx.saved_tensors
        along = _ksubset.times_covariance(theta, k, dtheta)
        return along.expand(ctx.samples, *along.shape)


_as_marginals: Callable[..., Tensor] = _Marginals.apply
