"""Sequential softmax, forward and backward, as a multiple of one softmax on the same input.

One thread. Rows are N(0, sigma^2) with sigma from 0.1 to 5 across the batch.
"""

from collections.abc import Callable

import harness
import torch
from torch import Tensor

import khot

SIZES = ((1, 8, 2), (128, 784, 50), (16, 1000, 500))
SMOKE = ((1, 8, 2), (4, 50, 5))


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0])
    torch.set_num_threads(1)
    sizes, rounds = (SMOKE, 2) if options.smoke else (SIZES, 3)
    rows = [measure(*size, rounds) for size in sizes]
    harness.report("sequential_softmax_topk", rows, options.out)


def measure(batch: int, n: int, k: int, rounds: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)
    sigma = torch.linspace(0.1, 5, batch).unsqueeze(-1)
    x = (torch.randn(batch, n, generator=generator) * sigma).requires_grad_()
    g = torch.randn(batch, n, generator=generator)

    def both_ways(function: Callable[[Tensor], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(function(x), x, g)

    candidates = {
        "softmax": both_ways(lambda x: x.softmax(-1)),
        "sequential_softmax_topk": both_ways(lambda x: khot.sequential_softmax_topk(x, k)),
    }
    return {"batch": batch, "n": n, "k": k, **harness.ratios(candidates, "softmax", rounds)}


if __name__ == "__main__":
    main()
