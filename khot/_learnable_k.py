"""A k that gradient descent cannot throw out of its bounds."""

import math

import torch
from torch import Tensor, nn

from khot._checks import FLOAT_DTYPES, refuse


class LearnableK(nn.Module):
    r"""A k that is learned and stays between its bounds: low + (high - low) sigmoid(theta).

    Called without arguments, it returns k, strictly between `low` and `high` whatever
    theta is: where the sum rounds to a bound, k is the float next to it.

    Args:
        initial: what k is before training, strictly between the bounds.
        low: bound below, at least 0.
        high: bound above.
        shape: of k; () for one that serves all rows.
        device: of theta.
        dtype: of theta and k.

    Raises:
        TypeError: a bound or the initial value is not a number, or dtype has no fractions.
        ValueError: one is not finite, low is negative, or low < initial < high does not
            hold as dtype rounds it.

    Gradient:
        dk/dtheta = (k - low)(high - k) / (high - low). It is 0 where the sigmoid rounds to
        0 or 1: a step that threw theta beyond that is not undone by later ones.

    Example:
        >>> import torch
        >>> from khot.modules import LearnableK, SigmoidTopk
        >>> layer = SigmoidTopk(LearnableK(1.5, low=1, high=2))
        >>> layer(torch.zeros(3)).detach()
        tensor([0.5000, 0.5000, 0.5000])
        >>> [name for name, _ in layer.named_parameters()]
        ['k.theta']
    """

    def __init__(
        self,
        initial: float,
        *,
        low: float,
        high: float,
        shape: tuple[int, ...] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, value in {"initial": initial, "low": low, "high": high}.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                refuse("LearnableK", f"{name} must be a number", type(value).__name__, TypeError)
            if not math.isfinite(value):
                refuse("LearnableK", f"{name} must be finite", str(value))
        if low < 0:
            refuse("LearnableK", "low must be at least 0", str(low))
        dtype = dtype or torch.get_default_dtype()
        if dtype not in FLOAT_DTYPES:
            refuse("LearnableK", "dtype must be a floating point one", str(dtype), TypeError)
        rounded = torch.tensor([low, initial, high], dtype=dtype, device="cpu")
        if not low < initial < high or not bool((rounded.diff() > 0).all()):
            must = f"initial must be strictly between low = {low} and high = {high}"
            refuse("LearnableK", must, str(initial))
        self.low, self.high = float(low), float(high)
        theta = math.log(initial - low) - math.log(high - initial)
        self.theta = nn.Parameter(torch.full(shape, theta, device=device, dtype=dtype))

    def forward(self) -> Tensor:
        """Return k."""
        low, high = (torch.full_like(self.theta, bound) for bound in (self.low, self.high))
        k = low + (high - low) * torch.sigmoid(self.theta)
        return k.clamp(torch.nextafter(low, high), torch.nextafter(high, low))

    def extra_repr(self) -> str:
        """Show the bounds, and the shape if there is more than one k."""
        shape = f", shape={tuple(self.theta.shape)}" if self.theta.ndim else ""
        return f"low={self.low:g}, high={self.high:g}{shape}"
