"""A classifier that learns which k of its n features it needs."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from khot._checks import refuse
from khot._solve import Diagnostics
from khot.estimators import pi_st_with_diagnostics


class FeatureSelector(nn.Module):
    """Classify with k of n features: a mask drawn by `khot.pi_st`, times x, into an MLP.

    In training every example has a mask of its own, drawn from mask logits that
    are learned with the network; in evaluation all have the k largest logits.

    Args:
        n: features.
        classes: outputs.
        k: features in use, whole and in [1, n].
        hidden: widths of the hidden layers; none makes a linear classifier.
        tau: temperature of the mask.
    """

    def __init__(
        self, n: int, classes: int, k: int, *, hidden: tuple[int, ...] = (64,), tau: float = 1.0
    ) -> None:
        super().__init__()
        if not 1 <= k <= n:
            refuse("FeatureSelector", f"k must be in [1, {n}], the number of features", str(k))
        self.k, self.tau = k, tau
        self.logits = nn.Parameter(torch.zeros(n))
        widths = (n, *hidden)
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.network = nn.Sequential(*layers, nn.Linear(widths[-1], classes))

    def forward(
        self, x: Tensor, *, generator: torch.Generator | None = None, seeds: Tensor | None = None
    ) -> Tensor:
        """Return the class logits of the examples x (m, n), shape (m, classes)."""
        if self.training:
            mask, _ = self.draw(len(x), generator=generator, seeds=seeds)
        else:
            mask = torch.zeros_like(self.logits).index_fill(0, self.chosen(), 1.0)
        return self.classify(x, mask)

    def draw(
        self, m: int, *, generator: torch.Generator | None = None, seeds: Tensor | None = None
    ) -> tuple[Tensor, Diagnostics]:
        """Return m masks (m, n), and how their probabilities were solved for."""
        logits = self.logits.expand(m, -1)
        return pi_st_with_diagnostics(
            logits, self.k, tau=self.tau, generator=generator, seeds=seeds
        )

    def classify(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the class logits of the examples x seen through the mask."""
        out: Tensor = self.network(x * mask)
        return out

    def chosen(self) -> Tensor:
        """Return the indices of the k largest mask logits, ascending."""
        return self.logits.detach().topk(self.k).indices.sort().values
