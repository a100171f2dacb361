"""Data classes as JSON under the name of their kind: `{"feature_selection": {...}}`.

As in a `oneof` of protobuf. What is None is left out; tuples come back as tuples.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

T = TypeVar("T")


class Unknown(ValueError):
    """A text that holds none of the kinds.

    Attributes:
        field: what was wrong in it.
        must: what it must be.
        got: what it was.
    """

    def __init__(self, field: str, must: str, got: str) -> None:
        super().__init__(f"{field}: {must}; got {got}")
        self.field, self.must, self.got = field, must, got


def to_json(value: Any) -> str:
    """Return the one text of a value: equal ones have equal texts."""
    given = {name: part for name, part in asdict(value).items() if part is not None}
    return json.dumps({value.kind: given}, sort_keys=True, separators=(",", ":"))


def from_json(who: str, text: str, kinds: Mapping[str, type[T]]) -> T:
    """Return the value in `text`, of one of `kinds`.

    Raises:
        Unknown: it is none of them.
    """
    try:
        ((kind, values),) = json.loads(text).items()
    except (ValueError, AttributeError):
        raise Unknown(who, "must be a JSON object of one kind", f"{text[:80]!r}") from None
    if kind not in kinds:
        raise Unknown(who, f"kind must be one of {', '.join(kinds)}", repr(kind))
    if not isinstance(values, dict):
        raise Unknown(f"{who}.{kind}", "must be a JSON object", type(values).__name__)
    return make(kind, kinds[kind], values)


def make(kind: str, cls: type[T], values: Mapping[str, Any]) -> T:
    """Return a `cls` with these fields.

    Raises:
        Unknown: it has others, or needs more.
    """
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    if unknown := sorted(set(values) - set(names)):
        raise Unknown(kind, f"fields must be of {', '.join(names)}", ", ".join(unknown))
    try:
        return cls(**{name: frozen(value) for name, value in values.items()})
    except TypeError:
        given = ", ".join(values) or "none"
        raise Unknown(kind, "must have every field without a default", given) from None


def frozen(value: Any) -> Any:
    """Tuples for lists, all the way down."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value
