r"""The derivatives of p = sigmoid(s + c), s = x / tau, with c such that p sums to k.

Implicit differentiation of sum_i p_i = k, with d = p (1 - p), S = sum_i d_i and
w = d / S, gives

    dp_i = d_i (ds_i - <w, ds>) + w_i dk,        dc = -<w, ds> + dk / S,

so for a cotangent g of p, with m = <w, g>,

    grad_s = d (g - m),   grad_k = m,   grad_x = grad_s / tau,
    grad_tau = -<grad_s, s> / tau = -<grad_s, s + c> / tau

(the entries of grad_s sum to 0, and s + c does not lose digits at an offset).
The weights w = softmax(log d) stay defined where every d underflows, and tend to
softmax(s) as k -> 0 and to softmax(-s) as k -> n, which are the values taken
there. d itself is 0 at both ends, and so are the gradients in x and tau.

All in torch operations on (x, k, tau, c), so that they can be differentiated again.
"""

import torch
from torch import Tensor

from khot._rows import even
from khot._solve import scale


def backward(
    g: Tensor | None, grad_c: Tensor | None, x: Tensor, k: Tensor, tau: Tensor, c: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The cotangents of x, k and tau, by the formulas of the module docstring."""
    units, x = x.shape[-1], even(x, -torch.inf)
    t, c, d, w = _slopes(x, k, tau, c)
    grad_s, grad_k = torch.zeros_like(t), torch.zeros_like(c)
    grad_tau = torch.zeros_like(c)
    if g is not None:
        g = even(g.to(t.dtype), 0.0)
        grad_k = (w * g).sum(-1, keepdim=True)
        grad_s = d * (g - grad_k)
    if grad_c is not None:
        grad_s = grad_s - w * grad_c
        total = d.sum(-1, keepdim=True)
        grad_k = grad_k + torch.where(total > 0, grad_c / torch.where(total > 0, total, 1.0), 0.0)
        grad_tau = -c * grad_c / tau
    grad_tau = grad_tau - (grad_s * t).sum(-1, keepdim=True) / tau
    return (
        (grad_s / tau)[..., :units].to(x.dtype),
        grad_k.sum_to_size(k.shape),
        grad_tau.sum_to_size(tau.shape),
    )


def jvp(
    dx: Tensor | None,
    dk: Tensor | None,
    dtau: Tensor | None,
    x: Tensor,
    k: Tensor,
    tau: Tensor,
    c: Tensor,
) -> tuple[Tensor, Tensor]:
    """The tangents of p and c, by the formulas of the module docstring."""
    t, c, d, w = _slopes(x, k, tau, c)
    ds = torch.zeros_like(t)
    if dx is not None:
        ds = ds + dx.to(t.dtype) / tau
    if dtau is not None:
        ds = ds - (t - c) * dtau / tau
    mean = (w * ds).sum(-1, keepdim=True)
    dp, dc = d * (ds - mean), -mean
    if dk is not None:
        total = d.sum(-1, keepdim=True)
        dp = dp + w * dk
        dc = dc + torch.where(total > 0, dk / torch.where(total > 0, total, 1.0), 0.0)
    return dp.to(x.dtype), dc


def polished(x: Tensor, k: Tensor, tau: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """p and c as functions of (x, k, tau) that torch can differentiate itself, from a constant c.

    Newton's map N(c) = c - (sum_i sigmoid(s_i + c) - k) / S has slope 0 in c at the root, so
    one step from the root has its first derivatives, and a second step those up to the third.
    """
    free = x > -torch.inf
    s = scale(torch.where(free, x, 0.0), tau)
    empty, full = k <= 0, k >= free.sum(-1, keepdim=True)
    c = torch.where(empty | full, 0.0, c)
    for _ in range(2):
        p = torch.sigmoid(s + c).masked_fill(~free, 0.0)
        total = (p * (1 - p)).sum(-1, keepdim=True)
        off = p.sum(-1, keepdim=True) - k
        solvable = (total > 0) & ~empty & ~full
        c = c - torch.where(solvable, off / torch.where(solvable, total, 1.0), 0.0)
    p = torch.sigmoid(s + c)
    # at the ends p is 0 or 1, and its slope in k that of the limit
    least = torch.finfo(s.dtype).min
    limit = torch.where(empty, s, -s).masked_fill(~free, least).softmax(-1) * (k - k.detach())
    p = torch.where(empty, limit, torch.where(full, 1 + limit, p)).masked_fill(~free, 0.0)
    return p.to(x.dtype), c


def _slopes(x: Tensor, k: Tensor, tau: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """t = s + c, c (both finite everywhere), d = p (1 - p) and w = d / sum d."""
    free = x > -torch.inf
    s = scale(torch.where(free, x, 0.0), tau)
    empty, full = k <= 0, k >= free.sum(-1, keepdim=True)
    c = torch.where(empty | full, 0.0, c)
    t = s + c
    log_d = -t.abs() - 2 * torch.log1p(torch.exp(-t.abs()))
    log_w = torch.where(empty, t, torch.where(full, -t, log_d))
    # the least finite number, not -inf: a row that is all masked must not give NaN
    log_w = log_w.masked_fill(~free, torch.finfo(t.dtype).min)
    w = torch.softmax(log_w, -1).masked_fill(~free, 0.0)
    d = log_d.exp().masked_fill(~free | empty | full, 0.0)
    return t.masked_fill(~free, 0.0), c, d, w
