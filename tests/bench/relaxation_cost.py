"""What the benchmarks of relaxations share: their cost as a multiple of softmax's.

Forward and backward, on one thread. Rows are N(0, sigma^2) with sigma from 0.1 to 5 across
the batch.
"""

from collections.abc import Callable, Mapping, Sequence

import harness
import torch
from torch import Tensor

SIZES = ((1, 8, 2), (128, 784, 50), (128, 1000, 500), (64, 10_000, 1000), (8, 100_000, 10_000))
SMOKE = ((1, 8, 2), (4, 50, 5))


def main(
    name: str,
    description: str,
    relaxations: Mapping[str, Callable[[Tensor, int], Tensor]],
    *,
    others: Mapping[str, Callable[[Tensor], object]] | None = None,
    sizes: Sequence[tuple[int, int, int]] = SIZES,
    rounds: int = 9,
) -> None:
    """Measure the relaxations both ways, and the others, of x alone, as they are."""
    options = harness.arguments(description.splitlines()[0])
    torch.set_num_threads(1)
    rows = []
    for batch, n, k in SMOKE if options.smoke else sizes:
        x, both_ways = problem(batch, n)
        candidates = {"softmax": both_ways(lambda x: x.softmax(-1))}
        for label, other in (others or {}).items():
            candidates[label] = lambda other=other, x=x: other(x.detach())
        for label, relaxation in relaxations.items():
            candidates[label] = both_ways(lambda x, k=k, relaxation=relaxation: relaxation(x, k))
        times = harness.ratios(candidates, "softmax", 2 if options.smoke else rounds)
        rows.append({"batch": batch, "n": n, "k": k, **times})
    harness.report(name, rows, options.out)


BothWays = Callable[[Callable[[Tensor], Tensor]], Callable[[], object]]


def problem(batch: int, n: int) -> tuple[Tensor, BothWays]:
    """x, and what makes of a function of x one that goes forward and backward."""
    generator = torch.Generator().manual_seed(0)
    sigma = torch.linspace(0.1, 5, batch).unsqueeze(-1)
    x = (torch.randn(batch, n, generator=generator) * sigma).requires_grad_()
    g = torch.randn(batch, n, generator=generator)
    return x, lambda function: lambda: torch.autograd.grad(function(x), x, g)
