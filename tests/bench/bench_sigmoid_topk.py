"""Sigmoid top-k, forward and backward, as a multiple of softmax's on the same input.

One thread. Rows are N(0, sigma^2) with sigma from 0.1 to 5 across the batch. At (1, 8) it is
the overhead of a call that is measured. "must" is what the kernel has to reach.
"""

import harness
import relaxation_cost
import torch

import khot

# batch, n, k, must
SIZES = (
    (1, 8, 2, 3.0),
    (128, 784, 50, 2.3),
    (128, 1000, 500, 2.5),
    (64, 10_000, 1000, 1.8),
    (8, 100_000, 10_000, 1.6),
    (4, 1_000_000, 100_000, 1.45),
)
SMOKE = ((1, 8, 2, 3.0), (4, 50, 5, 2.3))


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0])
    torch.set_num_threads(1)
    sizes = SMOKE if options.smoke else SIZES
    rows = [measure(*size, smoke=options.smoke) for size in sizes]
    harness.report("sigmoid_topk", rows, options.out)


def measure(batch: int, n: int, k: int, must: float, *, smoke: bool) -> dict[str, object]:
    rounds = 2 if smoke else min(max(15, 10_000_000 // (batch * n)), 1000)
    x, both_ways = relaxation_cost.problem(batch, n)
    _, diagnostics = khot.sigmoid_topk_with_diagnostics(x, k)
    softmax = both_ways(lambda x: x.softmax(-1))
    on_torch = harness.on_torch(lambda x: khot.sigmoid_topk(x, k))
    slow = {"softmax": softmax, "torch path": both_ways(on_torch)}
    quick = {"softmax": softmax, "sigmoid": both_ways(torch.sigmoid)}
    if khot.native_info().in_use:
        quick["kernel"] = both_ways(lambda x: khot.sigmoid_topk(x, k))
    times = harness.ratios(quick, "softmax", rounds)
    times |= harness.ratios(slow, "softmax", min(rounds, 5))
    iterations = float(diagnostics.iterations.double().mean())
    return {"batch": batch, "n": n, "k": k, "iterations": iterations, **times, "must": must}


if __name__ == "__main__":
    main()
