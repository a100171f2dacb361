"""A training step of the paper's feature selection (Table 3), with masks drawn in any way.

784 features, 128 examples with a mask each, a ReLU network 512-256-10, cross entropy and Adam.
The data are random, and so are the mask logits, as in the midst of a training: zeros would spare
the root finders their work.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import khot
from khot.models import FeatureSelector


class Size(NamedTuple):
    """Features, how many are drawn, and examples."""

    n: int
    k: int
    batch: int


TABLE_3, SMOKE = Size(784, 50, 128), Size(20, 5, 4)

Draw = Callable[[Tensor, int], Tensor]  # mask logits (n,) and how many, to masks (m, n)
Step = Callable[[], object]


def step(draw: Draw, size: Size, *, needs_loss: bool = False) -> Step:
    """A training that has just begun, to be called for each of its steps."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        selector = FeatureSelector(size.n, 10, size.k, hidden=(512, 256))
        torch.nn.init.normal_(selector.logits)
        x, y = torch.rand(size.batch, size.n), torch.randint(10, (size.batch,))
    optimizer = torch.optim.Adam(selector.parameters(), fused=True)

    def run() -> None:
        optimizer.zero_grad()
        masks = draw(selector.logits, size.batch)
        if needs_loss:
            losses = cross_entropy(selector.network(x * masks.detach()), y, reduction="none")
            others = (losses.sum() - losses).detach() / (size.batch - 1)
            loss = khot.with_losses(masks, losses, baseline=others).mean()
        else:
            loss = cross_entropy(selector.network(x * masks), y)
        loss.backward()
        optimizer.step()

    return run


def gates(logits: Tensor, m: int) -> Tensor:
    """No draw, but a gradient: what the network and the optimizer take alone."""
    return logits.sigmoid()


def by_khot(name: str, k: int) -> Draw:
    """Samples of the one row that the mask logits are."""
    function = khot.operator(name).function
    return lambda logits, m: function(logits, k, num_samples=m)
