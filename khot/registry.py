"""One table of all operators and what is promised of each.

A new operator is one row here, of one of three kinds: a relaxation (soft k-hot), a
design (hard k-hot draws) or an estimator (draws with a gradient). The conformance
tests walk the table and check every promise, so a row cannot skip them; the tables
in `khot/README.md` are this one (`python -m khot.registry` prints them), and the
server answers `ListOperators` from it.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import ClassVar

from torch import Tensor

from khot._checks import refuse
from khot.estimators.pi_st import pi_st
from khot.relaxations.sigmoid_topk import sigmoid_topk
from khot.sampling.tournament_pivotal import tournament_pivotal

SECTIONS = ("Args:", "Returns:", "Raises:", "Gradient:", "Example:", "References:")


@dataclass(frozen=True, kw_only=True)
class Operator:
    """What the rows of all kinds have in common.

    Attributes:
        name: the name of the function, of its file, tests and benchmark.
        function: the operator itself.
        reference: where it is defined.
        cost: of all that it does, in n and k.
        native: has a C kernel for CPU tensors.
        lacks: what a user of it should know it does not have; may be empty.
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
    native: bool
    lacks: str = ""

    def __post_init__(self) -> None:
        who = f"registry row {self.name!r}"
        if self.name != self.function.__name__:
            refuse(who, "name must be the function's name", self.function.__name__)
        kinds = {p.name: p.kind for p in inspect.signature(self.function).parameters.values()}
        keyword = {name for name, kind in kinds.items() if kind == inspect.Parameter.KEYWORD_ONLY}
        named = tuple(name for name in kinds if name not in keyword)
        if named != self.positional or not keyword.issuperset(self.keywords):
            wanted = ", ".join((*self.positional, "*", "...", *self.keywords))
            refuse(who, f"signature must be ({wanted})", str(list(kinds)))
        if unknown := set(getattr(self, "differentiable_in", ())) - set(kinds):
            refuse(who, "differentiable_in must name arguments", str(sorted(unknown)))
        for section in SECTIONS:
            if section not in (self.function.__doc__ or ""):
                refuse(who, f"docstring must have the section {section}", "one without it")
        if not self.reference:
            refuse(who, "reference must say where the operator is defined", "nothing")

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").strip().splitlines()[0]


@dataclass(frozen=True, kw_only=True)
class Relaxation(Operator):
    """A deterministic soft top-k, called `function(x, k, *, ..., dim=-1)`.

    Attributes:
        capped: entries lie in [0, 1] and sum to k, at every k and tau.
        order_preserving: x_i >= x_j implies p_i >= p_j.
        shift_invariant: adding a constant to x changes nothing.
        fractional_k: k need not be whole.
        differentiable_in: the arguments with an exact gradient.
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
        }
    )

    capped: bool
    order_preserving: bool
    shift_invariant: bool
    fractional_k: bool
    differentiable_in: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Design(Operator):
    """A hard k-hot draw, called `function(pi, *, ..., dim=-1, generator=None, seeds=None)`.

    Attributes:
        exact: the inclusion probabilities are pi.
        fixed_size: every draw has the same number of ones.
        whole_k: refuses a pi whose sum is not whole.
    """

    kind = "design"
    folder = "sampling"
    positional = ("pi",)
    keywords = ("dim", "generator", "seeds")
    headings = MappingProxyType(
        {
            "exact": "inclusion probabilities are pi",
            "fixed_size": "fixed size",
            "whole_k": "needs a whole k",
        }
    )

    exact: bool
    fixed_size: bool
    whole_k: bool


@dataclass(frozen=True, kw_only=True)
class Estimator(Operator):
    """A draw with a gradient, `function(logits, k, *, ..., dim=-1, generator=None, seeds=None)`.

    Attributes:
        law: the design that draws.
        hard: the value is k-hot, of zeros and ones.
        unbiased_of: what the expected gradient is.
        order: of the approximation of the true gradient.
        needs_loss: needs the value of the loss, not only its gradient at the draw.
        differentiable_in: the arguments that get a gradient.
    """

    kind = "estimator"
    folder = "estimators"
    positional = ("logits", "k")
    keywords = ("dim", "generator", "seeds")
    headings = MappingProxyType(
        {
            "law": "draws by",
            "hard": "hard",
            "unbiased_of": "unbiased of",
            "order": "order",
            "needs_loss": "needs the loss",
            "differentiable_in": "gradient in",
        }
    )

    law: str
    hard: bool
    unbiased_of: str
    order: int
    needs_loss: bool
    differentiable_in: tuple[str, ...]


_NO_TRANSFORMS = "torch.func.vmap and torch.compile(fullgraph=True)"

_ROWS: tuple[Operator, ...] = (
    Relaxation(
        name="sigmoid_topk",
        function=sigmoid_topk,
        reference="Differentiable Top-k, Equation 9",
        capped=True,
        order_preserving=True,
        shift_invariant=True,
        fractional_k=True,
        differentiable_in=("x", "k", "tau"),
        native=True,
        cost="O(n)",
    ),
    Design(
        name="tournament_pivotal",
        function=tournament_pivotal,
        reference="Deville and Tillé (1998)",
        exact=True,
        fixed_size=True,
        whole_k=True,
        native=False,
        cost="O(n log n)",
        lacks=_NO_TRANSFORMS,
    ),
    Estimator(
        name="pi_st",
        function=pi_st,
        reference="Differentiable Top-k, Algorithm 1",
        law="tournament_pivotal",
        hard=True,
        unbiased_of="the first-order approximation",
        order=1,
        needs_loss=False,
        differentiable_in=("logits", "k", "tau"),
        native=False,
        cost="O(n log n)",
        lacks=_NO_TRANSFORMS,
    ),
)


def _table(rows: tuple[Operator, ...]) -> Mapping[str, Operator]:
    table: dict[str, Operator] = {}
    for row in rows:
        if row.name in table:
            refuse("registry", "names must differ", f"{row.name!r} twice")
        table[row.name] = row
    designs = [row.name for row in rows if isinstance(row, Design)]
    for row in rows:
        if isinstance(row, Estimator) and row.law not in designs:
            who = f"registry row {row.name!r}"
            refuse(who, f"law must be one of {', '.join(designs)}", repr(row.law))
    return MappingProxyType(table)


_OPERATORS = _table(_ROWS)
_KINDS = (Relaxation, Design, Estimator)


def operators(kind: str | None = None) -> tuple[Operator, ...]:
    """Return the rows of the registry in their order: all, or those of one kind.

    Raises:
        ValueError: kind is none of relaxation, design and estimator.
    """
    kinds = [row_type.kind for row_type in _KINDS]
    if kind is not None and kind not in kinds:
        refuse("operators", f"kind must be one of {', '.join(kinds)}", repr(kind))
    return tuple(row for row in _OPERATORS.values() if kind in (None, row.kind))


def operator(name: str) -> Operator:
    """Return the row of this name.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    if name not in _OPERATORS:
        refuse("operator", f"name must be one of {', '.join(_OPERATORS)}", repr(name))
    return _OPERATORS[name]


def properties(row: Operator) -> dict[str, str]:
    """Return what the row promises as text, by the name of the promise."""
    common = {field.name for field in fields(Operator)} - {"native", "cost", "lacks"}
    promised = {f.name: getattr(row, f.name) for f in fields(row) if f.name not in common}
    return {name: _text(value, "true", "false") for name, value in promised.items()}


def _text(value: object, yes: str, no: str) -> str:
    if isinstance(value, bool):
        return yes if value else no
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def markdown() -> str:
    """Return the tables of `khot/README.md`, one for each kind."""
    return "\n\n".join(_markdown(row_type) for row_type in _KINDS)


def _markdown(row_type: type[Operator]) -> str:
    shown = {**row_type.headings, "native": "C kernel", "cost": "cost", "reference": "reference"}
    lines = [(row_type.kind, *shown.values()), ("---",) * (len(shown) + 1)]
    for row in operators(row_type.kind):
        cells = (_text(getattr(row, name), "yes", "no") for name in shown)
        lines.append((f"`{row.name}`", *cells))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines).replace(" --- ", "---")


if __name__ == "__main__":
    print(markdown())
