r"""The operators as `torch.nn` modules, and a k that is learned.

A module keeps the settings and calls the function of the same name in snake case, whose
docstring is the documentation: `SigmoidTopk(5, tau=0.5)(x)` is
`khot.sigmoid_topk(x, 5, tau=0.5)`. k, and a temperature, may each be

- a number, kept as it is;
- a tensor, kept as a buffer: saved with the module, moved with it;
- an `nn.Parameter`, or a module such as `LearnableK` that returns k when called: trained
  with the rest.

What can be seen without scores is refused at construction, in the function's own words.
"""

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from khot import _checks
from khot._learnable_k import LearnableK
from khot._rows import count_units, flattened, unflattened
from khot.registry import Operator, operator

Argument = float | Tensor | nn.Module

__all__ = [
    "LearnableK",
    "PiSt",
    "RenormSigmoidTopk",
    "SequentialSoftmaxTopk",
    "SigmoidTopk",
    "SoftTopk",
    "SoftmaxTopk",
    "SortedSoftTopk",
    "SparseTopk",
]


class _Layer(nn.Module):
    """An operator with all its arguments but the scores."""

    _row: ClassVar[Operator]

    def __init_subclass__(cls, *, of: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        if of:
            cls._row = operator(of)

    def __init__(self, k: Argument, dim: int, **settings: Any) -> None:
        super().__init__()
        self._refuse(k, dim, settings)
        self.dim = dim
        self._settings = tuple(settings)
        for name, value in {"k": k, **settings}.items():
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def _refuse(self, k: object, dim: object, settings: dict[str, Any]) -> None:
        """Refuse what the function would refuse of any scores."""
        who = self._row.name
        if isinstance(dim, bool) or not isinstance(dim, int):
            _checks.refuse(who, "dim must be an integer", _type(dim), TypeError)
        whole = not getattr(self._row, "fractional_k", True)
        if isinstance(k, (int, float)) and not isinstance(k, bool):
            if not 0 <= k < math.inf:
                _checks.refuse(who, "k must be at least 0, and finite", str(k))
            if whole and k != int(k):
                _checks.refuse(who, "k must be one whole number", str(k))
        elif whole:
            _checks.refuse(who, "k must be one whole number", _type(k), TypeError)
        elif not isinstance(k, (Tensor, nn.Module)):
            _checks.refuse(who, "k must be a number, a tensor or a module", _type(k), TypeError)
        # the rest the function says itself, of one unit; others are seen when they are used
        known = {n: v for n, v in settings.items() if not isinstance(v, (Tensor, nn.Module))}
        self._row.function(torch.zeros(1, device="cpu"), 1, **known, **self._seeded())

    def _seeded(self) -> dict[str, Tensor]:
        """What keeps a trial call from torch's own random numbers."""
        return {}

    def _arguments(self) -> tuple[float | Tensor, dict[str, Any]]:
        """k and the keywords, with the learned ones computed."""
        k, *settings = (_value(getattr(self, name)) for name in ("k", *self._settings))
        return k, {"dim": self.dim, **dict(zip(self._settings, settings, strict=True))}

    def extra_repr(self) -> str:
        """Show the settings; a module among them is shown as a child."""
        return ", ".join(self._shown())

    def _shown(self) -> Iterator[str]:
        for name in ("k", *self._settings, "dim"):
            value = getattr(self, name)
            if isinstance(value, Tensor):
                yield f"{name}=tensor of shape {tuple(value.shape)}"
            elif not isinstance(value, nn.Module):
                yield f"{name}={value!r}"


def _value(setting: Any) -> Any:
    return setting() if isinstance(setting, nn.Module) else setting


def _type(value: object) -> str:
    return type(value).__name__


class _Relaxation(_Layer):
    def forward(self, x: Tensor) -> Tensor:
        """Return the function of x."""
        k, settings = self._arguments()
        return self._row.function(x, k, **settings)


class _Estimator(_Layer):
    def _seeded(self) -> dict[str, Tensor]:
        return {"seeds": torch.zeros((), dtype=torch.int64, device="cpu")}

    def forward(
        self,
        logits: Tensor,
        *,
        generator: torch.Generator | None = None,
        seeds: Tensor | None = None,
    ) -> Tensor:
        """Return a draw in training, the hard top-k in evaluation."""
        k, settings = self._arguments()
        if self.training:
            return self._row.function(logits, k, **settings, generator=generator, seeds=seeds)
        return _hard_topk(self._row.name, logits, k, self.dim)


def _hard_topk(who: str, logits: Tensor, k: float | Tensor, dim: int) -> Tensor:
    """The k largest (to the nearest whole k; of equal ones the first), without a gradient."""
    logits = _checks.check_scores(who, logits, dim, name="logits").detach()
    rows, k, tau = flattened(who, logits, k, 1.0, dim)
    count_units(who, rows, k, tau)
    order = rows.argsort(dim=-1, descending=True, stable=True)
    taken = torch.arange(rows.shape[-1], device=rows.device) < k.detach().round()
    z = torch.zeros_like(rows).scatter(-1, order, taken.to(rows.dtype).expand_as(rows))
    return unflattened(z, logits, dim)


class SigmoidTopk(_Relaxation, of="sigmoid_topk"):
    """`khot.sigmoid_topk` as a module."""

    def __init__(self, k: Argument, *, tau: Argument = 1.0, dim: int = -1) -> None:
        super().__init__(k, dim, tau=tau)


class SoftTopk(_Relaxation, of="soft_topk"):
    """`khot.soft_topk` as a module."""

    def __init__(
        self, k: Argument, *, epsilon: Argument = 1.0, method: str = "exact", dim: int = -1
    ) -> None:
        super().__init__(k, dim, epsilon=epsilon, method=method)


class SortedSoftTopk(_Relaxation, of="sorted_soft_topk"):
    """`khot.sorted_soft_topk` as a module."""

    def __init__(self, k: int, *, epsilon: Argument = 1.0, dim: int = -1) -> None:
        super().__init__(k, dim, epsilon=epsilon)


class SparseTopk(_Relaxation, of="sparse_topk"):
    """`khot.sparse_topk` as a module."""

    def __init__(self, k: Argument, *, tau: Argument = 1.0, p: float = 2.0, dim: int = -1) -> None:
        super().__init__(k, dim, tau=tau, p=p)


class RenormSigmoidTopk(_Relaxation, of="renorm_sigmoid_topk"):
    """`khot.renorm_sigmoid_topk` as a module."""

    def __init__(self, k: Argument, *, tau: Argument = 1.0, dim: int = -1) -> None:
        super().__init__(k, dim, tau=tau)


class SequentialSoftmaxTopk(_Relaxation, of="sequential_softmax_topk"):
    """`khot.sequential_softmax_topk` as a module."""

    def __init__(self, k: int, *, tau: Argument = 1.0, dim: int = -1) -> None:
        super().__init__(k, dim, tau=tau)


class SoftmaxTopk(_Relaxation, of="softmax_topk"):
    """`khot.softmax_topk` as a module."""

    def __init__(self, k: Argument, *, tau: Argument = 1.0, dim: int = -1) -> None:
        super().__init__(k, dim, tau=tau)


class PiSt(_Estimator, of="pi_st"):
    """`khot.pi_st` as a module: draws in training, in evaluation the k largest logits.

    In evaluation there is no gradient and no randomness; `generator` and `seeds` have no
    effect there.
    """

    def __init__(self, k: Argument, *, tau: Argument = 1.0, dim: int = -1) -> None:
        super().__init__(k, dim, tau=tau)
