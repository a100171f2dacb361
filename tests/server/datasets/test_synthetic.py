"""The synthetic table: ten columns decide, and looking at one at a time misleads."""

import numpy as np
import pytest

from khot_server.datasets import synthetic


@pytest.fixture(scope="module")
def made():
    return synthetic.make()


def test_it_is_as_large_as_told_and_every_class_as_frequent(made):
    x, y, informative = made
    assert x.shape == (2000, 500) and len(informative) == 10
    assert np.bincount(y).min() >= 480 and set(y.tolist()) == {0, 1, 2, 3}
    assert synthetic.informative() == tuple(f"x{i}" for i in informative)


def test_one_column_at_a_time_finds_few_of_them(made):
    from sklearn.feature_selection import SelectKBest, f_classif

    x, y, informative = made
    chosen = SelectKBest(f_classif, k=10).fit(x, y).get_support(indices=True)
    assert len({*chosen} & {*informative}) <= 6


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_ten_decide_and_each_is_needed(made):
    """A network on the ten is good; without any one of them it is worse."""
    from sklearn.neural_network import MLPClassifier

    x, y, informative = made

    def accuracy(columns) -> float:
        network = MLPClassifier((32,), max_iter=30, random_state=0, learning_rate_init=0.01)
        network.fit(x[:1500][:, columns], y[:1500])
        return network.score(x[1500:][:, columns], y[1500:])

    ten = list(informative)
    whole = accuracy(ten)
    assert whole > 0.85
    for left_out in ten:
        assert accuracy([column for column in ten if column != left_out]) < whole - 0.05
