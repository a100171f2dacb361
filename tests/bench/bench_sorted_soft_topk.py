"""Sorted SOFT top-k, forward and backward, against the published loop of 200 steps.

One thread. Rows are N(0, sigma^2) with sigma from 0.1 to 5 across the batch, epsilon = 1.
`published` is the paper's loop in the log domain, which it takes where its plain one gives
NaN, as it does here; errors are to the float64 result. `plans` is how many times ours
evaluated a plan, at most; the loop does it 400 times.
"""

from unittest import mock

import harness
import torch
from torch import Tensor

import khot
from khot import _ranks

SIZES = ((128, 100, 5), (32, 784, 10), (8, 784, 50), (1, 1000, 200))
SMOKE = ((4, 30, 3),)


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0])
    torch.set_num_threads(1)
    sizes, rounds = (SMOKE, 2) if options.smoke else (SIZES, 3)
    rows = [measure(*size, rounds) for size in sizes]
    harness.report("sorted_soft_topk", rows, options.out)


def measure(batch: int, n: int, k: int, rounds: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)
    sigma = torch.linspace(0.1, 5, batch).unsqueeze(-1)
    x = (torch.randn(batch, n, generator=generator) * sigma).requires_grad_()
    g = torch.randn(batch, n, k, generator=generator)
    candidates = {
        "ours": lambda: torch.autograd.grad(khot.sorted_soft_topk(x, k), x, g),
        "ours, forward": lambda: khot.sorted_soft_topk(x.detach(), k),
        "published, forward": lambda: published_topk(x.detach(), k),
    }
    times = harness.ratios(candidates, "ours", rounds)
    with (
        mock.patch.object(_ranks, "ENTRIES_TOGETHER", 1 << 40),
        mock.patch.object(_ranks, "_plan", wraps=_ranks._plan) as plans,
    ):
        p = khot.sorted_soft_topk(x.detach(), k)
    wanted = khot.sorted_soft_topk(x.detach().double(), k)
    found = {"ours": p, "published": published_topk(x.detach(), k)}
    errors = {
        f"{name}, error": f"{float((plan - wanted).abs().max()):.0e}"
        for name, plan in found.items()
    }
    return {"batch": batch, "n": n, "k": k, "plans": plans.call_count, **times, **errors}


def published_topk(x: Tensor, k: int) -> Tensor:
    """`sinkhorn_forward_stablized` of the paper's Appendix H, epsilon = 1."""
    n = x.shape[-1]
    cost = (x.unsqueeze(-1) - torch.arange(k, -1, -1)) ** 2
    log_nu = x.new_tensor([1.0] * k + [n - k]).log() - torch.tensor(n).log()
    f, g = torch.zeros_like(cost[..., :1]), torch.zeros_like(cost[..., :1, :])
    for _ in range(200):
        f = -torch.logsumexp(g - cost, -1, keepdim=True) - torch.tensor(n).log()
        g = -torch.logsumexp(f - cost, -2, keepdim=True) + log_nu
    return torch.exp(f + g - cost)[..., :k] * n


if __name__ == "__main__":
    main()
