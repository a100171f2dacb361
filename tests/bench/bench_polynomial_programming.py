"""Polynomial programming, the paper's Figure 9: which estimators find the optimum?

128 problems are solved at once: minimise E|z - c|^2 over logits, z a k-hot draw of n = 100,
k = 50, and c of 50 entries 0.45 and 50 of 0.55. On zeros and ones |z - c|^2 is linear, and the
optimum is to choose the entries of 0.55: a loss of 0.2025 for each of n. Its gradient at z is
not constant, though, and its mean vanishes at pi = c: there the first-order estimator stays.

Adam at a rate of 0.1, 256 draws for each problem and step, logits ~ N(0, 1) at the start. The
losses are exact, for E[z] = pi. `--picture` draws them as an SVG.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import descent
import harness
import torch
from torch import Tensor

import khot

ESTIMATORS: Mapping[str, Callable[..., Tensor]] = {"pi_st": khot.pi_st, "pi_st2": khot.pi_st2}
EVERY = 10  # steps between losses


@dataclass(frozen=True)
class Size:
    """How large the problems are, and how long they are worked at."""

    n: int = 100
    problems: int = 128
    samples: int = 256
    steps: int = 500


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0], picture="file for the curves, an SVG")
    torch.set_num_threads(1)
    size = Size(10, 4, 8, 20) if options.smoke else Size()
    found = {name: solve(estimator, size) for name, estimator in ESTIMATORS.items()}
    harness.report("polynomial_programming", table(found, size), options.out)
    if options.picture:
        optimum, standstill = losses(size.n)
        options.picture.write_text(descent.svg(found, EVERY, optimum, standstill))


def solve(estimator: Callable[..., Tensor], size: Size) -> Tensor:
    """The exact losses of the problems, (steps / EVERY + 1, problems)."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(size.problems, size.n, generator=generator).requires_grad_()
    optimiser = torch.optim.Adam([logits], lr=0.1)
    k, c = size.n // 2, target(size.n)
    history = [loss_of(logits, c)]
    for step in range(size.steps):
        seeds = khot.row_seeds(step, size.problems)
        z = estimator(logits, k, num_samples=size.samples, seeds=seeds)
        optimiser.zero_grad()
        (z - c).square().sum(-1).mean(0).sum().backward()
        optimiser.step()
        if (step + 1) % EVERY == 0:
            history.append(loss_of(logits, c))
    return torch.stack(history)


def target(n: int) -> Tensor:
    return torch.cat((torch.full((n // 2,), 0.45), torch.full((n - n // 2,), 0.55)))


def loss_of(logits: Tensor, c: Tensor) -> Tensor:
    """E|z - c|^2 / n for each problem: z^2 = z, and E[z] = pi."""
    pi = khot.sigmoid_topk(logits.detach(), len(c) // 2)
    return (pi * (1 - 2 * c) + c.square()).mean(-1)


def losses(n: int) -> tuple[float, float]:
    """At the optimum, and at pi = c, where the first-order gradient vanishes."""
    c = target(n)
    return 0.45**2, float((c * (1 - 2 * c) + c.square()).mean())


def table(found: Mapping[str, Tensor], size: Size) -> Sequence[dict[str, object]]:
    optimum, _ = losses(size.n)
    return [
        {
            "estimator": name,
            "step": EVERY * i,
            "mean loss": f"{float(line.mean()):.5f}",
            "worst loss": f"{float(line.max()):.5f}",
            "above the optimum, %": 100 * (float(line.mean()) / optimum - 1),
        }
        for name, history in found.items()
        for i, line in enumerate(history)
        if EVERY * i in (0, size.steps // 10, size.steps // 2, size.steps)
    ]


if __name__ == "__main__":
    main()
