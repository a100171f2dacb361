"""What of a specification is for the library's configuration."""

from dataclasses import fields
from typing import Any

from khot_server.jobs.spec import Spec


def given(spec: Spec, config: type[Any]) -> dict[str, Any]:
    """Return the fields that both have and the spec does not leave to the library.

    A patience of 0, in a spec, is the library's None: never.
    """
    known = {field.name for field in fields(config)} & {field.name for field in fields(spec)}
    values = {name: getattr(spec, name) for name in known}
    chosen = {name: value for name, value in values.items() if value is not None}
    if chosen.get("patience") == 0:
        chosen["patience"] = None
    return chosen
