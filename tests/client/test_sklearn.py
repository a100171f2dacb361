"""KHotSelector is an estimator of scikit-learn's kind, and the same one here and on a server."""

import pickle
import subprocess
import sys
from contextlib import suppress
from unittest import SkipTest

import numpy as np
import pandas as pd
import polars as pl
import pyarrow
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine, make_classification, make_regression
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from khot_client import BadSettings, InvalidRequest
from khot_client.sklearn import KHotSelector

# on a busy machine the threads of so small a training wait for each other
pytestmark = pytest.mark.usefixtures("one_thread")
SHORT = {"epochs": 3, "hidden": (16,), "random_state": 0}


@pytest.fixture(scope="module")
def table():
    """Of 12 columns, the first 3 tell the class."""
    return make_classification(
        300, 12, n_informative=3, n_redundant=0, shuffle=False, class_sep=2.0, random_state=0
    )


# few epochs: the checks are of how it behaves, and fit it 75 times
@parametrize_with_checks([KHotSelector(epochs=5)])
def test_is_an_estimator(estimator, check):
    with suppress(SkipTest):  # of array API, which is a setting of the whole process
        check(estimator)


def test_chooses_the_columns_that_tell(table):
    selector = KHotSelector(n_features_to_select=3, epochs=40, random_state=0).fit(*table)
    assert selector.get_support(indices=True).tolist() == [0, 1, 2]
    assert selector.transform(table[0]).shape == (300, 3)
    assert selector.scores_[:3].min() > selector.scores_[3:].max()
    assert selector.inclusion_probabilities_.sum() == pytest.approx(3, abs=1e-4)
    assert selector.n_features_ == 3 and selector.classes_.tolist() == [0, 1]


def test_chooses_the_columns_of_a_regression():
    x, y, weights = make_regression(300, 10, n_informative=3, coef=True, random_state=0)
    selector = KHotSelector(n_features_to_select=3, epochs=40, random_state=0).fit(x, y)
    assert selector.get_support(indices=True).tolist() == np.flatnonzero(weights).tolist()
    assert not hasattr(selector, "classes_")


def test_what_is_a_class_is_told_by_y_or_by_the_objective(table):
    x, y = table
    assert KHotSelector(**SHORT).fit(x, np.where(y, "yes", "no")).classes_.tolist() == ["no", "yes"]
    numbers = KHotSelector(**SHORT, objective="regression").fit(x, y)
    assert not hasattr(numbers, "classes_")
    assert not hasattr(KHotSelector(**SHORT).fit(x, y).fit(x, y + 0.5), "classes_")


@pytest.mark.parametrize(
    ("wanted", "found"), [(None, 6), (1, 1), (12, 12), (0.25, 3), (0.01, 1), (np.int64(4), 4)]
)
def test_chooses_as_many_as_wanted(table, wanted, found):
    selector = KHotSelector(**SHORT, n_features_to_select=wanted).fit(*table)
    assert selector.n_features_ == selector.get_support().sum() == found


def test_learns_how_many_are_worth_their_penalty(table):
    def chosen(penalty):
        selector = KHotSelector(
            n_features_to_select="auto", penalty=penalty, epochs=40, random_state=0
        )
        return selector.fit(*table).n_features_

    assert chosen(1.0) == 1
    assert chosen(0.05) in (2, 3, 4)
    assert chosen(1e-6) > 4


def test_the_same_random_state_makes_the_same_choice(table):
    first, second = (KHotSelector(**SHORT).fit(*table) for _ in range(2))
    np.testing.assert_array_equal(first.scores_, second.scores_)
    drawn = KHotSelector(**SHORT | {"random_state": np.random.RandomState(0)})
    np.testing.assert_array_equal(first.scores_, drawn.fit(*table).scores_)
    assert (first.scores_ != KHotSelector(**SHORT | {"random_state": 1}).fit(*table).scores_).any()


def test_takes_arrays_as_they_lie_in_memory(table):
    x, y = table[0].astype(np.float32), table[1].astype(np.float32) + np.float32(0.5)
    backwards = np.asfortranarray(x[::-1])[::-1]
    for array in (backwards, y):
        array.flags.writeable = False  # as joblib shares them
    expected = KHotSelector(**SHORT).fit(x, y).get_support()
    np.testing.assert_array_equal(KHotSelector(**SHORT).fit(backwards, y).get_support(), expected)


def test_constant_columns_are_chosen_last():
    x, y = make_classification(60, 6, random_state=0)
    x[:, [0, 3]] = 7.0
    selector = KHotSelector(**SHORT, n_features_to_select=2).fit(x, y)
    assert not selector.get_support()[[0, 3]].any()
    assert np.isneginf(selector.scores_[[0, 3]]).all()
    # no choice is left, and there is one column more than those that vary
    selector = KHotSelector(**SHORT, n_features_to_select=5).fit(x, y)
    assert selector.get_support(indices=True).tolist() == [0, 1, 2, 4, 5]
    assert selector.inclusion_probabilities_.tolist() == [0, 1, 1, 0, 1, 1]


def test_works_in_a_pipeline_and_in_a_grid_search():
    x, y = load_wine(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), KHotSelector(**SHORT), LogisticRegression())
    grid = {
        "khotselector__n_features_to_select": np.arange(1, 6, 2),
        "khotselector__estimator": ["pi_st", "simple"],
        "khotselector__epochs": np.array([3]),
    }
    search = GridSearchCV(pipeline, grid, cv=2).fit(x, y)
    assert search.best_score_ > 0.7
    assert search.best_params_["khotselector__n_features_to_select"] == 5


def test_names_come_out(table):
    selector = KHotSelector(**SHORT, n_features_to_select=2).fit(*table)
    names = [f"column {i}" for i in range(12)]
    chosen = [names[i] for i in selector.get_support(indices=True)]
    assert selector.get_feature_names_out(names).tolist() == chosen


@pytest.fixture
def frame(table):
    """The table as pandas has it, with columns of several types."""
    x = pd.DataFrame(table[0], columns=[f"column {i}" for i in range(12)], index=range(7, 307))
    return x.assign(**{"column 10": x["column 10"] > 0, "column 11": pd.array(range(300), "Int64")})


@pytest.mark.parametrize(
    "convert",
    [pd.DataFrame, pl.from_pandas, pyarrow.Table.from_pandas],
    ids=["pandas", "polars", "pyarrow"],
)
def test_columns_of_a_table_keep_their_names(table, frame, convert):
    x = convert(frame.reset_index(drop=True))
    selector = KHotSelector(**SHORT, n_features_to_select=2).fit(x, table[1])
    assert selector.feature_names_in_.tolist() == frame.columns.tolist()
    chosen = frame.columns[selector.get_support()].tolist()
    assert selector.get_feature_names_out().tolist() == chosen


def test_a_frame_comes_out_where_it_is_wanted(table, frame):
    selector = KHotSelector(**SHORT, n_features_to_select=11).set_output(transform="pandas")
    out = selector.fit(frame, pd.Series(table[1], index=frame.index)).transform(frame)
    pd.testing.assert_frame_equal(out, frame[selector.get_feature_names_out()])
    assert selector.set_output(transform="polars").transform(frame).columns == list(out.columns)
    with pytest.raises(ValueError, match="Feature names unseen at fit time:\n- another"):
        selector.transform(frame.rename(columns={"column 3": "another"}))


def test_a_frame_goes_through_a_pipeline_and_a_grid_search(table, frame):
    steps = make_pipeline(StandardScaler(), KHotSelector(**SHORT)).set_output(transform="pandas")
    grid = {
        "khotselector__n_features_to_select": [2, 4],
        "khotselector__estimator": [None, "simple"],
    }
    model = make_pipeline(steps, LogisticRegression())
    search = GridSearchCV(model, {f"pipeline__{name}": tried for name, tried in grid.items()}, cv=2)
    best = search.fit(frame, pd.Series(np.where(table[1], "yes", "no"))).best_estimator_
    assert best.classes_.tolist() == ["no", "yes"]
    wanted = search.best_params_["pipeline__khotselector__n_features_to_select"]
    assert len(best[:-1].get_feature_names_out()) == wanted
    assert set(best[-1].feature_names_in_) <= set(frame.columns)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (pd.Series(["x", "y"] * 150, dtype="category"), ValueError, "Cannot cast str dtype to flo"),
        (pd.Series(["x", "y"] * 150, dtype=object), ValueError, "not convert string to float: 'x'"),
        (pd.Series([1, None] * 150, dtype="Int64"), ValueError, "Input X contains NaN"),
        (pd.Series(pd.date_range("2026", periods=300)), TypeError, "Cannot cast DatetimeArray"),
    ],
    ids=lambda value: str(getattr(value, "dtype", "")),
)
def test_columns_that_are_no_numbers_are_refused(table, frame, values, error, message):
    with pytest.raises(error, match=message):
        KHotSelector(**SHORT).fit(frame.reset_index(drop=True).assign(more=values), table[1])


def test_is_copied_and_pickled(table):
    selector = KHotSelector(**SHORT, n_features_to_select=2).fit(*table)
    again = pickle.loads(pickle.dumps(selector))
    np.testing.assert_array_equal(again.transform(table[0]), selector.transform(table[0]))
    with pytest.raises(NotFittedError, match="not fitted yet"):
        clone(selector).transform(table[0])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_features_to_select": 0}, r"must be a whole number in \[1, 12\], .*; got 0"),
        ({"n_features_to_select": 13}, "n_features_to_select must be .*; got 13"),
        ({"n_features_to_select": 1.0}, "n_features_to_select must be .*; got 1.0"),
        ({"n_features_to_select": True}, "n_features_to_select must be .*; got True"),
        ({"n_features_to_select": "best"}, "n_features_to_select must be .*; got 'best'"),
        ({"objective": "ranking"}, "objective must be .*; got 'ranking'"),
        ({"estimator": "magic"}, "estimator must be one of .*; got 'magic'"),
        ({"estimator": "simple", "n_features_to_select": "auto"}, "must be pi_st_implicit"),
        ({"epochs": 0}, "epochs must be an integer of at least 1; got 0"),
        ({"validation_fraction": 1}, r"validation_fraction must be a number in \(0, 1\); got 1"),
        ({"validation_fraction": 0.999}, "train must keep an example"),
        ({"tau": -1.0}, r"tau must be in \(0, 1e30\]; got -1.0"),
    ],
)
def test_refuses_what_it_cannot_use(table, parameters, message):
    with pytest.raises(ValueError, match=message):
        KHotSelector(**SHORT | parameters).fit(*table)


def test_refuses_data_it_cannot_use(table):
    x, y = table
    with pytest.raises(ValueError, match="y must have at least 2 classes; got 1 class"):
        KHotSelector(**SHORT).fit(x, np.zeros(len(x)))
    with pytest.raises(ValueError, match="a column that is not constant; got 12 constant ones"):
        KHotSelector(**SHORT).fit(np.ones_like(x), y)
    with pytest.raises(ValueError, match="a minimum of 3 is required"):
        KHotSelector(**SHORT).fit(x[:2], y[:2])


def test_importing_it_brings_no_torch_along_and_fitting_asks_for_it():
    code = (
        "import sys\n"
        "from khot_client.sklearn import KHotSelector\n"
        "print(*{'torch', 'khot'} & {*sys.modules})\n"
        "sys.modules['torch'] = None\n"
        "KHotSelector().fit([[1, 2], [2, 1], [3, 2]], [0, 1, 0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "\n"
    assert "ImportError: KHotSelector: without an address, torch must be there" in done.stderr
    assert "pip install 'khot[torch]'" in done.stderr


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_features_to_select": 3},
        {"n_features_to_select": "auto", "penalty": 0.02, "patience": 2},
        {"objective": "regression", "standardize": False, "estimator": "simple", "last_tau": None},
    ],
    ids=["classes", "auto", "numbers"],
)
def test_a_server_makes_the_same_choice(table, server, client, parameters):
    here = KHotSelector(**SHORT | parameters).fit(*table)
    there = KHotSelector(**SHORT | parameters, address=server).fit(*table)
    np.testing.assert_array_equal(there.get_support(), here.get_support())
    np.testing.assert_allclose(there.scores_, here.scores_, rtol=1e-3, atol=1e-4)
    assert left_over(client) == []


def test_tls_of_the_environment_counts_where_none_is_given(table, monkeypatch):
    monkeypatch.setenv("KHOT_TLS", "/no/such/file")
    with pytest.raises(BadSettings, match="tls must be True or the path of a PEM file"):
        KHotSelector(n_features_to_select=1, address="127.0.0.1:1").fit(*table)


def test_a_server_says_what_it_refuses_and_keeps_nothing(table, server, client):
    x, y = table
    with pytest.raises(InvalidRequest, match="must have at least 10 rows; got 8"):
        KHotSelector(**SHORT, address=server).fit(x[::40], y[::40])
    with pytest.raises(InvalidRequest, match="estimator"):
        KHotSelector(**SHORT, address=server, estimator="magic").fit(x, y)
    assert left_over(client) == []


def left_over(client):
    """What KHotSelector has sent."""
    datasets = [dataset for dataset in client.datasets() if dataset.name == "KHotSelector"]
    return datasets + list(client.jobs(labels={"from": "KHotSelector"}))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_is_an_estimator_on_a_server(server):
    check_estimator(KHotSelector(epochs=2, address=server), on_skip=None)
