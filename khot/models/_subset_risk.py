r"""What a subset costs in sparse regression, and what each column is worth to it.

For a target y and columns Phi (m, n), both standardised, a k-hot z with the columns S costs what
ridge regression on them leaves,

.. math:: f(z) = \min_w \frac1m \|y - \Phi_S w\|^2 + \rho \|w\|^2
          = \frac{y^\top y}{m} - b_S^\top w_S, \qquad w_S = A^{-1} b_S, \quad A = G_{SS} + \rho I,

with G = Phi^T Phi / m and b = Phi^T y / m, which is all that is needed of the data. A small rho
keeps A invertible whatever S is; for rho -> 0 it is least squares.

**The gradient** is that of the multilinear extension of f, f of independent Bernoulli z with means
z: in z_i, the difference that column i makes,

.. math:: \Delta_i f = f(z | z_i = 1) - f(z | z_i = 0) =
    \begin{cases} -w_i^2 / (A^{-1})_{ii} & i \in S \\
                  -g_i^2 / (\rho + h_i)  & i \notin S, \end{cases}

both by the inverse of a block matrix, with the correlations g = b - G_{:S} w_S of the columns with
the residual, and what the chosen ones leave of column i, h_i = G_ii - G_iS A^{-1} G_Si. An
estimator that is straight-through takes f for linear between 0 and 1, and this is the slope of that
line. The convex extension of f to the cube, min_w |y - Phi w|^2 / m + rho sum_i w_i^2 / z_i
(Pilanci et al., 2015; Bertsimas and Van Parys, 2020), has slopes that no line has: its derivative
is -g_i^2 / rho of a column that is not chosen, too large by (rho + h_i) / rho, and -rho w_i^2 of
one that is, too small by as much. By those, columns that are worth anything push out all that are
chosen; where columns matter only together, as in the equation of Kuramoto and Sivashinsky, `simple`
and `pi_st` do not find them, at any rho.

A mask costs O(n k^2 + k^3).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Moments(NamedTuple):
    """What least squares needs of standardised columns and target, float64.

    Attributes:
        gram: G = Phi^T Phi / m, (n, n).
        target: b = Phi^T y / m, (n,).
        square: y^T y / m, ().
    """

    gram: Tensor
    target: Tensor
    square: Tensor


def subset_risk(z: Tensor, moments: Moments, ridge: float) -> Tensor:
    """Return f of the k-hot masks z (s, n), all of one k, float64 (s,).

    Gradient:
        In z, the differences that columns make.
    """
    risks: Tensor = _SubsetRisk.apply(z, moments, ridge)  # type: ignore[no-untyped-call]
    return risks


def least_squares(moments: Moments, chosen: Tensor) -> Tensor:
    """Return the w (k,) of least squares on the chosen columns, the shortest if there are many."""
    gram = moments.gram[chosen[:, None], chosen]
    w: Tensor = torch.linalg.pinv(gram, hermitian=True) @ moments.target[chosen]
    return w


def orthogonal_matching_pursuit(moments: Moments, k: int, excluded: Tensor) -> Tensor:
    """Return k columns, ascending, each the most correlated with what those before it leave.

    Args:
        moments: of the data.
        k: how many, of those that are not excluded at most.
        excluded: bool (n,).
    """
    chosen = torch.empty(0, dtype=torch.int64, device=moments.target.device)
    residual = moments.target
    for _ in range(k):
        worth = residual.abs().masked_fill(excluded, -1.0).index_fill(0, chosen, -1.0)
        chosen = torch.cat((chosen, worth.argmax()[None]))
        residual = moments.target - moments.gram[:, chosen] @ least_squares(moments, chosen)
    return chosen.sort().values


class _SubsetRisk(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, moments: Moments, ridge: float) -> Tensor:
        gram, target, square = moments
        chosen = z.topk(int(z[0].sum()), sorted=False).indices
        a = gram[chosen[:, :, None], chosen[:, None, :]]
        a.diagonal(dim1=-2, dim2=-1).add_(ridge)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(a))
        w = (inverse @ target[chosen].unsqueeze(-1)).squeeze(-1)
        if ctx.needs_input_grad[0]:
            rows = gram[chosen]  # (s, k, n)
            left = gram.diagonal() - (rows * (inverse @ rows)).sum(-2)
            residual = target - (w.unsqueeze(-2) @ rows).squeeze(-2)
            # what is left of a column is never negative, but for rounding
            worth = residual.square() / (ridge + left.clamp(min=0.0))
            own = w.square() / inverse.diagonal(dim1=-2, dim2=-1)
            ctx.save_for_backward(worth.scatter(-1, chosen, own))
            ctx.dtype = z.dtype
        return square - (target[chosen] * w).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (worth,) = ctx.saved_tensors
        return (-g.unsqueeze(-1) * worth).to(ctx.dtype), None, None
