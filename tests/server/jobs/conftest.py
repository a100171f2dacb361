"""What the tests of jobs share: a store, a clock that stands still, and specs."""

import pytest

from khot_server.jobs.spec import FeatureSelectionResult, FeatureSelectionSpec
from khot_server.jobs.store import JobStore


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path, clock):
    made = JobStore(tmp_path / "jobs.sqlite3", clock=clock, max_lost_attempts=3)
    yield made
    made.close()


@pytest.fixture
def spec():
    return FeatureSelectionSpec("digits", 10)


@pytest.fixture
def result():
    return FeatureSelectionResult((1, 2), (0.5, -1.5, 0.1), 0.25, 0.9, (8, 8))
