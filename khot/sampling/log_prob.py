r"""log P(z) of a design, where its law is one that can be computed.

Of the designs only conditional Poisson sampling has such a law, the k-subset law

    P(z) = exp(<theta, z>) / Z,    z in {0, 1}^n with k ones.

Others have inclusion probabilities that are simpler than their law: `pivotal`, say, is a sum
over all orders of the units. They are refused, and so is `topk`, whose z is certain.

**A k that is not whole** is drawn with a phantom unit (`_draw.py`), which is left out of z, but
not lost: of the n + 1 units floor(k) + 1 are drawn, so it was if z has floor(k) ones, and was not
if z has one more. P(z) is that of z with it. If k is whole, the phantom unit is one at
probability 1, which changes nothing; so all rows have it here.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from khot import _checks, _ksubset_fit
from khot._rows import as_rows, name_arguments
from khot._sigmoid import _solve
from khot.distributions import KSubset
from khot.sampling import _draw

_WHO = name_arguments("log_prob", scores="logits")


def log_prob(
    design: str | Callable[..., Tensor],
    z: Tensor,
    pi: Tensor,
    k: float | Tensor | None = None,
    *,
    dim: int = -1,
    **options: object,
) -> Tensor:
    r"""Return log P(z), the probability that `design(pi, k, **options)` draws z.

    Args:
        design: a design with a tractable law, or its name: `conditional_poisson`.
        z: zeros and k ones along `dim`, as the design returns them; floor(k) or floor(k) + 1 ones
            if k is not whole. Of pi's shape, which it must broadcast with, and there may
            be more dimensions before, such as that of num_samples.
        pi: as in the design.
        k: as in the design.
        dim: the dimension that holds the n units, in pi.
        options: those of the design that change its law: `fitted`.

    Returns:
        Tensor of the broadcast shape without `dim`, of pi's dtype; -inf where z is never drawn.

    Raises:
        TypeError: an argument is of the wrong type or dtype, or the law has no such option.
        ValueError: the design's law is not tractable, there is no such design, a shape does not
            fit, a value is out of range, z does not have k ones, or a row cannot be fitted.

    Gradient:
        Exact in pi or logits, none in z and k. Units of pi at exactly 0 or 1 have none. Fitted,
        in pi, it is that of pi brought to its whole sum by a factor of all odds, which
        for a pi from any relaxation that sums to k is the one; and there is no second.

    Example:
        >>> import torch, khot
        >>> pi = torch.tensor([0.9, 0.6, 0.5, 0.0, 1.0])
        >>> z = torch.tensor([1.0, 1.0, 0.0, 0.0, 1.0])
        >>> khot.log_prob("conditional_poisson", z, pi).exp()
        tensor(0.5000)
        >>> khot.log_prob("conditional_poisson", z.roll(1), pi).exp()
        tensor(0.)

    References:
        Chen, Dempster and Liu (1994), Weighted finite population sampling to maximize
        entropy; SIMPLE, Proposition 1.
    """
    fitted = _checked(design, options)
    pi = _checks.check_scores(_WHO, pi, dim, name="pi" if k is None else "logits")
    rows, shape = as_rows(pi, dim)
    theta, left, certain, most = _law(rows, shape, k, fitted=fitted)
    z = _checked_z(z, pi, dim)
    lacking = most.reshape(*shape, 1) - z.sum(-1, keepdim=True)
    # whole rows have the phantom unit always
    phantom = certain[:, -1:].reshape(*shape, 1)
    good = ((z == 0) | (z == 1)).all(-1) & ((lacking == 1) | (lacking == 0) & ~phantom).squeeze(-1)
    if not bool(good.all()):
        must = "z must have zeros and exactly k ones, or floor(k) + 1 if k is not whole"
        got = f"another in {int((~good).sum())} of {good.numel()} rows"
        _checks.refuse(_WHO, must, got)
    z, certain = torch.cat((z, lacking), -1), certain.reshape(*shape, -1)
    law = KSubset(theta.reshape(certain.shape), left.reshape(shape), validate_args=False)
    found = law.log_prob(z.masked_fill(certain, 0.0))
    return torch.where((certain & (z == 0)).any(-1), -torch.inf, found).to(pi.dtype)


def _law(
    rows: Tensor, shape: torch.Size, k: float | Tensor | None, *, fitted: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The law of the n + 1 units.

    theta (R, n + 1), -inf for the units at 0 and at 1; k (R, 1) without the latter; which they
    are; and k with them.
    """
    x = rows.to(_checks.work_dtype(rows))
    if k is None:
        p, total = _in_range(x), _draw.row_sum(x)
        size, whole = _draw._whole(total, rows.dtype)
    else:
        p, total = _draw.probabilities(_WHO, rows, k, shape)
        size, whole = _draw._whole(total, None)
    floor = torch.where(whole, size, total.detach().floor())
    phantom, most = torch.where(whole, 1.0, 1 - (total - floor)), floor + 1
    if fitted or k is None:
        p = torch.cat((p.to(x.dtype), phantom), -1)
        law = _ksubset_fit.inverse(_WHO, p, most, _draw.row_sum) if fitted else None
        return *(law or _ksubset_fit.free(p, most)), p.detach() == 1, most
    # logits are logit(pi) but for a shift, and say more of units that are nearly certain
    c = _solve(x, total, torch.ones_like(total[:1]), _WHO, "halley")[1]
    last = torch.where(whole, -torch.inf, torch.logit(phantom) - c)
    certain = torch.cat((torch.zeros_like(x, dtype=torch.bool), whole), -1)
    return torch.cat((x, last), -1), most - whole.to(x.dtype), certain, most


def _checked(design: object, options: dict[str, object]) -> bool:
    """Whether the law is fitted; all but those with a law are refused."""
    from khot import registry  # which knows all designs, and so this module

    rows = {
        row.name: row
        for row in registry.operators("design")
        if isinstance(row, registry.Design) and row.tractable
    }
    name = getattr(design, "__name__", design)
    row = rows.get(name) if isinstance(name, str) else None
    if row is None or design not in (row.name, row.function):
        must = f"design must be one with a tractable law ({', '.join(rows)})"
        _checks.refuse(_WHO, must, repr(name) if isinstance(name, str) else type(design).__name__)
    if unknown := sorted(set(options) - {"fitted"}):
        must = f"options must be those of the law of {row.name} (fitted)"
        _checks.refuse(_WHO, must, ", ".join(unknown), TypeError)
    return _checks.check_flag(_WHO, "fitted", options.get("fitted", True))


def _checked_z(z: object, pi: Tensor, dim: int) -> Tensor:
    """z in the work dtype with its units last, in the shape that it and pi broadcast to."""
    if not isinstance(z, Tensor):
        _checks.refuse(_WHO, "z must be a torch.Tensor", type(z).__name__, TypeError)
    at = dim % pi.ndim - pi.ndim  # from the end, where both have the same dimensions
    try:
        wanted = torch.broadcast_shapes(z.shape, pi.shape)
        fits = z.shape[at] == pi.shape[at]
    except (RuntimeError, IndexError):
        fits = False
    if not fits:
        must = f"z must broadcast with pi, shape {tuple(pi.shape)}, and have its units"
        _checks.refuse(_WHO, must, f"shape {tuple(z.shape)}")
    return z.detach().to(_checks.work_dtype(pi)).expand(wanted).movedim(at, -1)


def _in_range(p: Tensor) -> Tensor:
    bad = ~((p >= 0) & (p <= 1)).all(-1)
    if bool(bad.any()):
        got = f"another value in {int(bad.sum())} of {len(p)} rows"
        _checks.refuse(_WHO, "pi must be in [0, 1]", got)
    return p
