"""How a job is to be run and how often, and its spec: from options, or from a TOML file.

kind = "feature-selection"      # or "vae" or "sparse-regression"; then any field of its spec
dataset = "digits"              # or a path, which begins at this file: it is uploaded first
k = 10
hidden = [256, 128]

[options]
labels = { for = "paper" }
priority = 5
max_run_time = "10m"            # or a number of seconds

[group]                         # a job for each combination
seeds = "0-4"                   # or a list
grid = { k = [5, 10], tau = [0.5, 1.0] }
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from khot_client.cli.options import nearest
from khot_client.errors import BadSettings
from khot_client.job_messages import KINDS as SPECS
from khot_client.specs import FeatureSelection, Spec

KINDS = {kind.replace("_", "-"): cls for kind, cls in SPECS.items()}
# What the keys of a file must be, beside those of a spec, which the client checks.
_OPTIONS: dict[str, tuple[Any, str]] = {
    "labels": (dict, "a table"),
    "priority": (int, "a whole number"),
    "max_run_time": (str | int | float, "a time"),
}
_GROUP: dict[str, tuple[Any, str]] = {
    "seeds": (str | list, "words such as 0-4, or a list"),
    "grid": (dict, "a table"),
}
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DATA = (".csv", ".npz", ".parquet")
DEFAULT_K = 10
MAX_SEEDS = 10_000  # a slip of the hand is no reason to run out of memory


@dataclass(frozen=True)
class Wishes:
    """What is asked for beside the spec.

    Attributes:
        seeds: a job for each.
        grid: values to try by field of the spec.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    max_run_s: float | None = None
    seeds: Sequence[int] = ()
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def options(self) -> dict[str, Any]:
        """What each of the jobs has."""
        return {"labels": self.labels, "priority": self.priority, "max_run_s": self.max_run_s}

    def spread(self) -> dict[str, Any]:
        """What makes it several jobs; empty for one."""
        several = {"seeds": list(self.seeds), "grid": dict(self.grid)}
        return several if any(several.values()) else {}


def read(path: Path) -> tuple[Spec, Wishes]:
    """The spec and the wishes of a file.

    Raises:
        BadSettings: it is not what it must be.
    """
    try:
        content = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise BadSettings(f"{path}: must be a TOML file; got {error.strerror}") from None
    except ValueError as error:
        raise BadSettings(f"{path}: must be a TOML file; got {error}") from None
    options, group = _table(path, content, "options"), _table(path, content, "group")
    kind = str(content.pop("kind", "none")).replace("_", "-")
    if kind not in KINDS:
        raise nearest(f"{path}: kind", kind, KINDS)
    cls = KINDS[kind]
    of_spec = {f.name: (object, "anything") for f in fields(cls)} | {"dataset": (str, "text")}
    _known(f"{path}: keys", content, of_spec)
    _known(f"{path}: keys of [options]", options, _OPTIONS)
    _known(f"{path}: keys of [group]", group, _GROUP)
    labels, grid, seeds = options.get("labels", {}), group.get("grid", {}), group.get("seeds", [])
    _known(f"{path}: labels", labels, dict.fromkeys(labels, (str, "text")))
    _known(f"{path}: fields of grid", grid, dict.fromkeys(grid, (list, "a list")))
    wishes = Wishes(
        labels=labels,
        priority=options.get("priority", 0),
        max_run_s=duration(str(options["max_run_time"])) if "max_run_time" in options else None,
        seeds=numbers(seeds) if isinstance(seeds, str) else seeds,
        grid=grid,
    )
    lists = {name: tuple(value) for name, value in content.items() if isinstance(value, list)}
    spec = cls(**content | lists)
    if (table := as_path(spec.dataset)) is not None:
        spec = _replaced(spec, dataset=str(path.parent / table.expanduser()))
    return with_k(spec, wishes), wishes


def _table(path: Path, content: dict[str, Any], name: str) -> dict[str, Any]:
    table = content.pop(name, {})
    if not isinstance(table, dict):
        raise BadSettings(f"{path}: {name} must be a table; got {table!r}")
    return table


def _known(who: str, table: Mapping[str, Any], kinds: Mapping[str, tuple[Any, str]]) -> None:
    for key, value in table.items():
        if key not in kinds:
            raise nearest(who, key, kinds)
        kind, words = kinds[key]
        if not isinstance(value, kind):
            raise BadSettings(f"{who}: {key} must be {words}; got {value!r}")


def with_k(spec: Spec, wishes: Wishes) -> Spec:
    """The spec with the usual k, unless anything says how many columns to choose."""
    if not isinstance(spec, FeatureSelection) or {"k", "penalty"} & wishes.grid.keys():
        return spec
    return _replaced(spec, k=DEFAULT_K) if spec.k is None and spec.penalty is None else spec


def _replaced(spec: Spec, **values: Any) -> Spec:
    return type(spec)(**vars(spec) | values)


def as_path(dataset: str) -> Path | None:
    """The table of this machine that is meant, if none of the server is."""
    return Path(dataset) if "/" in dataset or dataset.endswith(_DATA) else None


def duration(text: str) -> float:
    """Seconds, from words like 90, 10m or 1.5h.

    Raises:
        BadSettings: it has another form.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text)
    if not found:
        raise BadSettings(f"max-run-time: must be a time such as 90s, 10m or 1.5h; got {text!r}")
    return float(found[1]) * _UNITS[found[2]]


def numbers(text: str) -> list[int]:
    """Whole numbers, from words like 0-4 or 1,2,7.

    Raises:
        BadSettings: it has another form.
    """
    found: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if not ends:
            raise BadSettings(f"seeds: must be whole numbers such as 0-4 or 1,2,7; got {text!r}")
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if not first <= last < first + MAX_SEEDS:
            must = f"must go up, by less than {MAX_SEEDS}"
            raise BadSettings(f"seeds: {must}; got {part.strip()!r}")
        found += range(first, last + 1)
    return found


def values(text: str) -> list[Any]:
    """Values of a grid, from words like 5,10 or pi_st,simple: numbers where they are, else text."""
    return [_value(part.strip()) for part in text.split(",")]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
