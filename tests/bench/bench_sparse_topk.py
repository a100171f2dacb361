"""Sparse top-k, forward and backward, as a multiple of softmax's; and torch.sort, forward alone.

One thread. Rows are N(0, sigma^2) with sigma from 0.1 to 5 across the batch.
"""

from collections.abc import Callable

import harness
import torch
from torch import Tensor

import khot
from khot._native import library

SIZES = ((1, 8, 2), (128, 784, 50), (128, 1000, 500), (64, 10_000, 1000), (8, 100_000, 10_000))
SIZES += ((4, 1_000_000, 100_000),)
SMOKE = ((1, 8, 2), (4, 50, 5))


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0])
    torch.set_num_threads(1)
    sizes, rounds = (SMOKE, 2) if options.smoke else (SIZES, 9)
    rows = [measure(*size, rounds) for size in sizes]
    harness.report("sparse_topk", rows, options.out)


def measure(batch: int, n: int, k: int, rounds: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)
    sigma = torch.linspace(0.1, 5, batch).unsqueeze(-1)
    x = (torch.randn(batch, n, generator=generator) * sigma).requires_grad_()
    g = torch.randn(batch, n, generator=generator)

    def both_ways(function: Callable[[Tensor], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(function(x), x, g)

    candidates = {
        "softmax": both_ways(lambda x: x.softmax(-1)),
        "sort": lambda: x.detach().sort(),
        "torch path": both_ways(on_torch(lambda x: khot.sparse_topk(x, k))),
    }
    if khot.native_info().in_use:
        candidates["kernel"] = both_ways(lambda x: khot.sparse_topk(x, k))
        candidates["kernel, p = 4/3"] = both_ways(lambda x: khot.sparse_topk(x, k, p=4 / 3))
    times = harness.ratios(candidates, "softmax", rounds)
    return {"batch": batch, "n": n, "k": k, **times}


def on_torch(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The same with the kernels turned off for the call."""

    def run(x: Tensor) -> Tensor:
        loaded, library._library.object = library._library.object, None
        try:
            return function(x)
        finally:
            library._library.object = loaded

    return run


if __name__ == "__main__":
    main()
