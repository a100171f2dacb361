"""The k-subset law, as a multiple of softmax forward and backward on the same logits.

One thread, float32. `log Z, marginals` is `KSubset`'s in one call, `derivative` what its backward
costs, `draw` one draw for each row, `ms` the time of log Z and the marginals, and `torch` is the
same on torch operations.
"""

import time
from collections.abc import Callable

import harness
import torch

import khot
from khot import _ksubset

SIZES = ((128, 10, 5), (128, 784, 50), (128, 1000, 500), (8, 100_000, 10_000))
SMOKE = ((4, 10, 5), (4, 50, 5))


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0])
    torch.set_num_threads(1)
    sizes, rounds = (SMOKE, 2) if options.smoke else (SIZES, 11)
    rows = [measure(*size, rounds) for size in sizes]
    harness.report("k_subset", rows, options.out)


def measure(batch: int, n: int, k: int, rounds: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)
    sigma = torch.linspace(0.1, 5, batch).unsqueeze(-1)
    x = torch.randn(batch, n, generator=generator) * sigma
    g = torch.randn(batch, n, generator=generator)
    needs_grad = x.clone().requires_grad_()
    column = torch.full((1, 1), float(k), dtype=torch.float64)
    seeds = khot.row_seeds(0, batch)

    @torch.no_grad()
    def product() -> object:
        return _ksubset.times_covariance(x, column, g)

    def law() -> object:
        return _ksubset.law(x, column)

    def draw() -> object:
        return _ksubset.draw(x, column, seeds=seeds)

    candidates: dict[str, Callable[[], object]] = {
        "softmax": lambda: torch.autograd.grad(needs_grad.softmax(-1), needs_grad, g),
        "log Z, marginals": law,
        "derivative": product,
    }
    if n * k <= 1_000_000:
        candidates["draw"] = draw
    if n * k <= 50_000:
        candidates |= {
            "torch log Z, marginals": harness.on_torch(law),
            "torch draw": harness.on_torch(draw),
        }
    times = harness.ratios(candidates, "softmax", rounds)
    names = ("log Z, marginals", "derivative", "draw", "torch log Z, marginals", "torch draw")
    start = time.perf_counter()
    law()
    taken = 1e3 * (time.perf_counter() - start)
    row = {name: times.get(name, "-") for name in names}
    return {"batch": batch, "n": n, "k": k, "ms": taken, **row}


if __name__ == "__main__":
    main()
