r"""The score function estimator (REINFORCE) for the k-subset law, as it stands or fitted.

For any loss f, differentiable or not, the gradient of E[f(z)] is E[f(z) s(z)] with the score
s = d log P(z) / d theta, which for P(z) ~ exp(<theta, z>) over the z with k ones is

    s(z) = z - mu(theta),    mu = E[z].

As E[s] = 0, a baseline b that does not depend on z may be taken from f: (f(z) - b) s(z) has
the same expectation, and with a good b much less variance.

**How the loss value comes in.** Backward passes cotangents, not losses. The gradient of this
estimator at a cotangent g of z is that of the linear loss <g, z> with g held fixed,

    <g, z> (z - mu).

A g that is constant along the units, (f(z) - b) / k, makes that (f(z) - b) (z - mu), for z has
k ones: what `khot.with_losses` sends.

**The marginals** come in two forms, of the same mu: the discrete Fourier transform in O(n),
as in `khot.KSubset`, and the dynamic programme in O(n k). The second goes over the units with the
ratios that the draw uses (`khot/_ksubset_ratios.py`): with q_i(m) the probability that unit i is
taken if m are still to be taken from it and those after, and alpha_i(m) the probability that m
are, which is 1 at first for m = k,

    mu_i = sum_m alpha_i(m) q_i(m),   alpha_{i+1}(m) = alpha_i(m) (1 - q_i(m))
                                                        + alpha_i(m + 1) q_i(m + 1):

sums of positive numbers, so stable as well.

**Fitted**, theta is such that mu is pi = sigmoid_topk(logits, k, tau), and so a function of
the logits: d theta = C^+ d pi with C the covariance of z, and pi has the Jacobian
A = diag(d) - d d^T / sum d, d = pi (1 - pi). The score in logits / tau is

    A C^+ (z - pi).

C is singular along the constants, which A does not see either; units at exactly 0 or 1 have
d = 0, so no score. As this is linear in z - pi, all samples share one solution
(`khot/_ksubset_fit.py`).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from khot import _checks, _ksubset, _ksubset_fit
from khot import _ksubset_ratios as ratios
from khot._sigmoid import relax
from khot.estimators._common import Draws, Rows, prepared
from khot.estimators._k_subset import drawn, theta, whole_k
from khot.sampling._draw import row_sum

_WHO = "score_function"


def score_function(
    logits: Tensor,
    k: float | Tensor,
    *,
    tau: float | Tensor = 1.0,
    form: str = "dft",
    fitted: bool = False,
    num_samples: int | None = None,
    dim: int = -1,
    generator: torch.Generator | None = None,
    seeds: Tensor | None = None,
) -> Tensor:
    r"""Return a k-hot draw of the k-subset law whose gradient is the score times the loss.

    .. math:: z \sim P(z) \propto e^{\langle \theta, z \rangle}, \quad \sum_i z_i = k, \qquad
        \nabla := (f(z) - b) \, (z - \mu), \qquad \theta = \text{logits} / \tau

    with f(z) the loss and b a baseline. Give them by `khot.with_losses`, from losses of z
    detached: this z must not be differentiated through the loss.

    Args:
        logits: float64, float32, bfloat16 or float16; -inf masks a unit, which is never drawn.
        k: how many to draw, a whole number in [0, number of unmasked entries], or
            a tensor of such that broadcasts to the shape of logits without `dim`.
        tau: temperature > 0, a number or a tensor like k.
        form: how mu is computed: "dft" in O(n), or "dynamic_programme" in O(n k).
        fitted: whether theta is, instead of logits / tau, such that the inclusion probabilities
            are sigmoid_topk(logits, k, tau): the law of `conditional_poisson`.
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
        ValueError: a shape does not fit, a value is out of range, k is not whole, form has no
            such name, both generator and seeds are given, or a row cannot be fitted.

    Gradient:
        In logits and tau: <g, z> (z - mu) for a cotangent g, which with `khot.with_losses` is
        (loss - baseline) (z - mu). Unbiased of the gradient of E[loss(z)], for any loss. For
        losses that are given as a cotangent, <g, z>, only if they are linear in z. Fitted, the
        score is A C^+ (z - pi) instead of z - mu, with A the Jacobian of pi and C the
        covariance of z, and has no second derivative.

    Example:
        >>> import torch, khot
        >>> logits = torch.tensor([2.0, 1.0, 0.0, -1.0], requires_grad=True)
        >>> z = khot.score_function(logits, 2, seeds=khot.row_seeds(0, 1)[0])
        >>> z.detach()
        tensor([1., 1., 0., 0.])
        >>> loss = z.detach().prod() + 3.0  # of any kind
        >>> khot.with_losses(z, loss, baseline=torch.tensor(2.0)).backward()
        >>> logits.grad
        tensor([ 0.1192,  0.3056, -0.3056, -0.1192])

    References:
        Wijk, Vinuesa and Azizpour (2025), SFESS: score function estimators for k-subset
        sampling; Williams (1992); Differentiable Top-k, Section 2.4.
    """
    _checks.check_choice(_WHO, "form", form, FORMS)
    _checks.check_flag(_WHO, "fitted", fitted)
    draws = Draws(num_samples=num_samples, dim=dim, generator=generator, seeds=seeds)
    rows = prepared(_WHO, logits, k, tau, **draws)
    rows.refuse_values()
    law = _fitted(rows) if fitted else (theta(rows), whole_k(rows), None)
    return rows.shaped(_scored(*law, rows, FORMS[form]))


def _fitted(rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """theta (R, n) with the gradient of logits and tau, k without its certain units, and those."""
    k = whole_k(rows)
    logits = rows.logits.to(k.dtype)  # float32 would make certain what is not
    pi = relax(_WHO, logits, k.squeeze(-1), rows.tau, -1)
    certain = (pi.detach() == 1).to(k.dtype)
    return *_ksubset_fit.inverse(_WHO, pi, k, row_sum), certain


def _by_transform(theta: Tensor, k: Tensor) -> Tensor:
    return _ksubset.law(theta, k)[0]


def _by_programme(theta: Tensor, k: Tensor) -> Tensor:
    """mu (R, n) by the recursion of the module docstring, in torch operations."""
    n, c = theta.shape[-1], _ksubset.shift(theta, k)
    free, choice = theta > -torch.inf, c.isfinite()
    reach, most = ratios.REACH[k.dtype], max(1, int(k.max())) if len(k) else 1
    t = torch.where(choice & free, theta.to(k.dtype) + torch.where(choice, c, 0.0), 0.0)
    order = free.to(torch.int8).argsort(stable=True, dim=-1)  # those masked come first
    w = t.clamp(-reach, reach).exp().gather(-1, order)
    units = free.sum(-1, keepdim=True)
    table = ratios._Table(w, most)
    size = torch.arange(most + 1, device=theta.device)
    alpha = (size == torch.where(choice, k, 0.0)).to(k.dtype).expand(len(theta), -1)
    taken = []
    for r in range(n, 0, -1):
        weight = w[:, n - r].unsqueeze(-1)
        q = torch.where(units >= r, weight / (weight + table.after(r - 1)), 0.0)
        flow = torch.nn.functional.pad(alpha[:, 1:] * q, (1, 1))
        taken.append(flow.sum(-1))
        alpha = alpha - flow[:, :-1] + flow[:, 1:]
    mu = torch.zeros_like(w).scatter(-1, order, torch.stack(taken, -1).clamp(0, 1))
    return torch.where((c == torch.inf) & free, 1.0, mu).to(theta.dtype)


FORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "dft": _by_transform,
    "dynamic_programme": _by_programme,
}


class _Score(torch.autograd.Function):
    """(theta, k, certain, rows, form) -> z (S, R, n), with the backward <g, z> (z - mu).

    Certain units (R, n) are ones beside the k; theta is -inf there, which has no gradient.
    """

    @staticmethod
    def forward(theta: Tensor, k: Tensor, certain: Tensor | None, rows: Rows, _: object) -> Tensor:
        z = drawn(theta, k, rows)
        return z if certain is None else z + certain

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        theta, k, _, _, ctx.form = inputs
        ctx.save_for_backward(theta, k, output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        theta, k, z = ctx.saved_tensors
        z = z.detach()  # a draw does not move, also when this is differentiated again
        loss = row_sum(g * z)
        return (loss * (z - ctx.form(theta, k))).sum(0), None, None, None, None


_scored: Callable[..., Tensor] = _Score.apply
