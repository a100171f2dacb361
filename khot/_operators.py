"""What a row of the registry says: three kinds of operators and their promises.

A row checks itself when it is made: its name, its signature, the sections of its docstring.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import ClassVar

from torch import Tensor

from khot._checks import refuse
from khot._solve import Diagnostics

Option = bool | int | float | str

SECTIONS = ("Args:", "Returns:", "Raises:", "Gradient:", "Example:", "References:")


@dataclass(frozen=True, kw_only=True)
class Operator:
    """What the rows of all kinds have in common.

    Attributes:
        name: the name of the function, of its file, tests and benchmark.
        function: the operator itself.
        reference: where it is defined.
        cost: of all that it does, in n and k.
        kernels: those in C that do its work on CPU tensors; none if torch operations do.
        lacks: what a user of it should know it does not have; may be empty.
        tau_keyword: what it calls its temperature, if it has one.
        with_diagnostics: the function that also says how each row was solved, if there is one.
    """

    kind: ClassVar[str]
    folder: ClassVar[str]  # of khot/
    positional: ClassVar[tuple[str, ...]]
    keywords: ClassVar[tuple[str, ...]]
    headings: ClassVar[Mapping[str, str]]  # of the promises, in the page's table

    name: str
    function: Callable[..., Tensor]
    reference: str
    cost: str
    kernels: tuple[str, ...] = ()
    lacks: str = ""
    tau_keyword: str = "tau"
    with_diagnostics: Callable[..., tuple[Tensor, Diagnostics]] | None = None

    def __post_init__(self) -> None:
        who = f"registry row {self.name!r}"
        if self.name != self.function.__name__:
            refuse(who, "name must be the function's name", self.function.__name__)
        kinds = {name: parameter.kind for name, parameter in self.parameters.items()}
        keyword = {name for name, kind in kinds.items() if kind == inspect.Parameter.KEYWORD_ONLY}
        named = tuple(name for name in kinds if name not in keyword)
        if named != self.positional or not keyword.issuperset(self.keywords):
            wanted = ", ".join((*self.positional, "*", "...", *self.keywords))
            refuse(who, f"signature must be ({wanted})", str(list(kinds)))
        if unknown := set(getattr(self, "differentiable_in", ())) - set(kinds):
            refuse(who, "differentiable_in must name arguments", str(sorted(unknown)))
        own: Mapping[str, object] = self.options
        for name, default in own.items():
            if not isinstance(default, Option):
                must = f"option {name} must have a bool, int, float or str as its default"
                refuse(who, must, "none" if default is inspect.Parameter.empty else repr(default))
        for section in SECTIONS:
            if section not in (self.function.__doc__ or ""):
                refuse(who, f"docstring must have the section {section}", "one without it")
        if not self.reference:
            refuse(who, "reference must say where the operator is defined", "nothing")
        if self.with_diagnostics is not None:
            takes, got = _arguments(self.function), _arguments(self.with_diagnostics)
            if got != takes:
                refuse(who, f"with_diagnostics must take {takes}, as the function does", str(got))

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """Those of the function, by name."""
        return inspect.signature(self.function).parameters

    @cached_property
    def options(self) -> Mapping[str, Option]:
        """The keywords that are the operator's own, and their defaults.

        Not the temperature, nor what its whole kind takes (`keywords`).
        """
        others = {*self.positional, *self.keywords, self.tau_keyword}
        own = {name: p.default for name, p in self.parameters.items() if name not in others}
        return MappingProxyType(own)

    @cached_property
    def one_k(self) -> bool:
        """Whether one whole k serves all rows: the function takes an int, and no tensor."""
        return self.parameters["k"].annotation is int

    @cached_property
    def needs_k(self) -> bool:
        """Whether k has no default."""
        return self.parameters["k"].default is inspect.Parameter.empty

    @property
    def native(self) -> bool:
        """Whether kernels do its work on CPU tensors."""
        return bool(self.kernels)

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").strip().splitlines()[0]


def _arguments(function: Callable[..., object]) -> inspect.Signature:
    """What the function takes: its signature without what it returns."""
    return inspect.signature(function).replace(return_annotation=inspect.Signature.empty)


@dataclass(frozen=True, kw_only=True)
class Relaxation(Operator):
    """A deterministic soft top-k, called `function(x, k, *, ..., dim=-1)`.

    Attributes:
        capped: entries lie in [0, 1] and sum to k, at every k and tau.
        order_preserving: x_i >= x_j implies p_i >= p_j.
        shift_invariant: adding a constant to x changes nothing.
        fractional_k: k may be any number, and differ by row; if not, one whole number
            serves all rows.
        differentiable_in: the arguments with an exact gradient.
        smooth: its gradient is continuous.
        sparse: entries reach 0 and 1, and have no gradient there.
        ranked: has a column for each rank, shape (..., n, k); their sum over the last
            dimension is the soft k-hot that the other promises are about.
    """

    kind = "relaxation"
    folder = "relaxations"
    positional = ("x", "k")
    keywords = ("dim",)
    headings = MappingProxyType(
        {
            "capped": "in the capped simplex",
            "order_preserving": "keeps order",
            "shift_invariant": "shift-invariant",
            "fractional_k": "fractional k",
            "differentiable_in": "exact gradient in",
            "smooth": "smooth",
            "sparse": "sparse",
            "ranked": "a column for each rank",
            "tau_keyword": "temperature",
        }
    )

    capped: bool
    order_preserving: bool
    shift_invariant: bool
    fractional_k: bool
    differentiable_in: tuple[str, ...]
    smooth: bool = True
    sparse: bool = False
    ranked: bool = False

    @property
    def soft(self) -> Callable[..., Tensor]:
        """The function as a soft k-hot of x's shape, whether it ranks or not."""
        if not self.ranked:
            return self.function
        return lambda x, k, **options: self.function(x, k, **options).sum(-1)


@dataclass(frozen=True, kw_only=True)
class Design(Operator):
    """A hard k-hot draw, `function(pi, *, num_samples=None, ..., generator=None, seeds=None)`.

    Or of logits: `function(logits, k, *, ...)`, with pi = sigmoid_topk(logits, k).

    Attributes:
        exact: the inclusion probabilities are pi.
        fixed_size: every draw has k ones; floor(k) or floor(k) + 1 if k is not whole.
        high_entropy: its entropy is near the greatest that pi allows.
        tractable: the probability of a draw can be computed (`khot.KSubset.log_prob`).
        random: two draws may differ.
        whole_k: refuses a k that is not whole.
    """

    kind = "design"
    folder = "sampling"
    positional = ("pi", "k")
    keywords = ("num_samples", "dim", "generator", "seeds")
    headings = MappingProxyType(
        {
            "exact": "inclusion probabilities are pi",
            "fixed_size": "fixed size",
            "high_entropy": "high entropy",
            "tractable": "log p(z)",
            "random": "random",
            "whole_k": "needs a whole k",
        }
    )

    exact: bool
    fixed_size: bool
    high_entropy: bool
    tractable: bool = False
    random: bool = True
    whole_k: bool = False


@dataclass(frozen=True, kw_only=True)
class Estimator(Operator):
    """A draw with a gradient, `function(logits, k, *, num_samples=None, ..., seeds=None)`.

    Attributes:
        law: the design that draws, with probabilities of the estimator's own.
        hard: the value is of zeros and ones; if not, it is relaxed. One with the option
            `hard=` can be both, and this is its default.
        unbiased_of: what the expected gradient is, with the defaults; empty if it is biased.
        order: of the approximation of the gradient of E[loss(z)] whose mean it has; None if
            it has that of none.
        needs_loss: needs the value of the loss, not only its gradient at the draw.
        differentiable_in: the arguments that get a gradient.
        fixed_size: every draw has k ones.
        whole_k: refuses a k that is not whole; if not, and hard, a draw has floor(k) or one
            more. With `hard=True` all do.
        only_k: the one k that it takes; None if it takes others.
    """

    kind = "estimator"
    folder = "estimators"
    positional = ("logits", "k")
    keywords = ("num_samples", "dim", "generator", "seeds")
    headings = MappingProxyType(
        {
            "law": "draws by",
            "hard": "hard",
            "unbiased_of": "unbiased of",
            "order": "order",
            "needs_loss": "needs the loss",
            "differentiable_in": "gradient in",
            "fixed_size": "k ones always",
            "whole_k": "needs a whole k",
            "only_k": "only for k =",
        }
    )

    law: str
    hard: bool
    unbiased_of: str
    order: int | None
    needs_loss: bool
    differentiable_in: tuple[str, ...]
    fixed_size: bool = True
    whole_k: bool = True
    only_k: int | None = None
