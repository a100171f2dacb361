"""A training step of each method of the paper's Table 3, beside the same written plainly.

Feature selection as in `selection_steps.py`, one thread, with the network that predicts all pixels
and with that of classes. khot draws all masks as samples of the one row of mask logits. `rows` is
the plain method (`plain_methods.py`) with a row for each example, as the published layers take it;
`shared` is better than published: what the samples of a row share is computed once. `gates` is the
step without a draw, its masks sigmoid(logits). "must" is the least that rows / khot may be.
"""

import harness
import plain_methods
import selection_steps as steps
import torch
import turns

BUDGET_S = 6.0  # for each method
MUST = {"simple": 20.0}
PREDICTED = {"pixels": True, "classes": False}


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0])
    torch.set_num_threads(1)
    size, budget_s = (steps.SMOKE, 0.0) if options.smoke else (steps.TABLE_3, BUDGET_S)
    rows = [
        {"predicts": predicts, **measure(name, size._replace(reconstructs=whole), budget_s)}
        for predicts, whole in PREDICTED.items()
        for name in plain_methods.METHODS
    ]
    harness.report("table3_steps", rows, options.out)


def measure(name: str, size: steps.Size, budget_s: float) -> dict[str, object]:
    plain = plain_methods.METHODS[name]
    draws: dict[str, steps.Draw] = {
        "gates": steps.gates,
        "khot": steps.by_khot(name, size.k),
        "shared": lambda logits, m: plain(logits.unsqueeze(0), size.k, m).squeeze(1),
        "rows": lambda logits, m: plain(logits.expand(m, -1), size.k, 1).squeeze(0),
    }
    seconds = turns.taken({key: steps.step(draw, size) for key, draw in draws.items()}, budget_s)
    return {
        "method": name,
        **{f"{key} ms": turns.milliseconds(seconds, key) for key in draws},
        "khot / gates": turns.ratio(seconds, "khot", "gates"),
        "rows / khot": turns.ratio(seconds, "rows", "khot"),
        "shared / khot": turns.ratio(seconds, "shared", "khot"),
        "must": MUST.get(name, 1.0),
    }


if __name__ == "__main__":
    main()
