"""constraints.txt pins every package that an install may bring in."""

import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    split = (line.partition("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, _, version in split}


def closure(requirements: list[str]) -> set[str]:
    """The names of all that these requirements bring in, on this machine."""
    names: set[str] = set()
    seen: set[tuple[str, str]] = set()
    todo = [(Requirement(text), "") for text in requirements]
    while todo:
        requirement, extra = todo.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        names.add(name)
        for wanted in ("", *requirement.extras):
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                needs = distribution(name).requires or []
                todo += [(Requirement(text), wanted) for text in needs]
    return names


def test_every_dependency_is_pinned():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    needed = closure(["khot[dev]", *build]) - {"khot"}
    assert needed - pins().keys() == set()
    assert {"torch", "numpy", "hatchling"} <= needed


def test_pins_are_what_is_installed():
    for name, version in pins().items():
        try:
            installed = Version(distribution(name).version)
        except PackageNotFoundError:
            continue
        assert installed.public == version, name


def test_no_pin_is_left_over():
    assert pins().keys() - closure(["khot[dev]"]) == set()


def test_torch_is_pinned_to_the_tested_version():
    assert pins()["torch"] == "2.13.0"
