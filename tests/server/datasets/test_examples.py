"""The numbers of a table as a job wants them."""

import numpy as np
import pytest

from khot_server.datasets import builtin
from khot_server.datasets.examples import impute, prepare
from khot_server.datasets.read_csv import read_csv
from khot_server.jobs.spec import FeatureSelectionSpec, SpecError, VaeSpec

TEXT = "a,note,b,smoker,city,size\n" + "".join(
    f"{i},n{i},{i % 7},{'true' if i % 2 else 'false'},{'Bern' if i % 3 else 'Chur'},{i / 4}\n"
    for i in range(30)
)


@pytest.fixture
def table(read):
    return read(read_csv, TEXT.encode()).table


def select(**fields) -> FeatureSelectionSpec:
    return FeatureSelectionSpec(**{"dataset": "d", "k": 1} | fields)


def test_classes_are_numbered_in_the_order_of_their_texts(table):
    prepared = prepare(select(target="city", ignore=("note",)), table)
    assert prepared.names == ("a", "b", "smoker", "size") and prepared.feature_shape == ()
    assert prepared.classes == ("Bern", "Chur") and prepared.objective == "classification"
    assert prepared.y.dtype == np.int64 and prepared.y[:4].tolist() == [1, 0, 0, 1]
    assert prepared.x.dtype == np.float32 and prepared.x.shape == (30, 4)
    assert prepared.x[3].tolist() == [3, 3, 1, 0.75]
    assert prepared.test is None and prepared.sha256 == "ab" * 32
    by_truth = prepare(select(target="smoker", ignore=("note", "city")), table)
    assert by_truth.classes == ("false", "true") and by_truth.y[:2].tolist() == [0, 1]


def test_the_target_of_a_regression_is_a_number(table):
    prepared = prepare(select(target="size", ignore=("note", "city")), table)
    assert prepared.objective == "regression" and prepared.classes == ()
    assert prepared.y.dtype == np.float32 and prepared.y[:3].tolist() == [0, 0.25, 0.5]


def test_what_does_not_fit_is_refused_here_too(table):
    with pytest.raises(SpecError, match="ignore: must name all columns of text; got not 'note'"):
        prepare(select(target="city"), table)


def test_missing_values_stay_until_the_rows_are_split(read):
    text = "a,b,label\n" + "".join(f"{i if i % 4 else ''},{i},{i % 2}\n" for i in range(20))
    table = read(read_csv, text.encode()).table
    prepared = prepare(select(missing="impute"), table)
    assert np.isnan(prepared.x[::4, 0]).all() and np.isnan(prepared.x).sum() == 5


def test_the_mean_of_the_training_rows_is_put():
    nan = np.nan
    train = np.array([[1, nan, 5], [3, nan, nan], [nan, nan, 5]], dtype=np.float32)
    other = np.array([[nan, nan, nan], [7, 8, 9]], dtype=np.float32)
    (filled, rest), fill = impute(train, other)
    assert fill.tolist() == [2, 0, 5]
    assert filled.tolist() == [[1, 0, 5], [3, 0, 5], [2, 0, 5]]
    assert rest.tolist() == [[2, 0, 5], [7, 8, 9]]
    assert filled.dtype == rest.dtype == np.float32


def test_whole_arrays_are_left_as_they_are():
    train, other = np.ones((2, 2), np.float32), np.zeros((1, 2), np.float32)
    (same, too), fill = impute(train, other)
    assert same is train and too is other and fill is None


def test_a_vae_gets_the_pictures_alone(tmp_path):
    prepared = prepare(VaeSpec(dataset="digits"), builtin.load("digits", tmp_path, None))
    assert prepared.x.shape == (1797, 64) and prepared.feature_shape == (8, 8)
    assert prepared.x.min() == 0 and prepared.x.max() == 1
    assert prepared.y is None and prepared.objective is None and prepared.classes == ()
