"""A linear model that learns which k of its n columns it needs."""

from typing import Any

import torch
from torch import Tensor, nn

from khot._checks import refuse
from khot._solve import Diagnostics
from khot.models._inclusion import inclusion_probabilities
from khot.models._subset_risk import Moments, least_squares
from khot.models.feature_selector import ESTIMATORS, check_estimator

# Rows that are made float64 together.
_AT_ONCE = 8192


class SparseRegressor(nn.Module):
    """Predict y = intercept + sum of k columns of x, each times its coefficient.

    Which ones are the k largest of the logits. Training draws subsets by an estimator from them,
    and learns them by what subsets cost (`khot.training.train_sparse_regression`); coefficients are
    never learned but solved for, by least squares on the chosen columns.

    Args:
        n: columns.
        k: columns in use, whole and in [1, n].
        intercept: whether there is one; without it, columns are scaled but not centred.
        tau: temperature of the draws.
        estimator: of the gradient through them, by its name in the registry.

    Attributes:
        logits: of the law of subsets, (n,).
        coefficients: of every column in the units of the data, float64 (n,); 0 of those not chosen.
        intercept: float64 (); 0 if there is none.
        mean, scale: of the columns in the training examples, by which they are standardised there.
        tau: temperature; may be changed between steps, and is part of `state_dict`.
        needs_loss: whether the logits learn from the values of losses (`khot.with_losses`).

    Raises:
        ValueError: a number is out of range, or the estimator does not take this k.
    """

    mean: Tensor
    scale: Tensor
    constant: Tensor
    target_mean: Tensor
    target_scale: Tensor
    coefficients: Tensor
    intercept: Tensor

    def __init__(
        self,
        n: int,
        k: int,
        *,
        intercept: bool = True,
        tau: float = 1.0,
        estimator: str = "gumbel_sigmoid",
    ) -> None:
        super().__init__()
        if not 1 <= k <= n:
            refuse("SparseRegressor", f"k must be in [1, {n}], the number of columns", str(k))
        check_estimator("SparseRegressor", estimator, k)
        self.arguments: dict[str, Any] = {"n": n, "k": k, "intercept": intercept}
        self.arguments |= {"tau": tau, "estimator": estimator}
        self.k, self.tau, self._centred = k, tau, intercept
        self._row = ESTIMATORS[estimator]
        self.needs_loss = self._row.needs_loss
        self.logits = nn.Parameter(torch.zeros(n))
        for name, value in {"mean": 0.0, "scale": 1.0, "coefficients": 0.0}.items():
            self.register_buffer(name, torch.full((n,), value, dtype=torch.float64))
        for name, value in {"target_mean": 0.0, "target_scale": 1.0, "intercept": 0.0}.items():
            self.register_buffer(name, torch.tensor(value, dtype=torch.float64))
        self.register_buffer("constant", torch.zeros(n, dtype=torch.bool))

    def get_extra_state(self) -> Tensor:
        """Return the temperature: inclusion probabilities need it."""
        return torch.tensor(self.tau, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Take the temperature that was saved."""
        self.tau = float(state)

    def fit(self, x: Tensor, y: Tensor) -> Moments:
        """Take means and scales from the examples x (m, n), y (m,), and return their moments.

        Columns that are constant are never drawn and never chosen.

        Raises:
            ValueError: fewer than k are not constant, or the target is constant.
        """
        self.constant = x.amin(0) == x.amax(0)
        if self.k > (left := int((~self.constant).sum())):
            must = f"k must be at most {left}, the number of columns that are not constant"
            refuse("SparseRegressor", must, str(self.k))
        if bool((y == y[0]).all()):
            refuse("SparseRegressor", "y must have different values", "one")
        if self._centred:
            self.mean = torch.stack([part.double().sum(0) for part in x.split(_AT_ONCE)]).sum(0)
            self.mean = self.mean / len(x)
            self.target_mean = y.double().mean()
        self.target_scale = (y.double() - self.target_mean).square().mean().sqrt()
        gram = x.new_zeros(x.shape[1], x.shape[1], dtype=torch.float64)
        target = x.new_zeros(x.shape[1], dtype=torch.float64)
        for part, of in zip(x.split(_AT_ONCE), y.split(_AT_ONCE), strict=True):
            centred = part.double() - self.mean
            gram += centred.T @ centred
            target += centred.T @ ((of.double() - self.target_mean) / self.target_scale)
        scale = (gram.diagonal() / len(x)).sqrt()
        self.scale = torch.where(self.constant, 1.0, scale)
        gram /= len(x) * self.scale[:, None] * self.scale
        return Moments(gram, target / (len(x) * self.scale), torch.ones_like(self.target_scale))

    def solved(self, moments: Moments, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Return the coefficients and the intercept of least squares on the chosen columns.

        The moments are those of `fit`.
        """
        scaled = least_squares(moments, chosen) * self.target_scale / self.scale[chosen]
        coefficients = torch.zeros_like(self.coefficients).index_put((chosen,), scaled)
        return coefficients, self.target_mean - self.mean @ coefficients

    def solve(self, moments: Moments) -> None:
        """Take those of the columns that are chosen now."""
        self.coefficients, self.intercept = self.solved(moments, self.chosen())

    def forward(self, x: Tensor) -> Tensor:
        """Return the predictions of the examples x (m, n), float64 (m,)."""
        return predicted(x, self.coefficients, self.intercept)

    def draw(
        self, m: int, *, seeds: Tensor | None = None, diagnostics: bool = True
    ) -> tuple[Tensor, Diagnostics | None]:
        """Return m hard masks (m, n), and how their probabilities were solved for, if they were.

        Args:
            m: how many.
            seeds: an int64 seed of all of them, of shape (); None: torch's own generator.
            diagnostics: whether those are wanted.
        """
        row = self._row
        options: dict[str, Any] = {"tau": self.tau, "num_samples": m, "seeds": seeds}
        if "hard" in row.options:  # of one that relaxes: there is no regression on half a column
            options["hard"] = True
        if row.with_diagnostics is None or not diagnostics:
            return row.function(self.scores(), self.k, **options), None
        return row.with_diagnostics(self.scores(), self.k, **options)

    def scores(self) -> Tensor:
        """Return the logits, -inf of what is constant."""
        return self.logits.masked_fill(self.constant, -torch.inf)

    def inclusion_probabilities(self) -> Tensor:
        """Return how likely each column is to be drawn; 0 of what is constant."""
        return inclusion_probabilities(self._row, self.scores(), self.k, self.tau)

    def chosen(self) -> Tensor:
        """Return the indices of the k largest logits, ascending: the likeliest subset."""
        with torch.no_grad():
            return self.scores().topk(self.k).indices.sort().values


def predicted(x: Tensor, coefficients: Tensor, intercept: Tensor) -> Tensor:
    """Return the predictions of the examples x (m, n) by a linear model, float64 (m,)."""
    used = coefficients.nonzero().squeeze(-1)
    return x[:, used].double() @ coefficients[used] + intercept
