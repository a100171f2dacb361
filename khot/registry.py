"""One table of all operators and what is promised of each.

A new operator is one row here. The conformance tests walk the table and check
every promise, so a row cannot skip them; the table in `khot/README.md` is this
one (`python -m khot.registry` prints it), and the server answers `ListOperators`
from it.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from khot._checks import refuse
from khot.relaxations import sigmoid_topk


@dataclass(frozen=True, kw_only=True)
class Relaxation:
    """A deterministic soft top-k, called `function(x, k, *, ..., dim=-1)`.

    Attributes:
        name: the name of the function, of its file, tests and benchmark.
        function: the map itself.
        reference: where it is defined.
        capped: entries lie in [0, 1] and sum to k, at every k and tau.
        order_preserving: x_i >= x_j implies p_i >= p_j.
        shift_invariant: adding a constant to x changes nothing.
        fractional_k: k need not be whole.
        differentiable_in: the arguments with an exact gradient.
        native: has a C kernel for CPU tensors.
        cost: of forward and backward, in n and k.
        lacks: what a user of it should know it does not have; may be empty.
    """

    name: str
    function: Callable[..., Tensor]
    reference: str
    capped: bool
    order_preserving: bool
    shift_invariant: bool
    fractional_k: bool
    differentiable_in: tuple[str, ...]
    native: bool
    cost: str
    lacks: str = ""

    def __post_init__(self) -> None:
        who = f"registry row {self.name!r}"
        if self.name != self.function.__name__:
            refuse(who, "name must be the function's name", self.function.__name__)
        parameters = inspect.signature(self.function).parameters
        kinds = {p.name: p.kind for p in parameters.values()}
        if list(kinds)[:2] != ["x", "k"] or kinds.get("dim") != inspect.Parameter.KEYWORD_ONLY:
            refuse(who, "signature must be (x, k, *, ..., dim)", str(list(kinds)))
        if unknown := set(self.differentiable_in) - set(kinds):
            refuse(who, "differentiable_in must name arguments", str(sorted(unknown)))
        documented = self.function.__doc__ or ""
        for section in ("Args:", "Returns:", "Raises:", "Gradient:", "Example:", "References:"):
            if section not in documented:
                refuse(who, f"docstring must have the section {section}", "one without it")
        if not self.reference:
            refuse(who, "reference must say where the map is defined", "nothing")

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").strip().splitlines()[0]


_ROWS = (
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
)


def _table(rows: tuple[Relaxation, ...]) -> Mapping[str, Relaxation]:
    table: dict[str, Relaxation] = {}
    for row in rows:
        if row.name in table:
            refuse("registry", "names must differ", f"{row.name!r} twice")
        table[row.name] = row
    return MappingProxyType(table)


_OPERATORS = _table(_ROWS)


def operators() -> tuple[Relaxation, ...]:
    """Return the rows of the registry, in their order."""
    return tuple(_OPERATORS.values())


def operator(name: str) -> Relaxation:
    """Return the row of this name.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    if name not in _OPERATORS:
        refuse("operator", f"name must be one of {', '.join(_OPERATORS)}", repr(name))
    return _OPERATORS[name]


def markdown() -> str:
    """Return the table of `khot/README.md`."""
    head = "| operator | in the capped simplex | keeps order | shift-invariant | fractional k"
    lines = [f"{head} | exact gradient in | C kernel | cost | reference |", "|---" * 9 + "|"]
    for row in operators():
        flags = (row.capped, row.order_preserving, row.shift_invariant, row.fractional_k)
        cells = (
            f"`{row.name}`",
            *("yes" if flag else "no" for flag in flags),
            ", ".join(row.differentiable_in),
            "yes" if row.native else "no",
            row.cost,
            row.reference,
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())
