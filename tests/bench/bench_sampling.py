"""The designs side by side: their error, their entropy and their time.

Error and entropy are those of a million draws for pi = sigmoid_topk(linspace(-4, 4, 10), 5):
`max z` of 2 to 3 is what an exact design has. The entropy is that of the frequencies, beside the
greatest that a law with these inclusion probabilities has; a design above it has others. Times
are of a draw of 128 x 784, k = 50, as a multiple of Pareto sampling in plain torch operations.
One thread; `--picture` draws the table as an SVG.
"""

from collections.abc import Callable
from functools import partial

import design_bars
import designs
import harness
import torch
from torch import Tensor

import khot
from khot import testing

OPTIONS: dict[str, dict[str, bool]] = {
    "systematic": {"permuted": False},
    "conditional_poisson": {"fitted": False},
}
NOTES = {"systematic": "fixed order", "conditional_poisson": "as it stands"}


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0], picture="file for the bars, an SVG")
    torch.set_num_threads(1)
    draws = 2000 if options.smoke else 1_000_000
    size = designs.SMOKE[-1] if options.smoke else designs.SIZES[1]
    rows = [
        {"design": name, **measure(design, draws), "time": duration(design, *size)}
        for name, design in every_design().items()
    ]
    harness.report("sampling", rows, options.out)
    if options.picture:
        options.picture.write_text(design_bars.svg(rows, draws, size))


def every_design() -> dict[str, Callable[..., Tensor]]:
    """The designs of the registry, and those with an option that changes their law."""
    found: dict[str, Callable[..., Tensor]] = {}
    for row in khot.operators("design"):
        found[row.name] = row.function
        if row.name in OPTIONS:
            varied = partial(row.function, **OPTIONS[row.name])
            found[f"{row.name}, {NOTES[row.name]}"] = varied
    return found


def measure(design: Callable[..., Tensor], draws: int) -> dict[str, float]:
    pi = khot.sigmoid_topk(torch.linspace(-4, 4, 10).double(), 5)
    chunk = min(draws, 100_000)
    counts = torch.zeros(1024)
    ones = torch.zeros_like(pi)
    for seed in khot.row_seeds(0, draws // chunk):
        z = design(pi, num_samples=chunk, seeds=seed)
        ones += z.sum(0)
        counts += torch.bincount((z @ (2.0 ** torch.arange(10)).double()).long(), minlength=1024)
    off = (ones / draws - pi).abs()
    frequencies = counts[counts > 0].double() / draws
    return {
        "max error": float(off.max()),
        "max z": float((off / (pi * (1 - pi) / draws).sqrt()).max()),
        "entropy": abs(float((frequencies * frequencies.log()).sum())),
        "greatest entropy": greatest_entropy(pi, 5),
    }


def greatest_entropy(pi: Tensor, k: int) -> float:
    """That of p(z) ~ exp(theta z), theta such that the inclusion probabilities are pi."""
    subsets, theta = testing.subsets(len(pi), k), pi.logit()
    for _ in range(500):
        p = (subsets @ theta).softmax(0)
        theta = theta + pi.logit() - (p @ subsets).logit()
    assert torch.allclose(p @ subsets, pi, atol=1e-9)
    return float(-(p * p.log()).sum())


def duration(design: Callable[..., Tensor], batch: int, n: int, k: int) -> float:
    pi, seeds = designs.probabilities(batch, n, k), khot.row_seeds(0, batch)
    generator = torch.Generator().manual_seed(0)
    candidates: dict[str, Callable[[], object]] = {
        "pareto in torch": lambda: designs.pareto_in_torch(pi, k, generator),
        "design": lambda: design(pi, seeds=seeds),
    }
    once = harness.ratios(candidates, "pareto in torch", 1)["design"]
    rounds = 3 if once > 50 else 25
    return harness.ratios(candidates, "pareto in torch", rounds)["design"]


if __name__ == "__main__":
    main()
