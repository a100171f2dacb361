"""What the methods of an experiment are run with: `settings.toml`, read and written."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

from khot_client.errors import BadSettings
from khot_client.specs import FeatureSelection, Spec

PATH = Path(__file__).with_name("settings.toml")
PARTS = ("common", "methods", "datasets", "quick", "search")


@dataclass(frozen=True)
class Settings:
    """The part of the file that is about one experiment.

    Attributes:
        table: it, as TOML has it.
    """

    table: Mapping[str, Any]

    def of(
        self, method: str, dataset: str, *, quick: bool = False, kind: type[Spec] = FeatureSelection
    ) -> dict[str, Any]:
        """The fields of a spec for one method on one data set.

        Raises:
            BadSettings: one is no field of it.
        """
        found = {**self.table.get("common", {}), **self.table.get("methods", {}).get(method, {})}
        found |= self.table.get("datasets", {}).get(dataset, {}).get(method, {})
        if quick:
            found |= self.table.get("quick", {})
        return _checked(found, kind)

    def searched(self, method: str, kind: type[Spec] = FeatureSelection) -> list[dict[str, Any]]:
        """What to try of a method in place of its own settings, one dict a run.

        Raises:
            BadSettings: there is nothing to try, or no field of a spec.
        """
        search = dict(self.table.get("search", {}))
        everyone, own = search.pop("grid", {}), search.pop("methods", {}).get(method, {})
        grid = {name: values for name, values in (everyone | own).items() if values}
        if not grid:
            raise BadSettings(f"{PATH}: search.grid must have a value to try; got none")
        return [
            _checked(search | dict(zip(grid, values, strict=True)), kind)
            for values in product(*grid.values())
        ]

    @property
    def grid(self) -> tuple[str, ...]:
        """The names of what is searched, of all methods or of some."""
        search = self.table.get("search", {})
        grids = (search.get("grid", {}), *search.get("methods", {}).values())
        return tuple(dict.fromkeys(name for grid in grids for name in grid))

    @property
    def own_grids(self) -> Mapping[str, tuple[str, ...]]:
        """What is searched of some methods alone, by their names."""
        methods = self.table.get("search", {}).get("methods", {})
        return {method: tuple(grid) for method, grid in methods.items()}


def load(experiment: str, path: Path = PATH) -> Settings:
    """The settings of an experiment.

    Raises:
        BadSettings: the file is not what it must be.
    """
    try:
        table = tomllib.loads(path.read_text()).get(experiment, {})
    except (OSError, ValueError) as error:
        raise BadSettings(f"{path}: must be a TOML file; got {error}") from None
    if unknown := set(table) - {*PARTS}:
        must = f"{experiment} must have parts among {', '.join(PARTS)}"
        raise BadSettings(f"{path}: {must}; got {min(unknown)!r}")
    return Settings(table)


def block(experiment: str, dataset: str, method: str, values: Mapping[str, object]) -> str:
    """The lines of the file that say what one method is run with on one data set."""
    lines = [f"{name} = {_toml(value)}" for name, value in values.items()]
    return "\n".join([f"[{experiment}.datasets.{dataset}.{method}]", *lines])


def write(text: str, blocks: list[str]) -> str:
    """The text of a file with these blocks: each in the place of what it had before."""
    for new in blocks:
        head = new.partition("\n")[0]
        # up to the next head, or to the end; other keys that the block had are kept
        found = re.search(rf"^{re.escape(head)}\n(.*?)(?=^\[|\Z)", text, re.DOTALL | re.MULTILINE)
        if found is None:
            text = f"{text.rstrip()}\n\n{new}\n"
            continue
        names = set(re.findall(r"^(\w+) =", new, re.MULTILINE))
        kept = [line for line in found[1].splitlines() if line.split(" =")[0] not in names]
        body = "\n".join([new, *(line for line in kept if line)])
        text = f"{text[: found.start()]}{body}\n\n{text[found.end() :]}".rstrip() + "\n"
    return text


def _checked(found: Mapping[str, Any], kind: type[Spec]) -> dict[str, Any]:
    known = {field.name for field in fields(kind)}
    if unknown := set(found) - known:
        must = f"keys must be fields of {kind.__name__}"
        raise BadSettings(f"{PATH}: {must}; got {min(unknown)!r}")
    return {name: tuple(v) if isinstance(v, list) else v for name, v in found.items()}


def _toml(value: object) -> str:
    return f"{value!r}" if isinstance(value, float | int) else f'"{value}"'
