"""A training step and its peak memory with each estimator of the registry.

Feature selection as in `selection_steps.py`, one thread: one row of mask logits, and a sample of
it for each example. `gates` is the step without a draw, its masks sigmoid(logits), and `/ gates`
a step as a multiple of that one's. The memory is what a step needs at its peak beyond what stays
(`peak_memory.py`), and `of the draw` what it needs beyond `gates`; below 0.5 MB is noise. Those
that know k = 1 alone draw one feature.
"""

from typing import cast

import harness
import peak_memory
import selection_steps as steps
import torch
import turns

import khot

BUDGET_S = 40.0  # for all
GATES = "gates"


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0])
    torch.set_num_threads(1)
    size, budget_s = (steps.SMOKE, 0.0) if options.smoke else (steps.TABLE_3, BUDGET_S)
    harness.report("estimator_steps", measure(size, budget_s), options.out)


def measure(size: steps.Size, budget_s: float) -> list[dict[str, object]]:
    candidates = {GATES: steps.step(steps.gates, size)}
    drawn = {GATES: size.n}
    for row in cast(tuple[khot.Estimator, ...], khot.operators("estimator")):
        drawn[row.name] = row.only_k or size.k
        draw = steps.by_khot(row.name, drawn[row.name])
        candidates[row.name] = steps.step(draw, size, needs_loss=row.needs_loss)
    seconds = turns.taken(candidates, budget_s)
    memory = {name: megabytes(step) for name, step in candidates.items()}
    return [
        {
            "estimator": name,
            "k": drawn[name],
            "ms": turns.milliseconds(seconds, name),
            "/ gates": turns.ratio(seconds, name, GATES),
            "memory MB": memory[name],
            "of the draw": max(0.0, memory[name] - memory[GATES]),
        }
        for name in candidates
    ]


def megabytes(step: steps.Step) -> float:
    """NaN where it cannot be measured."""
    return peak_memory.peak_bytes(step) / 1e6 if peak_memory.measurable() else float("nan")


if __name__ == "__main__":
    main()
