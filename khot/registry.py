"""One table of all operators and what is promised of each.

The rows are in `_catalogue.py`, of one of three kinds (`_operators.py`): a relaxation (soft
k-hot), a design (hard k-hot draws) or an estimator (draws with a gradient). The conformance
tests walk the table; the tables in `khot/README.md` are this one (`python -m khot.registry`
prints them), and the server answers `ListOperators` from it.
"""

from collections.abc import Mapping
from types import MappingProxyType

from khot._catalogue import ROWS
from khot._checks import refuse
from khot._operators import Design, Estimator, Operator, Relaxation
from khot._rows import name_arguments

__all__ = [
    "Design",
    "Estimator",
    "Operator",
    "Relaxation",
    "markdown",
    "operator",
    "operators",
    "properties",
]


def _table(rows: tuple[Operator, ...]) -> Mapping[str, Operator]:
    table: dict[str, Operator] = {}
    for row in rows:
        if row.name in table:
            refuse("registry", "names must differ", f"{row.name!r} twice")
        table[row.name] = row
        if not isinstance(row, Relaxation):
            name_arguments(row.name, scores="logits")
    designs = [row.name for row in rows if isinstance(row, Design)]
    for row in rows:
        if isinstance(row, Estimator) and row.law not in designs:
            who = f"registry row {row.name!r}"
            refuse(who, f"law must be one of {', '.join(designs)}", repr(row.law))
    return MappingProxyType(table)


_OPERATORS = _table(ROWS)
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
    names = ("cost", "kernels", "lacks", *row.headings)
    return {name: _text(getattr(row, name), "true", "false") for name in names}


def _text(value: object, yes: str, no: str) -> str:
    if isinstance(value, bool):
        return yes if value else no
    if value is None:
        return ""
    if isinstance(value, Mapping):
        value = tuple(f"{name}={default!r}" for name, default in value.items())
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def markdown() -> str:
    """Return the tables of `khot/README.md`, one for each kind."""
    return "\n\n".join(_markdown(row_type) for row_type in _KINDS)


def _markdown(row_type: type[Operator]) -> str:
    shown = {**row_type.headings, "options": "options", "kernels": "C kernels"}
    shown |= {"cost": "cost", "reference": "reference"}
    lines = [(row_type.kind, *shown.values()), ("---",) * (len(shown) + 1)]
    for row in operators(row_type.kind):
        cells = (_text(getattr(row, name), "yes", "no") or "-" for name in shown)
        lines.append((f"`{row.name}`", *cells))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines).replace(" --- ", "---")


if __name__ == "__main__":
    print(markdown())
