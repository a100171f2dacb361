"""A training step of the paper's feature selection (Table 3), with masks drawn in any way.

784 features, 128 examples with a mask each, a ReLU network of 512 and 256 units, and Adam. The
network predicts ten classes, or all 784 features, by cross entropy. The data are random, and so are
the mask logits, as in the midst of a training: zeros would spare the root finders their work.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

import khot
from khot.models import FeatureSelector


class Size(NamedTuple):
    """Features, how many are drawn, examples, and whether all features are predicted."""

    n: int
    k: int
    batch: int
    reconstructs: bool = False


TABLE_3, SMOKE = Size(784, 50, 128), Size(20, 5, 4)
CLASSES = 10

Draw = Callable[[Tensor, int], Tensor]  # mask logits (n,) and how many, to masks (m, n)
Step = Callable[[], object]


def step(draw: Draw, size: Size, *, needs_loss: bool = False) -> Step:
    """A training that has just begun, to be called for each of its steps."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        selector = FeatureSelector(
            size.n,
            None if size.reconstructs else CLASSES,
            size.k,
            hidden=(512, 256),
            reconstructs=size.reconstructs,
        )
        torch.nn.init.normal_(selector.logits)
        x, y = torch.rand(size.batch, size.n), torch.randint(CLASSES, (size.batch,))
    optimizer = torch.optim.Adam(selector.parameters(), fused=True)

    def cost(out: Tensor, reduction: str = "mean") -> Tensor:
        if not size.reconstructs:
            return cross_entropy(out, y, reduction=reduction)
        costs = binary_cross_entropy_with_logits(out, x, reduction=reduction)
        return costs if reduction == "mean" else costs.mean(-1)

    def run() -> None:
        optimizer.zero_grad()
        masks = draw(selector.logits, size.batch)
        if needs_loss:
            losses = cost(selector.network(x * masks.detach()), "none")
            others = (losses.sum() - losses).detach() / (size.batch - 1)
            loss = khot.with_losses(masks, losses, baseline=others).mean()
        else:
            loss = cost(selector.network(x * masks))
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
