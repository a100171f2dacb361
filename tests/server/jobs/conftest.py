"""What the tests of jobs share: a store, a clock that stands still, and specs."""

import pytest

from khot_server.jobs.results import FeatureSelectionResult
from khot_server.jobs.spec import FeatureSelectionSpec
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
    made = JobStore(tmp_path / "jobs.sqlite3", clock=clock, max_lost_attempts=3, backoff_s=0.0)
    yield made
    made.close()


@pytest.fixture
def spec():
    return FeatureSelectionSpec(dataset="digits", k=10)


@pytest.fixture
def result():
    return FeatureSelectionResult(
        features=(1, 2),
        names=("b", "c"),
        scores=(0.5, -1.5, 0.1),
        inclusion_probabilities=(0.9, 0.9, 0.2),
        feature_shape=(1, 3),
        test={"loss": 0.25, "accuracy": 0.9},
        validation={"loss": 0.5, "accuracy": 0.8},
        references={"all": {"loss": 0.125, "accuracy": 1.0}},
        stability=1.0,
        epochs_run=3,
        classes=("no", "yes"),
    )
