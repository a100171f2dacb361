"""The tournament pivotal design, as a multiple of drawing and sorting a number for each unit.

One thread. That is the floor of Gumbel top-k and Pareto sampling, whose inclusion
probabilities are not pi.
"""

import harness
import torch

import khot

SIZES = ((1, 8, 2), (128, 784, 50), (128, 1000, 500), (64, 10_000, 1000))
SMOKE = ((1, 8, 2), (4, 50, 5))


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0])
    torch.set_num_threads(1)
    sizes, rounds = (SMOKE, 2) if options.smoke else (SIZES, 15)
    rows = [measure(*size, rounds) for size in sizes]
    harness.report("tournament_pivotal", rows, options.out)


def measure(batch: int, n: int, k: int, rounds: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)
    pi = khot.sigmoid_topk(torch.randn(batch, n, generator=generator), k)
    seeds = khot.row_seeds(0, batch)
    candidates = {
        "sorted": lambda: torch.rand(batch, n, generator=generator).sort(-1),
        "generator": lambda: khot.tournament_pivotal(pi, generator=generator),
        "seeds": lambda: khot.tournament_pivotal(pi, seeds=seeds),
    }
    return {"batch": batch, "n": n, "k": k, **harness.ratios(candidates, "sorted", rounds)}


if __name__ == "__main__":
    main()
