"""Renormalised sigmoids, forward and backward, as a multiple of torch.softmax's on the same input.

One thread. Rows are N(0, sigma^2) with sigma from 0.1 to 5 across the batch.
"""

from collections.abc import Callable

import harness
import torch
from torch import Tensor

import khot

SIZES = ((1, 8, 2), (128, 784, 50), (128, 1000, 500), (64, 10_000, 1000), (8, 100_000, 10_000))
SMOKE = ((1, 8, 2), (4, 50, 5))


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0])
    torch.set_num_threads(1)
    sizes, rounds = (SMOKE, 2) if options.smoke else (SIZES, 9)
    rows = [measure(*size, rounds) for size in sizes]
    harness.report("renorm_sigmoid_topk", rows, options.out)


def measure(batch: int, n: int, k: int, rounds: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)
    sigma = torch.linspace(0.1, 5, batch).unsqueeze(-1)
    x = (torch.randn(batch, n, generator=generator) * sigma).requires_grad_()
    g = torch.randn(batch, n, generator=generator)

    def both_ways(function: Callable[[Tensor], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(function(x), x, g)

    candidates = {
        "softmax": both_ways(lambda x: x.softmax(-1)),
        "renorm_sigmoid_topk": both_ways(lambda x: khot.renorm_sigmoid_topk(x, k)),
    }
    return {"batch": batch, "n": n, "k": k, **harness.ratios(candidates, "softmax", rounds)}


if __name__ == "__main__":
    main()
