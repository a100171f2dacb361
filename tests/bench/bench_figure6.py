"""Figure 6 of the paper: time against n of relaxed top-k (left) and of k-hot draws (right).

Left: sigmoid top-k and SOFT top-k by Sinkhorn, at the epsilon where they are the same map. Right:
Algorithm 1 and SIMPLE, ours and as published (`plain_methods.py`). Forward and backward of 100
rows N(0, sigma^2), sigma evenly spaced from 0.1 to 5; on the left each with its own
k ~ U(1, n - 1), on the right k = n / 2. The slope of log time against log n is that of least
squares over the upper half of the curve's points.

What differs from the paper: one thread of a processor, not a GPU; float32; beyond n = 1e4 a call
has fewer rows, still of all sigma, and its time is scaled to 100. A curve ends where a call takes
more than two seconds, and the published SIMPLE where its table would not fit: it keeps 40 bytes
for each of its 100 n k entries, 20 GB at n = 3162.
"""

import math
import statistics
from collections.abc import Callable, Mapping

import growth
import harness
import plain_methods
import torch
import turns
from torch import Tensor

import khot

ROWS, LEAST_ROWS, ELEMENTS = 100, 4, 1_000_000
SIZES = (10, 32, 100, 316, 1000, 3162, 10_000, 31_623, 100_000, 316_228, 1_000_000)
SMOKE = (10, 20, 40)
LIMIT_S, BUDGET_S = 2.0, 1.0  # of a call; of a point
TABLE = 60_000_000  # entries of the published SIMPLE's table

Function = Callable[[Tensor, Tensor], Tensor]  # of x and k, a number for each row

PANELS: Mapping[str, Mapping[str, Function]] = {
    "relaxed top-k": {
        "sigmoid_topk": khot.sigmoid_topk,
        "SOFT, Sinkhorn": lambda x, k: khot.soft_topk(x, k, epsilon=2.0, method="sinkhorn"),
    },
    "k-hot draws": {
        "pi_st": lambda x, k: khot.pi_st(x, x.shape[-1] // 2),
        "simple": lambda x, k: khot.simple(x, x.shape[-1] // 2),
        "SIMPLE, plain": lambda x, k: plain_methods.simple(x, x.shape[-1] // 2, 1).squeeze(0),
    },
}
NAMES = [name for functions in PANELS.values() for name in functions]


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0], picture="write the picture, an SVG")
    torch.set_num_threads(1)
    sizes = SMOKE if options.smoke else SIZES
    curves: dict[str, list[tuple[int, float]]] = {name: [] for name in NAMES}
    for n in sizes:
        for functions in PANELS.values():
            going = {name: f for name, f in functions.items() if goes_on(name, n, curves[name])}
            for name, ms in measure(n, going, 0.0 if options.smoke else BUDGET_S).items():
                curves[name].append((n, ms))
    slopes = {name: slope(points) for name, points in curves.items()}
    harness.report("figure6", table(sizes, curves, slopes), options.out)
    if options.picture:
        panels = {
            title: {name: (curves[name], slopes[name]) for name in functions}
            for title, functions in PANELS.items()
        }
        options.picture.write_text(growth.svg(panels, ROWS))


def rows_of(n: int) -> int:
    """How many rows a call has."""
    return min(ROWS, max(LEAST_ROWS, ELEMENTS // n))


def goes_on(name: str, n: int, points: list[tuple[int, float]]) -> bool:
    """Whether all calls so far were quick enough, and this one has the memory."""
    if name == "SIMPLE, plain" and rows_of(n) * n * (n // 2) > TABLE:
        return False
    return all(ms * rows_of(at) / ROWS < 1e3 * LIMIT_S for at, ms in points)


def measure(n: int, functions: Mapping[str, Function], budget_s: float) -> dict[str, float]:
    """The milliseconds of 100 rows."""
    generator, rows = torch.Generator().manual_seed(n), rows_of(n)
    sigma = torch.linspace(0.1, 5, rows).unsqueeze(-1)
    x = (torch.randn(rows, n, generator=generator) * sigma).requires_grad_()
    g = torch.randn(rows, n, generator=generator)
    k = 1 + (n - 2) * torch.rand(rows, generator=generator)

    def both_ways(function: Function) -> Callable[[], object]:
        return lambda: torch.autograd.grad(function(x, k), x, g)

    candidates = {name: both_ways(function) for name, function in functions.items()}
    seconds = turns.taken(candidates, budget_s, least=1)
    return {name: turns.milliseconds(seconds, name) * ROWS / rows for name in functions}


def slope(points: list[tuple[int, float]]) -> float:
    """Of log time against log n, over the upper half of the points."""
    upper = points[len(points) // 2 :]
    logs = [[math.log(value) for value in values] for values in zip(*upper, strict=True)]
    return statistics.linear_regression(*logs).slope if len(upper) > 1 else math.nan


def table(
    sizes: tuple[int, ...],
    curves: Mapping[str, list[tuple[int, float]]],
    slopes: Mapping[str, float],
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for n in sizes:
        found = {name: dict(points).get(n, "-") for name, points in curves.items()}
        rows.append({"n": n, "rows": rows_of(n), **{f"{k} ms": v for k, v in found.items()}})
    return [*rows, {"n": "slope", "rows": "", **{f"{k} ms": v for k, v in slopes.items()}}]


if __name__ == "__main__":
    main()
