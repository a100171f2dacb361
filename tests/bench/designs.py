"""What the benchmarks of the designs share: the sizes, and Pareto sampling in torch operations.

That one is the yardstick: random numbers, their ranking and a topk, the least that order
sampling costs.
"""

from collections.abc import Callable

import harness
import torch
from torch import Tensor

import khot

SIZES = ((1, 8, 2), (128, 784, 50), (128, 1000, 500))
SMOKE = ((1, 8, 2), (4, 50, 5))


def pareto_in_torch(pi: Tensor, k: int, generator: torch.Generator) -> Tensor:
    u = torch.rand(pi.shape, generator=generator)
    ranking = u / (1 - u) * ((1 - pi) / pi)
    return torch.zeros_like(pi).scatter_(-1, ranking.topk(k, largest=False).indices, 1.0)


def probabilities(batch: int, n: int, k: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return khot.sigmoid_topk(torch.randn(batch, n, generator=generator), k)


def main(name: str, description: str, *, rounds: int = 15) -> None:
    """Measure one design as a multiple of the yardstick."""
    options = harness.arguments(description.splitlines()[0])
    torch.set_num_threads(1)
    rows = []
    for batch, n, k in SMOKE if options.smoke else SIZES:
        pi, seeds = probabilities(batch, n, k), khot.row_seeds(0, batch)
        times = harness.ratios(candidates(name, pi, k, seeds), "pareto in torch", rounds)
        rows.append({"batch": batch, "n": n, "k": k, **times})
        rounds = 2 if options.smoke else rounds
    harness.report(name, rows, options.out)


def candidates(name: str, pi: Tensor, k: int, seeds: Tensor) -> dict[str, Callable[[], object]]:
    generator, draw = torch.Generator().manual_seed(0), khot.operator(name).function
    return {
        "pareto in torch": lambda: pareto_in_torch(pi, k, generator),
        "generator": lambda: draw(pi, generator=generator),
        "seeds": lambda: draw(pi, seeds=seeds),
        "torch path": harness.on_torch(lambda: draw(pi, seeds=seeds)),
    }
