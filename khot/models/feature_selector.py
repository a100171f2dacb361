"""A network that learns which of its n features it needs."""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from khot._checks import check_choice, refuse
from khot._solve import Diagnostics
from khot.models._inclusion import inclusion_probabilities
from khot.registry import Estimator, operators

ESTIMATORS = {row.name: row for row in operators("estimator") if isinstance(row, Estimator)}

# Draws without a k that is given, and so can learn it.
LEARNS_K = "pi_st_implicit"


def check_estimator(who: str, estimator: str, k: int | None) -> None:
    """Refuse an estimator that there is not, or that does not take this k."""
    check_choice(who, "estimator", estimator, ESTIMATORS)
    only = ESTIMATORS[estimator].only_k
    if k is None and estimator != LEARNS_K:
        refuse(who, f"estimator must be {LEARNS_K} where k is learned", repr(estimator))
    if k is not None and only not in (None, k):
        refuse(who, f"k must be {only} with the estimator {estimator}", str(k))


class FeatureSelector(nn.Module):
    """Predict from k of n features: a mask drawn by an estimator, times x, into an MLP.

    What it predicts is a class, a number, or all n features.

    In training every example has a mask of its own, drawn from mask logits that
    are learned with the network; in evaluation all have the k largest logits. A k that is
    learned is what the inclusion probabilities sigmoid(logits / tau) sum to, in evaluation
    rounded, and at least 1.

    It takes x as it is, and standardises it if told how (`fit`); a feature that is not drawn
    is 0 after that, so its mean.

    Args:
        n: features.
        classes: how many; None for numbers.
        k: features in use, whole and in [1, n]; None for a k that is learned.
        hidden: widths of the hidden layers; none makes a linear model.
        tau: temperature of the mask.
        estimator: of the mask's gradient, by its name in the registry.
        hard: draw hard masks, with the gradients of relaxed ones, where the estimator relaxes.
        reconstructs: predict all n features, each in [0, 1], by their logits.

    Attributes:
        tau: temperature of the mask; may be changed between steps, and is part of `state_dict`.
        needs_loss: whether the mask learns from the values of losses (`khot.with_losses`), not
            from their gradients.

    Raises:
        ValueError: a number is out of range, or the estimator does not take this k.
    """

    mean: Tensor
    scale: Tensor
    constant: Tensor
    target_mean: Tensor
    target_scale: Tensor

    def __init__(
        self,
        n: int,
        classes: int | None,
        k: int | None,
        *,
        hidden: tuple[int, ...] = (128,),
        tau: float = 1.0,
        estimator: str = "gumbel_sigmoid",
        hard: bool = False,
        reconstructs: bool = False,
    ) -> None:
        super().__init__()
        who = "FeatureSelector"
        if k is not None and not 1 <= k <= n:
            refuse(who, f"k must be in [1, {n}], the number of features", str(k))
        if classes is not None and classes < 2:
            refuse(who, "classes must be at least 2, or None for numbers", str(classes))
        if reconstructs and classes is not None:
            refuse(who, "classes must be None where features are reconstructed", str(classes))
        check_estimator(who, estimator, k)
        self.arguments: dict[str, Any] = {"n": n, "classes": classes, "k": k}
        self.arguments |= {"hidden": tuple(hidden), "tau": tau, "estimator": estimator}
        self.arguments |= {"hard": hard, "reconstructs": reconstructs}
        self.k, self.tau = k, tau
        self._row = ESTIMATORS[estimator]
        self.needs_loss = self._row.needs_loss
        self._options: dict[str, Any] = {"hard": hard} if "hard" in self._row.options else {}
        self._any_constant: bool | None = None  # not asked yet: to look costs as much as a draw
        self.logits = nn.Parameter(torch.zeros(n))
        self.register_buffer("mean", torch.zeros(n))
        self.register_buffer("scale", torch.ones(n))
        self.register_buffer("constant", torch.zeros(n, dtype=torch.bool))
        self.register_buffer("target_mean", torch.zeros(()))
        self.register_buffer("target_scale", torch.ones(()))
        widths = (n, *hidden)
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        outputs = n if reconstructs else classes or 1
        self.network = nn.Sequential(*layers, nn.Linear(widths[-1], outputs))

    def get_extra_state(self) -> Tensor:
        """Return the temperature: inclusion probabilities, and a k that is learned, need it."""
        return torch.tensor(self.tau, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Take the temperature that was saved."""
        self.tau = float(state)
        self._any_constant = None

    def fit(self, x: Tensor, y: Tensor | None = None, *, standardize: bool = True) -> Tensor:
        """Take from the examples x (m, n) what is constant and, if wanted, means and scales.

        Features that are constant are never drawn and never chosen.

        Args:
            x: raw.
            y: targets (m,) of a regression, which are then standardised in any case.
            standardize: divide by standard deviations after subtracting means.

        Returns:
            The indices of the features that are constant, ascending.

        Raises:
            ValueError: all are, or less than k are not.
        """
        self.constant = x.amin(0) == x.amax(0)
        self._any_constant = None
        left = len(self.constant) - int(self.constant.sum())
        if left == 0:
            refuse("FeatureSelector", "a feature must not be constant", "all constant")
        if self.k is not None and self.k > left:
            must = f"k must be in [1, {left}], the number of features that are not constant"
            refuse("FeatureSelector", must, str(self.k))
        if standardize:
            self.mean, self.scale = _moments(x)
        if y is not None:
            self.target_mean, self.target_scale = _moments(y)
        return self.constant.nonzero().squeeze(-1)

    def standardized(self, x: Tensor) -> Tensor:
        """Return the examples x as the network has them before they are masked."""
        return (x - self.mean) / self.scale

    def forward(
        self, x: Tensor, *, generator: torch.Generator | None = None, seeds: Tensor | None = None
    ) -> Tensor:
        """Return the class logits of the examples x (m, n), (m, classes).

        Without classes targets (m,), or where features are reconstructed their logits (m, n).
        In training the masks are drawn as by `draw`.
        """
        if not self.training:
            return self.predict(x, self.mask())
        return self.predict(x, self.draw(len(x), generator=generator, seeds=seeds)[0])

    def predict(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return what `forward` does of the examples x seen through the mask, (n,) or (m, n)."""
        out: Tensor = self.network(self.standardized(x) * mask)
        if self.arguments["classes"] is None and not self.arguments["reconstructs"]:
            return out.squeeze(-1) * self.target_scale + self.target_mean
        return out

    def draw(
        self,
        m: int,
        *,
        generator: torch.Generator | None = None,
        seeds: Tensor | None = None,
        diagnostics: bool = True,
    ) -> tuple[Tensor, Diagnostics | None]:
        """Return m masks (m, n), and how their probabilities were solved for, if they were.

        They are samples of the one row that the mask logits are, which is solved for once.

        Args:
            m: how many.
            generator: where the randomness comes from; torch's own if None.
            seeds: instead, an int64 seed of all of them, of shape ().
            diagnostics: whether that is wanted; it costs a tenth of a small draw.
        """
        row = self._row
        options = {"tau": self.tau, "num_samples": m, "generator": generator, "seeds": seeds}
        options |= self._options
        if row.with_diagnostics is None or not diagnostics:
            return row.function(self.scores(), self.k, **options), None
        return row.with_diagnostics(self.scores(), self.k, **options)

    def scores(self) -> Tensor:
        """Return the mask logits, -inf of what is constant."""
        if self._any_constant is None:
            self._any_constant = bool(self.constant.any())
        if not self._any_constant:
            return self.logits
        return self.logits.masked_fill(self.constant, -torch.inf)

    def inclusion_probabilities(self) -> Tensor:
        """Return how likely each feature is to be drawn; 0 of what is constant.

        Where k is learned, sigmoid(logits / tau), with its gradient. Where the estimator's law
        has no known probabilities, such as that of `gumbel_sigmoid`, the shares of many hard draws
        from one seed, off by about 0.008 at most.
        """
        if self.k is None:
            return torch.sigmoid(self.scores() / self.tau)
        return inclusion_probabilities(self._row, self.scores(), self.k, self.tau)

    def chosen(self) -> Tensor:
        """Return the indices of the k largest mask logits, ascending."""
        with torch.no_grad():
            k = self.k or max(1, round(float(self.inclusion_probabilities().sum())))
            return self.scores().topk(k).indices.sort().values

    def mask(self) -> Tensor:
        """Return the mask (n,) of those chosen."""
        return torch.zeros_like(self.logits).index_fill(0, self.chosen(), 1.0)


def _moments(values: Tensor) -> tuple[Tensor, Tensor]:
    """Means and standard deviations along the first dimension; 1 for what is constant."""
    scale, mean = torch.std_mean(values, 0, correction=0)
    return mean, torch.where(scale > 0, scale, 1.0)
