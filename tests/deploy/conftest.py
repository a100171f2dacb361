"""Makes what `deploy` is generated from importable, and the compose stack a fixture."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "deploy"))


@pytest.fixture(scope="session")
def engine(tmp_path_factory) -> Iterator:
    """A container engine, with the images built in it."""
    import engine as engines

    try:
        with engines.running_engine(tmp_path_factory.mktemp("engine")) as engine:
            yield engine
    except engines.NoEngine as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def stack(engine, request) -> Iterator:
    """The stack, healthy, and of this file alone."""
    from compose import Stack
    from engine import HealthRounds

    stack = Stack(engine, f"khot-{request.path.stem.replace('_', '-')}")
    stack("build", "--quiet")
    with HealthRounds(engine, stack.project):
        try:
            stack.up()
            yield stack
        finally:
            stack.end()
