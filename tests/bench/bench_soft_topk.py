"""SOFT top-k against sigmoid top-k, and its Sinkhorn against the published loop, both ways.

One thread. Rows are N(0, sigma^2) with sigma from 0.1 to 5 across the batch, epsilon = 2.
`published` is the paper's loop, 200 steps on (batch, n, 2) tensors, and its backward. Each
unit's smaller cost is taken off first, which changes no plan: else its kernel underflows.
"""

from collections.abc import Callable
from typing import Any

import harness
import torch
from torch import Tensor

import khot

SIZES = ((128, 784, 50), (128, 1000, 500), (16, 10_000, 1000))
SMOKE = ((4, 50, 5),)
EPSILON = 2.0


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0])
    torch.set_num_threads(1)
    sizes, rounds = (SMOKE, 2) if options.smoke else (SIZES, 7)
    rows = [measure(*size, rounds) for size in sizes]
    harness.report("soft_topk", rows, options.out)


def measure(batch: int, n: int, k: int, rounds: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)
    sigma = torch.linspace(0.1, 5, batch).unsqueeze(-1)
    x = (torch.randn(batch, n, generator=generator) * sigma).requires_grad_()
    g = torch.randn(batch, n, generator=generator)
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "sigmoid_topk": lambda x: khot.sigmoid_topk(x, k, tau=EPSILON / 2),
        "exact": lambda x: khot.soft_topk(x, k, epsilon=EPSILON),
        "sinkhorn": lambda x: khot.soft_topk(x, k, epsilon=EPSILON, method="sinkhorn"),
        "published": lambda x: published_topk(x, k),
    }
    candidates = {
        name: lambda function=function: torch.autograd.grad(function(x), x, g)
        for name, function in functions.items()
    }
    quick = {name: candidates[name] for name in ("sigmoid_topk", "exact")}
    slow = {name: candidates[name] for name in ("sinkhorn", "published")}
    # apart, for what runs after the slow ones finds its caches empty
    exact = harness.ratios(quick, "sigmoid_topk", 5 * rounds)["exact"]
    published = harness.ratios(slow, "sinkhorn", rounds)["published"]
    wanted = functions["exact"](x.detach().double())
    errors = {
        f"{name} error": f"{float((functions[name](x.detach()) - wanted).abs().max()):.0e}"
        for name in slow
    }
    ratios = {"exact / sigmoid_topk": exact, "published / sinkhorn": published}
    return {"batch": batch, "n": n, "k": k, **ratios, **errors}


def published_topk(x: Tensor, k: int) -> Tensor:
    cost = torch.stack([(x - 1) ** 2, x**2], -1)
    cost = cost - cost.detach().amin(-1, keepdim=True)
    n = x.shape[-1]
    mu, nu = x.new_full((1, n, 1), 1 / n), x.new_tensor([[[k / n, (n - k) / n]]])
    plan: Tensor = _Published.apply(cost, mu, nu)
    return plan[..., 0] * n


class _Published(torch.autograd.Function):
    """`TopKFunc` of the paper's Appendix H."""

    @staticmethod
    def forward(ctx: Any, cost: Tensor, mu: Tensor, nu: Tensor) -> Tensor:
        kernel = torch.exp(-cost / EPSILON)
        v = torch.full_like(nu, 1 / nu.shape[-1])
        for _ in range(200):
            u = mu / (kernel * v).sum(-1, keepdim=True)
            v = nu / (kernel * u).sum(-2, keepdim=True)
        plan = u * kernel * v
        ctx.save_for_backward(mu, nu, plan)
        return plan

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        mu, nu, plan = ctx.saved_tensors
        some, inverse_mu = plan[..., :-1], 1 / mu
        matrix = torch.diag_embed(nu[..., :-1].squeeze(-2)) - some.mT @ (inverse_mu * some)
        inverse = torch.linalg.inv(matrix)
        scaled = inverse_mu * some
        left = scaled @ inverse
        g1 = grad * plan
        rows = g1.sum(-1, keepdim=True)
        through = rows.mT @ left
        g2 = (rows * inverse_mu + (through @ scaled.mT).mT) * plan
        g2 = g2 - torch.nn.functional.pad(through, (0, 1)) * plan
        columns = g1.sum(-2).unsqueeze(-1)[:, :-1]
        g3 = torch.nn.functional.pad((inverse @ columns).mT, (0, 1)) - left @ columns
        return (g2 + g3 * plan - g1) / EPSILON, None, None


if __name__ == "__main__":
    main()
