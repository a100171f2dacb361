"""Scores as the closed-form relaxations take them, and their results as they give them."""

import torch
from torch import Tensor

from khot._solve import scale


def scaled(x: Tensor, tau: Tensor, *, centred: bool) -> tuple[Tensor, Tensor]:
    """x / tau in tau's dtype, and which units are unmasked; the others get 0, and no gradient.

    Centred, the row's greatest score is taken from all, and passes no gradient: for maps
    that are invariant to shifts, which then lose no digits at an offset.
    """
    unmasked = x > -torch.inf
    s = torch.where(unmasked, x, 0.0).to(tau.dtype)
    if centred:
        most = x.detach().to(tau.dtype).amax(-1, keepdim=True)
        s = torch.where(unmasked, s - torch.where(most > -torch.inf, most, 0.0), 0.0)
    return scale(s, tau), unmasked


def softmax(s: Tensor, unmasked: Tensor) -> Tensor:
    """softmax over the unmasked units, 0 elsewhere; of none of them, zeros."""
    # the least finite number, not -inf: a row that is all masked must not give NaN
    least = torch.finfo(s.dtype).min
    return torch.softmax(s.masked_fill(~unmasked, least), -1).masked_fill(~unmasked, 0.0)


def rounded(p: Tensor, x: Tensor) -> Tensor:
    """p in x's dtype, half types through float32, so that they are its rounding."""
    return (p.float() if x.dtype.itemsize < 4 else p).to(x.dtype)
