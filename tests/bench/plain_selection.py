"""Feature selection as a script of one's own: torch, khot's default estimator, and nothing else.

What `load_training.py` puts the service beside: the same experiment, network, batches, rates and
evaluations, without seeds for each draw, progress, checkpoints or files. Prints how much processor
time a step took.
"""

import argparse
import math
import time

import torch
from torch import nn
from torch.nn import functional

import khot
from khot.training import FeatureSelectionConfig, split_rows


def train(
    x: torch.Tensor,
    y: torch.Tensor,
    held: tuple[torch.Tensor, torch.Tensor],
    epochs: int,
    *,
    expand: bool = False,
) -> int:
    """Choose 10 columns, and return how many steps that took."""
    config = FeatureSelectionConfig(k=10, epochs=epochs)
    logits = nn.Parameter(torch.zeros(x.shape[1]))
    network = nn.Sequential(
        nn.Linear(x.shape[1], config.hidden[0]), nn.ReLU(), nn.Linear(config.hidden[0], 10)
    )
    optimizer = torch.optim.Adam(
        [
            {"params": network.parameters(), "weight_decay": config.weight_decay},
            {"params": [logits], "weight_decay": 0.0},
        ],
        fused=True,
    )
    draw = getattr(khot, config.used_estimator)
    constant = x.amin(0) == x.amax(0)
    choosing = epochs - round(config.tuning * epochs)
    best, kept, step = math.inf, None, 0
    steps = epochs * -(-len(x) // config.batch_size)
    for epoch in range(epochs):
        tau = config.tau_at(epoch / choosing)
        for rows in torch.randperm(len(x)).split(config.batch_size):
            rate = (1 + math.cos(math.pi * step / steps)) / 2
            optimizer.param_groups[0]["lr"] = config.learning_rate * rate
            optimizer.param_groups[1]["lr"] = config.mask_learning_rate * rate
            optimizer.zero_grad()
            if epoch < choosing:
                scores = logits.masked_fill(constant, -torch.inf)
                if expand:
                    mask = draw(scores.expand(len(rows), -1), config.k, tau=tau)
                else:
                    mask = draw(scores, config.k, tau=tau, num_samples=len(rows))
            loss = functional.cross_entropy(network(x[rows] * mask), y[rows])
            if not math.isfinite(loss.item()):
                raise SystemExit("diverged")
            loss.backward()
            optimizer.step()
            step += 1
        if epoch < choosing:
            mask = hard(logits, config.k)
        with torch.no_grad():
            out = network(held[0] * mask)
            loss = functional.cross_entropy(out, held[1]).item()
        if epoch >= choosing and loss < best:
            best, kept = loss, {name: v.clone() for name, v in network.state_dict().items()}
    assert kept is not None
    return step


def hard(logits: torch.Tensor, k: int) -> torch.Tensor:
    """The mask of the k greatest."""
    with torch.no_grad():
        return torch.zeros_like(logits).index_fill(0, logits.topk(k).indices, 1.0)


def main() -> None:
    """Train on digits once to be warm, then for good."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--expand", action="store_true", help="a row of logits for each example")
    given = parser.parse_args()
    from sklearn.datasets import load_digits

    torch.set_num_threads(1)
    data = load_digits()
    x, y = torch.from_numpy(data.data).float() / 16, torch.from_numpy(data.target)
    train_rows, held_rows, _ = split_rows(y, validation=0.1, test=0.2)
    held = x[held_rows], y[held_rows]
    train(x[train_rows], y[train_rows], held, 4)
    start = time.process_time()
    steps = train(x[train_rows], y[train_rows], held, given.epochs, expand=given.expand)
    print((time.process_time() - start) / steps)


if __name__ == "__main__":
    main()
