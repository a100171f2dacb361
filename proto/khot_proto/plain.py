"""Specs of jobs as plain values by the names of their fields, for both ends of the wire.

Enumerations are names without their prefix in small letters (`impute` for
MISSING_VALUES_IMPUTE), Layers are tuples of widths, and what is absent has no value.
"""

import re
from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message


def to_plain(message: Message) -> dict[str, Any]:
    """Return the values of the fields that a spec has.

    A value of an enumeration that this version does not know is its number, as text.
    """
    read = {field.name: _read(message, field) for field in message.DESCRIPTOR.fields}
    return {name: value for name, value in read.items() if value is not None}


def from_plain(message: Message, values: Mapping[str, Any]) -> None:
    """Write the values that are not None into a spec.

    Raises:
        TypeError: one is of another type than its field.
        ValueError: one is out of the field's range, or no name of its enumeration.
    """
    for name, value in values.items():
        if value is not None:
            _write(message, message.DESCRIPTOR.fields_by_name[name], value)


def _read(message: Message, field: FieldDescriptor) -> Any:
    value = getattr(message, field.name)
    if _is_repeated(field):
        return tuple(value) or None
    if field.has_presence and not message.HasField(field.name):
        return None
    if field.message_type is not None:
        return tuple(value.widths)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        name = known.name.removeprefix(_prefix(field)).lower() if known else str(value)
        return name if value else None
    return value


def _write(message: Message, field: FieldDescriptor, value: Any) -> None:
    if _is_repeated(field):
        getattr(message, field.name).extend(value)
    elif field.message_type is not None:
        part = getattr(message, field.name)
        part.SetInParent()  # none at all is not the same as absent
        part.widths.extend(value)
    elif field.enum_type is not None:
        setattr(message, field.name, _number(field, value))
    else:
        setattr(message, field.name, value)


def _number(field: FieldDescriptor, value: object) -> int:
    prefix = _prefix(field)
    known = {name.removeprefix(prefix).lower(): name for name in field.enum_type.values_by_name}
    known.pop("unspecified")
    if value not in known:
        raise ValueError(f"{field.name} must be one of {', '.join(known)}; got {value!r}")
    return int(field.enum_type.values_by_name[known[str(value)]].number)


def _is_repeated(field: FieldDescriptor) -> bool:
    # The one way that every runtime we allow knows, and none says is old.
    return isinstance(field.default_value, list)


def _prefix(field: FieldDescriptor) -> str:
    """`MISSING_VALUES_` of MissingValues."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", field.enum_type.name).upper() + "_"
