r"""I-MLE: perturb-and-MAP, and the difference to the draw that the loss would rather have.

    z  = topk(logits + tau eps),     z' = topk(logits - lambda g + tau eps),
    gradient := (z - z') / lambda,

with the same noise eps in both. `khot/estimators/_perturb.py` has the noise and its exact
numbers. As lambda -> 0 the expected gradient is that of E[z] along g, J^T g, of the law of z
(which is not the k-subset law, but near it), and its variance grows as 1 / lambda: of the
few draws that differ, each counts 1 / lambda. A large lambda is steadier, and further off.
"""

import torch
from torch import Tensor

from khot.estimators import _perturb
from khot.estimators._common import Draws, prepared
from khot.estimators._k_subset import whole_k

_WHO = "imle"


def imle(
    logits: Tensor,
    k: float | Tensor,
    *,
    tau: float | Tensor = 1.0,
    strength: float = 1.0,
    noise: str = "sum_of_gamma",
    num_samples: int | None = None,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return the k-hot top-k of noisy logits, with implicit maximum likelihood's gradient.

    .. math:: z = \text{topk}(\theta + \tau \epsilon), \qquad
        \nabla := \frac{1}{\lambda} \left(z - \text{topk}(\theta - \lambda g + \tau \epsilon)\right)

    with theta the logits, g the cotangent of z, lambda the strength, and one and the same noise.

    Args:
        logits: float64, float32, bfloat16 or float16; -inf masks a unit, which is never drawn.
        k: how many to draw, a whole number in [0, number of unmasked entries], or
            a tensor of such that broadcasts to the shape of logits without `dim`.
        tau: what the noise is multiplied by, > 0, a number or a tensor like k.
        strength: lambda > 0, how far along -g the second draw is taken. It should be of the
            size of logits over g: where nothing changes places, the gradient is 0.
        noise: "sum_of_gamma" (sums of k of which are nearly Gumbel), or "gumbel".
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
        ValueError: a shape does not fit, a value is out of range, k is not whole, noise has no
            such name, or both generator and seeds are given.

    Gradient:
        In the logits, as above: of values 0, 1/lambda and -1/lambda, and not differentiable
        again. Unbiased of (E[z] - E[z']) / lambda alone, at a g that does not depend on z, which
        tends to J^T g for small lambda, with J that of E[z]. Needs the gradient of the loss at
        z, not its value.

    Example:
        >>> import torch, khot
        >>> logits = torch.tensor([2.0, 1.0, 0.0, -1.0], requires_grad=True)
        >>> z = khot.imle(logits, 2, seeds=khot.row_seeds(0, 1)[0])
        >>> z.detach()
        tensor([1., 1., 0., 0.])
        >>> (z * torch.tensor([3.0, 0.0, 0.0, 0.0])).sum().backward()
        >>> logits.grad
        tensor([ 1.,  0., -1.,  0.])

    References:
        Niepert, Minervini and Franceschi (2021), Implicit MLE: backpropagating through discrete
        exponential family distributions.
    """
    strength = _perturb.checked_strength(_WHO, strength)
    _perturb.checked_noise(_WHO, noise)
    draws = Draws(num_samples=num_samples, dim=dim, generator=generator, seeds=seeds)
    rows = prepared(_WHO, logits, k, tau, **draws)
    rows.refuse_values()
    eps = _perturb.noise(noise, whole_k(rows), rows.source, rows.logits.shape[-1])
    scale = rows.tau.detach().unsqueeze(-1) if isinstance(rows.tau, Tensor) else rows.tau
    draw = _perturb.perturbed(eps * scale, rows)
    return rows.shaped(_perturb.difference(rows.logits, strength, draw))
