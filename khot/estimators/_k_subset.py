r"""What the estimators of the k-subset law share: theta = logits / tau, k, and exact draws."""

import torch
from torch import Tensor

from khot import _checks, _ksubset
from khot._solve import scale
from khot.estimators._common import Rows


def whole_k(rows: Rows) -> Tensor:
    """k as a column in the work dtype, (R, 1) or (1, 1), without a gradient."""
    return rows.whole_k().to(_checks.work_dtype(rows.logits))


def theta(rows: Rows) -> Tensor:
    """logits / tau, (R, n), with the gradient of both; -inf stays, and has none."""
    if isinstance(rows.tau, float) and rows.tau == 1:
        return rows.logits
    tau = torch.as_tensor(rows.tau, dtype=_checks.work_dtype(rows.logits))
    free = rows.logits > -torch.inf
    scaled = scale(torch.where(free, rows.logits, 0.0), tau.to(rows.logits.device).reshape(-1, 1))
    return torch.where(free, scaled, -torch.inf)


def drawn(theta: Tensor, k: Tensor, rows: Rows) -> Tensor:
    """Exact draws (S, R, n), for one theta (R, n) or one for each sample, (S, R, n)."""
    seeds, samples = rows.source.seeds, rows.source.samples
    if theta.ndim == 2:
        return _ksubset.draw(theta, k, seeds=seeds, samples=samples)
    each = [_ksubset.draw(one, k, seeds=seeds, first=s) for s, one in enumerate(theta)]
    return torch.cat(each) if each else torch.zeros_like(theta)
