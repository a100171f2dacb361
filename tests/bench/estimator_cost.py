"""What the benchmarks of one estimator share: its cost as a multiple of another map's."""

import time
from collections.abc import Callable, Mapping, Sequence

import harness
import torch
from torch import Tensor

import khot

SIZES = ((1, 8, 2), (128, 784, 50), (128, 1000, 500), (64, 10_000, 1000))
SMOKE = ((1, 8, 2), (4, 50, 5))

Estimators = Mapping[str, Callable[..., Tensor]]


def main(
    name: str,
    description: str,
    estimators: Estimators,
    *,
    baseline: str = "sigmoid_topk",
    sizes: Sequence[tuple[int, int, int]] = SIZES,
    rounds: int = 15,
) -> None:
    """Forward and backward of each estimator, called (logits, k, seeds=seeds), on one thread.

    As multiples of the baseline, sigmoid_topk or softmax; `ms` is the time of the first.
    """
    options = harness.arguments(description)
    torch.set_num_threads(1)
    sizes, rounds = (SMOKE, 2) if options.smoke else (sizes, rounds)
    rows = [_measured(estimators, *size, baseline, rounds) for size in sizes]
    harness.report(name, rows, options.out)


def _measured(
    estimators: Estimators, batch: int, n: int, k: int, baseline: str, rounds: int
) -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(batch, n, generator=generator).requires_grad_()
    g = torch.randn(batch, n, generator=generator)
    seeds = khot.row_seeds(0, batch)

    def both_ways(function: Callable[[], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(function(), logits, g)

    def estimate(estimator: Callable[..., Tensor]) -> Callable[[], object]:
        return both_ways(lambda: estimator(logits, k, seeds=seeds))

    candidates = {
        "softmax": both_ways(lambda: logits.softmax(-1)),
        "sigmoid_topk": both_ways(lambda: khot.sigmoid_topk(logits, k)),
        **{name: estimate(estimator) for name, estimator in estimators.items()},
    }
    times = harness.ratios(candidates, baseline, rounds)
    start = time.perf_counter()
    candidates[next(iter(estimators))]()
    taken = 1e3 * (time.perf_counter() - start)
    return {"batch": batch, "n": n, "k": k, "ms": taken, **times}
