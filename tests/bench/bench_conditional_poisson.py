"""Conditional Poisson sampling, as a multiple of drawing and sorting a number for each unit.

One thread. `fitted` has the inclusion probabilities pi and `as it stands` not; `of a hundred` is
the share of one draw in a hundred of each row, which share the fit and the table.
"""

import harness
import torch

import khot
from khot import conditional_poisson

SIZES = ((1, 8, 2), (128, 784, 50), (128, 1000, 500))
SMOKE = ((1, 8, 2), (4, 50, 5))


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0])
    torch.set_num_threads(1)
    sizes, rounds = (SMOKE, 2) if options.smoke else (SIZES, 7)
    rows = [measure(*size, rounds) for size in sizes]
    harness.report("conditional_poisson", rows, options.out)


def measure(batch: int, n: int, k: int, rounds: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)
    pi = khot.sigmoid_topk(torch.randn(batch, n, generator=generator), k)
    seeds = khot.row_seeds(0, batch)
    candidates = {
        "sorted": lambda: torch.rand(batch, n, generator=generator).sort(-1),
        "fitted": lambda: conditional_poisson(pi, seeds=seeds),
        "as it stands": lambda: conditional_poisson(pi, fitted=False, seeds=seeds),
        "of a hundred": lambda: conditional_poisson(pi, seeds=seeds, num_samples=100),
    }
    times = harness.ratios(candidates, "sorted", rounds)
    times["of a hundred"] /= 100
    return {"batch": batch, "n": n, "k": k, **times}


if __name__ == "__main__":
    main()
