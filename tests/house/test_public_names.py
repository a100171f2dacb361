"""`__all__` is true: it names all that is public, and nothing that is not there."""

import importlib

import pytest

PACKAGES = [
    "khot",
    "khot.estimators",
    "khot.models",
    "khot.relaxations",
    "khot.sampling",
    "khot.training",
    "khot_client",
    "khot_proto",
]


@pytest.mark.parametrize("name", PACKAGES)
def test_all_names_what_is_public(name):
    package = importlib.import_module(name)
    assert package.__all__, "and now all of it is loaded"
    public = {
        member
        for member, value in vars(package).items()
        if not member.startswith("_")
        # submodules appear once imported; those meant for users are reached by their own path
        and getattr(value, "__name__", "").rpartition(".")[0] != name
        and not isinstance(value, type(importlib))
    }
    assert sorted(package.__all__) == sorted(public | {"__version__"} & set(vars(package)))
    assert sorted(package.__all__) == package.__all__, "kept sorted"


@pytest.mark.parametrize("name", PACKAGES)
def test_public_names_have_docstrings(name):
    package = importlib.import_module(name)
    for member in package.__all__:
        value = getattr(package, member)
        assert isinstance(value, str) or value.__doc__, member
