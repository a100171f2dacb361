"""Pivotal sampling in random order, as a multiple of Pareto sampling in plain torch operations.

One thread. `of stateful` is the kernel with Philox, whose numbers depend on nothing but the row's
seed, as a multiple of the same kernel with a generator that has a state (xoshiro256+).
The last columns are the numbers alone, in torch operations and in C, as a multiple of torch.rand,
all float64.
"""

import designs
import harness
import torch

import khot
from khot import _random
from khot._native import pivotal as native
from khot._random import Source


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0])
    torch.set_num_threads(1)
    sizes, rounds = (designs.SMOKE, 2) if options.smoke else (designs.SIZES, 40)
    rows = [measure(*size, rounds) for size in sizes]
    harness.report("pivotal", rows, options.out)


def measure(batch: int, n: int, k: int, rounds: int) -> dict[str, object]:
    pi, seeds = designs.probabilities(batch, n, k), khot.row_seeds(0, batch)
    candidates = designs.candidates("pivotal", pi, k, seeds)
    apart = candidates.pop("torch path")  # what it leaves of the caches would be the others' cost
    times = harness.ratios(candidates, "pareto in torch", rounds)
    pareto = {"pareto in torch": candidates["pareto in torch"], "torch path": apart}
    times |= harness.ratios(pareto, "pareto in torch", max(2, rounds // 4))
    source, size = Source(seeds), {"batch": batch, "n": n, "k": k}
    of_stateful: float | None = None
    if khot.native_info().in_use:
        kernels = {
            "philox": lambda: native.draw(pi, None, 1e-6, source),
            "stateful": lambda: native.draw(pi, None, 1e-6, source, stateful=True),
        }
        of_stateful = harness.ratios(kernels, "stateful", rounds)["philox"]
    numbers = {
        "rand": lambda: torch.rand(batch, n, dtype=torch.float64),
        "philox in torch": lambda: _random.uniforms(seeds, n),
        "philox": lambda: source.uniforms(n),
    }
    alone = harness.ratios(numbers, "rand", rounds)
    del alone["rand"]
    return {**size, **times, "of stateful": of_stateful, **alone}


if __name__ == "__main__":
    main()
