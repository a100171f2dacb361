"""piST, forward and backward, as a multiple of sigmoid top-k's: what the draw adds.

One thread.
"""

from collections.abc import Callable

import harness
import torch
from torch import Tensor

import khot

SIZES = ((1, 8, 2), (128, 784, 50), (128, 1000, 500), (64, 10_000, 1000))
SMOKE = ((1, 8, 2), (4, 50, 5))


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0])
    torch.set_num_threads(1)
    sizes, rounds = (SMOKE, 2) if options.smoke else (SIZES, 15)
    rows = [measure(*size, rounds) for size in sizes]
    harness.report("pi_st", rows, options.out)


def measure(batch: int, n: int, k: int, rounds: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(batch, n, generator=generator).requires_grad_()
    g = torch.randn(batch, n, generator=generator)
    seeds = khot.row_seeds(0, batch)

    def both_ways(function: Callable[[Tensor], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(function(logits), logits, g)

    candidates = {
        "softmax": both_ways(lambda logits: logits.softmax(-1)),
        "sigmoid_topk": both_ways(lambda logits: khot.sigmoid_topk(logits, k)),
        "pi_st": both_ways(lambda logits: khot.pi_st(logits, k, seeds=seeds)),
    }
    return {"batch": batch, "n": n, "k": k, **harness.ratios(candidates, "sigmoid_topk", rounds)}


if __name__ == "__main__":
    main()
