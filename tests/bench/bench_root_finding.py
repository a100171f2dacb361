"""Table 5 and Figure 8 of the paper: root finders by iterations and time, to 1e-8.

A batch is 100 rows N(0, sigma^2), sigma evenly spaced from 0.1 to 5, each with its own
k ~ U(1, n - 1). The iterations are those of its slowest row, mean and deviation over the
repetitions. All methods take turns on each slice of a batch, float64, one thread; the
slices are small enough for memory, and each has rows of every sigma. Times of the last
row are the kernel's, which also writes the output.
"""

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import curves
import harness
import torch
from torch import Tensor

import khot
from khot.solvers import GUESSES, solve

Method = tuple[str, str | None]  # step, guess

PUBLISHED: dict[Method, float] = {  # Table 5: n = 1e4
    ("bisection", None): 43.0,
    ("newton", "zero"): 8.16,
    ("newton", "quantile"): 7.27,
    ("newton", "logit"): 7.34,
    ("newton", "both"): 5.34,
    ("halley", "zero"): 5.82,
    ("halley", "quantile"): 4.50,
    ("halley", "logit"): 4.32,
    ("halley", "both"): 3.15,
}
OURS, KERNEL = ("ours", "probit"), ("kernel", "probit")
METHODS: tuple[Method, ...] = (
    ("bisection", None),
    *((step, guess) for step in ("newton", "halley", "ours") for guess in GUESSES),
)

# batch, n, repetitions, slices of a batch
SIZES = ((100, 10_000, 20, 1), (100, 1_000_000, 2, 20))
SMOKE = ((6, 200, 2, 1), (6, 400, 2, 3))


@dataclass
class Runs:
    """What was seen of one method at one size."""

    iterations: list[float] = field(default_factory=list)  # by repetition
    seconds: list[float] = field(default_factory=list)  # by slice
    errors: list[Tensor] = field(default_factory=list)  # by slice of the first repetition


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0], picture="file for Figure 8, an SVG")
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    for batch, n, repetitions, slices in SMOKE if options.smoke else SIZES:
        seen = measure(batch, n, repetitions, slices)
        rows += table(seen, n, slices)
    harness.report("root_finding", rows, options.out)
    if options.picture:
        errors = {method: worst(runs.errors) for method, runs in seen.items() if runs.errors}
        options.picture.write_text(curves.svg(errors, batch, n))


def measure(batch: int, n: int, repetitions: int, slices: int) -> dict[Method, Runs]:
    seen = {method: Runs() for method in METHODS}
    if khot.native_info().in_use:
        seen[KERNEL] = Runs()
    warm_up = torch.randn(2, n, dtype=torch.float64), torch.ones(2)
    for method in seen:
        attempt(method, *warm_up)
    for repetition in range(repetitions):
        slowest = dict.fromkeys(seen, 0.0)
        for x, k in problems(batch, n, repetition, slices):
            for method, runs in seen.items():
                seconds, iterations, errors = attempt(method, x, k)
                runs.seconds.append(seconds)
                slowest[method] = max(slowest[method], iterations)
                if repetition == 0 and errors is not None:
                    runs.errors.append(errors)
        for method, runs in seen.items():
            runs.iterations.append(slowest[method])
    return seen


def problems(batch: int, n: int, repetition: int, slices: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(repetition)
    sigma = torch.linspace(0.1, 5, batch, dtype=torch.float64).unsqueeze(-1)
    for place in range(slices):
        mine = sigma[place::slices]
        x = torch.randn(len(mine), n, generator=generator, dtype=torch.float64) * mine
        yield x, 1 + (n - 2) * torch.rand(len(mine), generator=generator, dtype=torch.float64)


def attempt(method: Method, x: Tensor, k: Tensor) -> tuple[float, float, Tensor | None]:
    """Seconds, the iterations of the slowest row, and the errors if they were watched."""
    if method == KERNEL:
        _, diagnostics = khot.sigmoid_topk_with_diagnostics(x, k)
        start = time.perf_counter()
        khot.sigmoid_topk(x, k)
        return time.perf_counter() - start, float(diagnostics.iterations.max()), None
    step, guess = method
    start = time.perf_counter()
    found = solve(x, k, step=step, guess=guess)
    seconds = time.perf_counter() - start
    assert bool(found.converged.all()), method
    return seconds, float(found.iterations.max()), found.errors


def table(seen: dict[Method, Runs], n: int, slices: int) -> Iterator[dict[str, object]]:
    for method, runs in seen.items():
        step, guess = method
        yield {
            "n": n,
            "step": step,
            "guess": guess or "",
            "iterations": statistics.fmean(runs.iterations),
            "±": statistics.stdev(runs.iterations),
            "published": PUBLISHED.get(method, "") if n == 10_000 else "",
            "ms": round(1e3 * slices * statistics.median(runs.seconds)),
            "/ ours": statistics.median(
                a / b for a, b in zip(runs.seconds, seen[OURS].seconds, strict=True)
            ),
        }


def worst(errors: list[Tensor]) -> list[float]:
    """The largest error over the slices; one that is done keeps its last."""
    longest = max(map(len, errors))
    padded = [torch.cat([e, e[-1:].expand(longest - len(e))]) for e in errors]
    return torch.stack(padded).amax(0).tolist()


if __name__ == "__main__":
    main()
