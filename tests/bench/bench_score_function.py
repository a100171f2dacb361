"""The score function estimator, forward and backward, as a multiple of softmax's.

One thread, float32. `dft` and `dynamic programme` are the forms of its marginals, `ms` the time of
one forward and backward with the first.
"""

import time
from collections.abc import Callable

import harness
import torch
from torch import Tensor

import khot

SIZES = ((1, 8, 2), (128, 10, 5), (128, 784, 50))
SMOKE = ((1, 8, 2), (4, 50, 5))


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0])
    torch.set_num_threads(1)
    sizes, rounds = (SMOKE, 2) if options.smoke else (SIZES, 11)
    rows = [measure(*size, rounds) for size in sizes]
    harness.report("score_function", rows, options.out)


def measure(batch: int, n: int, k: int, rounds: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(batch, n, generator=generator).requires_grad_()
    g = torch.randn(batch, n, generator=generator)
    seeds = khot.row_seeds(0, batch)

    def both_ways(function: Callable[[Tensor], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(function(logits), logits, g)

    def form(name: str) -> Callable[[], object]:
        return both_ways(lambda logits: khot.score_function(logits, k, form=name, seeds=seeds))

    candidates = {
        "softmax": both_ways(lambda logits: logits.softmax(-1)),
        "dft": form("dft"),
        "dynamic programme": form("dynamic_programme"),
    }
    times = harness.ratios(candidates, "softmax", rounds)
    start = time.perf_counter()
    candidates["dft"]()
    taken = 1e3 * (time.perf_counter() - start)
    return {"batch": batch, "n": n, "k": k, "ms": taken, **times}


if __name__ == "__main__":
    main()
