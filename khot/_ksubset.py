r"""The k-subset law on rows: P(z) = exp(theta z) / Z over the z in {0, 1}^n with k ones.

What this module computes, for theta (R, n) and a column k of whole numbers:

- `law`: the marginals mu = E z and what gives log Z, differentiable to any order. d log Z = mu
  (Theorem 1), and dmu = J, the covariance of z: it is symmetric, so the product of a
  cotangent with J is the derivative along it.
- `times_covariance`: J g.
- `joint`: P(z_i = z_j = 1).
- `draw`: exact draws.

**Which form.** `_ksubset_mixture.py` has all but the draws in O(n), and
`_ksubset_ratios.py` the draws in O(k (n - k)). The recursion could give the marginals too,
by a second sweep like the first. But one sweep already takes the time of log Z and the
marginals by the mixture at k = 2, twice that at (128, 784, 50) and six times at
(128, 1000, 500), on the kernels; on torch operations it is n steps against some tens. So there
is nothing to choose by size: the mixture serves all but the draws.

Both take theta shifted by sigmoid top-k's c, which is infinite where k leaves no choice:
those rows are said apart.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from khot import _ksubset_mixture as mixture
from khot import _ksubset_ratios as ratios
from khot import _random, _sigmoid
from khot._native import k_subset as native
from khot._native import sigmoid_topk as native_sigmoid
from khot._rows import even, folded, transformed

Law = tuple[Tensor, Tensor, Tensor]  # mu (R, n); rest and c, (R, 1)

# Elements of one intermediate result of the mixture, rows by nodes by units.
_ELEMENTS = 1 << 18


def law(theta: Tensor, k: Tensor) -> Law:
    """mu, and in the work dtype rest and a constant c.

    With t = theta + c, rest = log Z(t) - sum max(t, 0), and log Z(theta) = log Z(t) - k c:
    neither large logits nor a large offset take digits from what is made of them.

    Args:
        theta: (R, n), -inf where a unit is masked.
        k: (R, 1) or (1, 1) in the work dtype, whole, at most the number of finite theta.
    """
    mu, rest, c = (_compiled if torch.compiler.is_compiling() else _eager)(theta, k)
    return mu, rest, torch.where(c.isfinite(), c, 0.0)


def times_covariance(theta: Tensor, k: Tensor, g: Tensor, c: Tensor | None = None) -> Tensor:
    """J g for g (R, n): the derivative of mu along g, and of <mu, g> in theta."""
    c = shift(theta, k) if c is None else c
    if not torch.is_grad_enabled() and native.accepts(theta, k, c, g):
        return native.times_covariance(theta, k, c, g)
    product = _over_rows(mixture.times_covariance, theta, k, c, g)
    return product[:, : theta.shape[-1]].to(theta.dtype)


def joint(theta: Tensor, k: Tensor) -> Tensor:
    """P(z_i = z_j = 1), (R, n, n); differentiable, O(n^2)."""

    def pairs(of: mixture.Mixture, _: Tensor) -> Tensor:
        mu = mixture.marginals(of)
        both = mixture.covariance(of) + mu.unsqueeze(-1) * mu.unsqueeze(-2)
        return torch.where(torch.eye(mu.shape[-1], device=mu.device) > 0, mu.unsqueeze(-1), both)

    c, n = shift(theta, k), theta.shape[-1]
    both = _over_rows(pairs, theta, k, c, theta)[:, :n, :n].clamp(0, 1)
    all_in = ((c == torch.inf) & (theta > -torch.inf)).to(both.dtype)
    return (both + all_in.unsqueeze(-1) * all_in.unsqueeze(-2)).to(theta.dtype)


def draw(
    theta: Tensor,
    k: Tensor,
    *,
    u: Tensor | None = None,
    seeds: Tensor | None = None,
    first: int = 0,
    samples: int = 1,
) -> Tensor:
    """k-hot rows (S, R, n) with this law, by numbers u of that shape, or by the rows' seeds.

    With seeds, the numbers are those of the samples first, ..., first + S - 1, from block 0
    on. A row's draw depends on its theta, k and numbers alone.
    """
    dtype = theta.dtype
    theta = theta.detach() if dtype in ratios.REACH else theta.detach().float()
    return _drawn(theta, k, u, seeds, first, samples).to(dtype)


def _drawn(
    theta: Tensor, k: Tensor, u: Tensor | None, seeds: Tensor | None, first: int, samples: int
) -> Tensor:
    c = shift(theta, k)
    if native.accepts(theta, k, *(part for part in (u, seeds) if part is not None)):
        return native.draw(theta, k, c, u=u, seeds=seeds, first=first, samples=samples)
    k = k.expand(len(theta), 1)
    if u is not None:
        return ratios.draw(theta, k, c, u)
    assert seeds is not None, "draw: numbers must come from u or from seeds"
    size = max(1, _ELEMENTS // max(1, theta.numel()))
    parts = [theta.new_empty(0, *theta.shape)]
    for index in torch.arange(first, first + samples, device=theta.device).split(size):
        u = _random.uniforms(seeds, theta.shape[-1], sample=index.unsqueeze(-1))
        parts.append(ratios.draw(theta, k, c, u))
    return torch.cat(parts)


def shift(theta: Tensor, k: Tensor) -> Tensor:
    """c with sum sigmoid(theta + c) = k, (R, 1): -inf at k = 0, +inf where all are taken."""
    theta, k = theta.detach(), k.detach()
    if not transformed() and native.accepts(theta, k):
        solved = native_sigmoid.relax(theta, k, 1.0)
        if solved is not None:
            return solved[1]
    return _sigmoid._solve(theta, k, torch.ones_like(k[:1]), "KSubset", "halley")[1]


class _Law(torch.autograd.Function):
    """(theta, k) -> (mu, rest, c), c infinite where k leaves no choice."""

    @staticmethod
    def forward(theta: Tensor, k: Tensor) -> Law:
        c = shift(theta, k)
        by = native.law if native.accepts(theta, k, c) else _by_torch
        return *by(theta, k, c), c

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Law) -> None:
        mu, _, c = output
        ctx.mark_non_differentiable(c)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, mu, c)
        ctx.save_for_forward(*inputs, mu, c)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, g_rest: Tensor | None, _: None) -> Any:
        return _backward(times_covariance, ctx, g, g_rest), None

    @staticmethod
    def jvp(ctx: Any, dtheta: Tensor | None, _: None) -> Any:
        theta, k, mu, c = ctx.saved_tensors
        if dtheta is None:
            return None, None, None
        along = (_slope(theta, mu, c) * dtheta).sum(-1, keepdim=True)
        return times_covariance(theta, k, dtheta, c), along, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
        out = _eager(*folded(info.batch_size, in_dims, *inputs))
        return tuple(part.unflatten(0, (info.batch_size, -1)) for part in out), (0, 0, 0)


_eager: Callable[..., Law] = _Law.apply


def _backward(
    product: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
    ctx: Any,
    g: Tensor | None,
    g_rest: Tensor | None,
) -> Tensor | None:
    """J g + g_rest d rest / d theta, of what there is."""
    theta, k, mu, c = ctx.saved_tensors
    along = None if g_rest is None else (_slope(theta, mu, c) * g_rest).to(theta.dtype)
    if g is None:
        return along
    pulled = product(theta, k, g, c)
    return pulled if along is None else pulled + along


def _slope(theta: Tensor, mu: Tensor, c: Tensor) -> Tensor:
    """d rest / d theta = mu - (t > 0)."""
    t = theta.to(c.dtype) + torch.where(c.isfinite(), c, 0.0)
    return mu.to(c.dtype) - (t > 0).to(c.dtype)


@torch.library.custom_op("khot::k_subset", mutates_args=())
def _compiled(theta: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same for torch.compile, which takes it as one opaque step."""
    return _Law.forward(theta, k)


@_compiled.register_fake
def _(theta: Tensor, k: Tensor) -> Law:
    column = theta.new_empty(theta.shape[0], 1, dtype=k.dtype)
    return theta.new_empty(theta.shape), column, torch.empty_like(column)


@torch.library.custom_op("khot::k_subset_times_covariance", mutates_args=())
def _compiled_product(theta: Tensor, k: Tensor, g: Tensor, c: Tensor) -> Tensor:
    with torch.no_grad():
        return times_covariance(theta, k, g, c).contiguous()


@_compiled_product.register_fake
def _(theta: Tensor, *_: Tensor) -> Tensor:
    return theta.new_empty(theta.shape)


_compiled.register_autograd(
    lambda ctx, g, g_rest, _: (_backward(_compiled_product, ctx, g, g_rest), None),
    setup_context=_Law.setup_context,
)


def _by_torch(theta: Tensor, k: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """mu and rest, on any device."""

    def both(of: mixture.Mixture, _: Tensor) -> Tensor:
        return torch.cat((mixture.marginals(of), of.rest), -1)

    found = _over_rows(both, theta, k, c, theta)
    mu, rest = found[:, : theta.shape[-1]], found[:, -1:]
    all_in = (c == torch.inf) & (theta > -torch.inf)
    mu = mu.clamp(0, 1) + all_in.to(mu.dtype)
    x = theta.to(k.dtype)
    certain = torch.where(all_in, x.clamp(max=0), -x.clamp(min=0)).sum(-1, keepdim=True)
    rest = torch.where(c.isfinite(), rest, certain)
    return mu.to(theta.dtype), rest.contiguous()


def _over_rows(
    function: Callable[[mixture.Mixture, Tensor], Tensor],
    theta: Tensor,
    k: Tensor,
    c: Tensor,
    g: Tensor,
) -> Tensor:
    """`function` of the rows' mixture and of g, in chunks; 0 where k leaves no choice.

    Rows are filled up with masked units (`_rows.even`), and so is the result.
    """
    dtype, theta, g = k.dtype, even(theta, -torch.inf), even(g, 0.0).to(k.dtype)
    choice, free = c.isfinite(), theta > -torch.inf
    # where there is none, an even one of half the units, whose derivatives are finite
    half = torch.where(free, 0.0, -torch.inf)
    t = torch.where(choice, theta.to(dtype) + torch.where(choice, c, 0.0), half.to(dtype))
    k = torch.where(choice, k, free.sum(-1, keepdim=True) / 2)
    groups = _nodes(t)
    parts = [
        function(mixture.mixture(t[cut], k[cut], *used), g[cut])
        for used, rows in groups
        for cut in rows.split(max(1, _ELEMENTS // (used[1] * theta.shape[-1])))
    ]
    out = parts[0] if len(parts) == 1 else torch.cat(parts)
    if len(groups) > 1:
        out = out[torch.cat([rows for _, rows in groups]).argsort()]
    return torch.where(choice.reshape(-1, *(1,) * (out.ndim - 1)), out, 0.0)


def _nodes(t: Tensor) -> list[tuple[tuple[int, int], Tensor]]:
    """Enough nodes, and the rows they are for; where values must not be looked at, all rows.

    As many as a row with this sum of v needs, up to the next power of two: they must not depend
    on the other rows, for what they leave out is seen in the last bits.
    """
    n, tail, every = t.shape[-1], mixture.TAILS[t.dtype], torch.arange(len(t), device=t.device)
    if transformed():
        return [(mixture.nodes(0.0, n / 4, n, tail), every)]
    total = (torch.sigmoid(t) * torch.sigmoid(-t)).detach().sum(-1)
    power = torch.frexp(total).exponent.clamp(min=0)
    found = []
    for e in power.unique().tolist() or [0]:
        least, most = 2.0 ** (e - 1) if e > 0 else 0.0, min(2.0**e, n / 4)
        found.append((mixture.nodes(least, most, n, tail), every[power == e]))
    return found
