r"""Straight-through on inclusion probabilities: draw z, differentiate pi.

With pi = sigmoid_topk(logits, k) and z drawn with exactly these inclusion
probabilities, E[z] = pi, and the gradient of a loss f is taken as if z were pi:

    J_pi^T g,   g = df/dz at the drawn z,   J_pi = d pi / d logits.

The true gradient of E[f(z)] is sum_{x,y} p(y) (f(x) - f(y)) dp(x)/d logits.
Replacing f(x) - f(y) by f'(y) (x - y), what is left is E[J_pi^T g] (Proposition
3): the estimate is exact for linear f, and for others it errs by how far f is from
linear between k-hot vectors. It is without bias *of that approximation*, for any
design with exact inclusion probabilities, for only E[z] = pi is used.

The value is z + (pi - pi), with the second pi constant: adding exactly 0 leaves
the zeros and ones as they are.
"""

import torch
from torch import Tensor

from khot import _checks
from khot._solve import Diagnostics
from khot.relaxations import sigmoid_topk, sigmoid_topk_with_diagnostics
from khot.sampling import tournament_pivotal

_WHO = "pi_st"


def pi_st(
    logits: Tensor,
    k: float | Tensor,
    *,
    tau: float | Tensor = 1.0,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return a hard k-hot draw that is differentiated as its inclusion probabilities.

    .. math:: z \sim \text{tournament pivotal}(\pi), \qquad
        \pi = \sigma_k(\text{logits} / \tau), \qquad dz := d\pi

    Args:
        logits: as the x of `sigmoid_topk`; -inf masks a unit, which is never drawn.
        k: how many to draw, a whole number in [0, number of unmasked entries], or
            a tensor of such that broadcasts to the shape of logits without `dim`.
        tau: temperature > 0, a number or a tensor like k.
        dim: the dimension that holds the n units.
        generator: where the randomness comes from; torch's own if None.
        seeds: instead, one int64 seed for each row, as in `tournament_pivotal`.

    Returns:
        Tensor of the logits' shape and dtype, of zeros and exactly k ones along `dim`.

    Raises:
        TypeError: an argument is of the wrong type or dtype.
        ValueError: a shape does not fit, a value is out of range (as `sigmoid_topk`
            says it), k is not whole, or both generator and seeds are given.

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
        tensor([0., 1., 1., 0.])
        >>> (z * torch.tensor([1.0, 0.0, 0.0, 0.0])).sum().backward()
        >>> logits.grad
        tensor([ 0.1202, -0.0456, -0.0456, -0.0290])

    References:
        Differentiable Top-k: from one-hot to k-hot, Algorithm 1, Proposition 3.
    """
    x = _checked(logits, k, dim)
    pi = sigmoid_topk(x, k, tau=tau, dim=dim)
    return _drawn(pi, dim, generator, seeds).to(logits.dtype)


def pi_st_with_diagnostics(
    logits: Tensor,
    k: float | Tensor,
    *,
    tau: float | Tensor = 1.0,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> tuple[Tensor, Diagnostics]:
    """Return `pi_st` of the same arguments, and how each row of pi was solved."""
    x = _checked(logits, k, dim)
    pi, diagnostics = sigmoid_topk_with_diagnostics(x, k, tau=tau, dim=dim)
    return _drawn(pi, dim, generator, seeds).to(logits.dtype), diagnostics


def _drawn(pi: Tensor, dim: int, generator: torch.Generator | None, seeds: Tensor | None) -> Tensor:
    z = tournament_pivotal(pi, dim=dim, generator=generator, seeds=seeds)
    return z + (pi - pi.detach())


def _checked(logits: Tensor, k: float | Tensor, dim: int) -> Tensor:
    """Refuse what `sigmoid_topk` would take; return the logits in a dtype that keeps sums."""
    logits = _checks.check_scores(_WHO, logits, dim, name="logits")
    _refuse_fractions(k)
    return logits if logits.dtype in (torch.float64, torch.float32) else logits.float()


def _refuse_fractions(k: object) -> None:
    if isinstance(k, bool) or not isinstance(k, (int, float, Tensor)):
        _checks.refuse(_WHO, "k must be a number or a tensor", type(k).__name__, TypeError)
    if isinstance(k, Tensor):
        fractions = int((k != k.round()).sum()) if k.is_floating_point() else 0
        got = f"a fraction in {fractions} of {k.numel()} entries"
    else:
        fractions, got = int(k % 1 != 0), f"{k:g}"
    if fractions:
        _checks.refuse(_WHO, "k must be whole (an implicit, fractional k comes later)", got)
