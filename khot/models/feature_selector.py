"""A classifier that learns which k of its n features it needs."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from khot._checks import refuse
from khot._solve import Diagnostics
from khot.estimators import pi_st_with_diagnostics
from khot.registry import Estimator, operators

# Those that draw k of n for the k they are given.
ESTIMATORS = {
    row.name: row
    for row in operators("estimator")
    if isinstance(row, Estimator) and row.needs_k and not row.one_k
}


class FeatureSelector(nn.Module):
    """Classify with k of n features: a mask drawn by an estimator, times x, into an MLP.

    In training every example has a mask of its own, drawn from mask logits that
    are learned with the network; in evaluation all have the k largest logits.

    Args:
        n: features.
        classes: outputs.
        k: features in use, whole and in [1, n].
        hidden: widths of the hidden layers; none makes a linear classifier.
        tau: temperature of the mask.
        estimator: of the mask's gradient, by its name in the registry; one that takes k.

    Attributes:
        tau: temperature of the mask; may be changed between steps.
        needs_loss: whether the mask learns from the values of losses (`khot.with_losses`), not
            from their gradients.
    """

    def __init__(
        self,
        n: int,
        classes: int,
        k: int,
        *,
        hidden: tuple[int, ...] = (64,),
        tau: float = 1.0,
        estimator: str = "pi_st",
    ) -> None:
        super().__init__()
        if not 1 <= k <= n:
            refuse("FeatureSelector", f"k must be in [1, {n}], the number of features", str(k))
        if estimator not in ESTIMATORS:
            must = f"estimator must be one of {', '.join(ESTIMATORS)}"
            refuse("FeatureSelector", must, repr(estimator))
        self.k, self.tau = k, tau
        self._estimator = ESTIMATORS[estimator]
        self.needs_loss = self._estimator.needs_loss
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
    ) -> tuple[Tensor, Diagnostics | None]:
        """Return m masks (m, n), and how their probabilities were solved for, if they were."""
        logits = self.logits.expand(m, -1)
        if self._estimator.name == "pi_st":
            return pi_st_with_diagnostics(
                logits, self.k, tau=self.tau, generator=generator, seeds=seeds
            )
        draw = self._estimator.function
        return draw(logits, self.k, tau=self.tau, generator=generator, seeds=seeds), None

    def classify(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the class logits of the examples x seen through the mask."""
        out: Tensor = self.network(x * mask)
        return out

    def chosen(self) -> Tensor:
        """Return the indices of the k largest mask logits, ascending."""
        return self.logits.detach().topk(self.k).indices.sort().values
