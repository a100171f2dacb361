"""Training a sparse regression: what it finds, what it tells, and that it resumes bit for bit."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

from khot.models import SparseRegressor, load, save
from khot.models.feature_selector import ESTIMATORS
from khot.training import (
    Callbacks,
    Checkpoint,
    SparseRegressionConfig,
    split,
    train_sparse_regression,
)

pytestmark = pytest.mark.usefixtures("one_thread")
TRUE = (2, 7, 11)
WEIGHTS = (3.0, -2.0, 0.5)
ONE_HOT = tuple(name for name, row in ESTIMATORS.items() if row.only_k == 1)
# The others end with two of the three terms here: their gradients are too coarse for the weakest.
SURE = ("pi_st", "pi_st_implicit", "pi_st2", "simple", "score_function", "gumbel_sigmoid")
COARSE = tuple(name for name in ESTIMATORS if name not in (*SURE, *ONE_HOT))


def line(m=300, n=15, noise=0.05, seed=0, offset=1e3, alike=0.6):
    """Columns that are like their neighbours, in units of their own, three of which say y."""
    generator = torch.Generator().manual_seed(seed)
    likeness = alike ** (torch.arange(n)[:, None] - torch.arange(n)).abs().double()
    x = torch.randn(m, n, generator=generator, dtype=torch.float64)
    x = x @ torch.linalg.cholesky(likeness).T
    x = x * torch.logspace(-2, 2, n, dtype=torch.float64) + 5
    weights = torch.tensor(WEIGHTS, dtype=torch.float64) / torch.logspace(-2, 2, n)[list(TRUE)]
    y = x[:, list(TRUE)] @ weights + offset
    y = y + noise * torch.randn(m, generator=generator, dtype=torch.float64)
    return split(x.float(), y.float(), objective="regression"), weights


LINE, COEFFICIENTS = line()
QUICK = SparseRegressionConfig(k=3, steps=100)


class Recorder(Callbacks):
    def __init__(self, stop_after=None):
        self.stop_after, self.asked = stop_after, 0
        self.reports, self.checkpoints = [], []

    def progress(self, progress):
        self.reports.append(progress)

    def checkpoint(self, checkpoint):
        self.checkpoints.append(checkpoint)

    def should_stop(self):
        self.asked += 1
        return self.asked == self.stop_after


def stored(checkpoint):
    """As it comes back from a disk."""
    tensors = {name: value.clone() for name, value in checkpoint.tensors.items()}
    return Checkpoint(tensors, json.loads(json.dumps(checkpoint.meta)))


@pytest.mark.parametrize("estimator", SURE)
def test_the_terms_are_found(estimator):
    config = SparseRegressionConfig(k=3, estimator=estimator)
    result = train_sparse_regression(config, LINE)
    assert result.features == TRUE
    torch.testing.assert_close(
        torch.tensor(result.coefficients, dtype=torch.float64), COEFFICIENTS, rtol=0.02, atol=0
    )
    assert result.intercept == pytest.approx(1e3, rel=1e-3)
    assert result.test["r2"] > 0.999 and result.test["rmse"] == math.sqrt(result.test["loss"])
    assert set(result.references) == {"all", "greedy"}
    assert 0 < result.stability <= 1 and result.best_epoch <= result.epochs_run == 20


@pytest.mark.parametrize("estimator", COARSE)
def test_every_other_estimator_finds_what_matters_most(estimator):
    result = train_sparse_regression(SparseRegressionConfig(k=3, estimator=estimator), LINE)
    assert {2, 7} < set(result.features) and result.test["r2"] > 0.95


@pytest.mark.parametrize("estimator", ONE_HOT)
def test_those_that_choose_one_find_it(estimator):
    x = LINE.train.x
    parts = split(x, x[:, 4] * 2 + 1, objective="regression")
    result = train_sparse_regression(SparseRegressionConfig(k=1, estimator=estimator), parts)
    assert result.features == (4,) and result.coefficients[0] == pytest.approx(2, rel=1e-5)


def test_columns_that_matter_only_together_are_found_where_greed_does_not_find_them():
    """y is the small difference of two columns that are large and alike; others look better."""
    generator = torch.Generator().manual_seed(1)
    common, a, b = torch.randn(3, 400, 1, generator=generator).unbind()
    y = (a - b).squeeze(-1)
    x = torch.cat((3 * common + a, 3 * common + b), 1)
    others = 0.3 * y[:, None] + torch.randn(400, 4, generator=generator)
    parts = split(torch.cat((x, others), 1), y, objective="regression")
    result = train_sparse_regression(SparseRegressionConfig(k=2), parts)
    assert result.features == (0, 1)
    assert result.coefficients == pytest.approx((1, -1), abs=1e-4)
    assert result.references["greedy"]["r2"] < 0.6 and result.test["r2"] > 0.999


@pytest.fixture(scope="module")
def uninterrupted():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    recorder = Recorder()
    result = train_sparse_regression(QUICK, LINE, callbacks=recorder)
    torch.set_num_threads(before)
    return result, recorder


@pytest.mark.parametrize("stops", [(1,), (13,), (20, 1), (79,), (81,), (5, 1, 50, 30)], ids=str)
def test_a_resumed_training_is_the_same_to_the_bit(uninterrupted, stops):
    wanted, whole = uninterrupted
    reports, resume = [], None
    for stop in stops:
        recorder = Recorder(stop)
        torch.rand(7)  # the global generator is not looked at
        found = train_sparse_regression(QUICK, LINE, resume=resume, callbacks=recorder)
        assert found is None
        reports += recorder.reports
        resume = stored(recorder.checkpoints[-1])
    recorder = Recorder()
    result = train_sparse_regression(QUICK, LINE, resume=resume, callbacks=recorder)
    assert result == wanted
    assert reports + recorder.reports == whole.reports
    mine, others = result.model.state_dict(), wanted.model.state_dict()
    assert all(torch.equal(value, others[name]) for name, value in mine.items())


def test_progress_is_told_every_ten_steps_and_measured_every_twenty(uninterrupted):
    _, recorder = uninterrupted
    assert [p.step for p in recorder.reports] == list(range(10, 101, 10))
    assert {p.stage for p in recorder.reports} == {"regression"}
    measured = [p.step for p in recorder.reports if "validation_r2" in p.metrics]
    assert measured == [20, 40, 60, 80, 100]
    assert recorder.reports[-1].metrics["loss"] > 0, "in the units of y"


def test_a_saved_model_does_what_was_reported(uninterrupted, tmp_path):
    result, _ = uninterrupted
    model = load(save(result.model, tmp_path))
    assert isinstance(model, SparseRegressor)
    error = model(LINE.test.x) - LINE.test.y.double()
    assert float(error.square().mean()) == result.test["loss"], "to the bit"
    assert tuple(model.chosen().tolist()) == result.features
    by_hand = LINE.test.x[:, list(result.features)].double().numpy() @ np.array(result.coefficients)
    np.testing.assert_allclose(by_hand + result.intercept, model(LINE.test.x).numpy(), rtol=1e-12)


def test_the_coefficients_are_those_of_ordinary_least_squares(uninterrupted):
    result, _ = uninterrupted
    x = LINE.train.x[:, list(result.features)].double()
    rows = torch.cat((x, torch.ones(len(x), 1, dtype=torch.float64)), 1)
    wanted = torch.linalg.lstsq(rows, LINE.train.y.double()).solution.tolist()
    assert (*result.coefficients, result.intercept) == pytest.approx(wanted, rel=1e-6)


def test_without_an_intercept_there_is_none():
    x = torch.randn(300, 15, generator=torch.Generator().manual_seed(0)) + 0.5
    y = x[:, list(TRUE)] @ torch.tensor(WEIGHTS)
    parts = split(x, y, objective="regression")
    result = train_sparse_regression(SparseRegressionConfig(k=3, intercept=False), parts)
    assert result.intercept == 0.0 and result.features == TRUE
    assert result.coefficients == pytest.approx(WEIGHTS, rel=1e-5)
    parts.train.y.add_(torch.linspace(0, 1, len(parts.train)))
    result = train_sparse_regression(SparseRegressionConfig(k=3, intercept=False), parts)
    x, y = parts.train.x[:, list(result.features)].double(), parts.train.y.double()
    wanted = torch.linalg.lstsq(x, y).solution.tolist()
    assert result.coefficients == pytest.approx(wanted, rel=1e-6)


def test_constant_columns_are_named_and_never_chosen():
    parts, _ = line()
    for examples in (parts.train, parts.validation, parts.test):
        examples.x[:, [0, 7]] = torch.tensor([0.0, 3.0])
    with pytest.warns(UserWarning, match="constant columns are never chosen; got 0, 7"):
        result = train_sparse_regression(dataclasses.replace(QUICK, k=13), parts)
    assert result.constant == (0, 7) and not {0, 7} & set(result.features)
    assert result.scores[0] == -math.inf and result.inclusion_probabilities[7] == 0
    assert result.references["all"] == pytest.approx(result.test)


@pytest.mark.filterwarnings("ignore:.*constant columns")
def test_what_cannot_be_done_is_refused():
    parts, _ = line()
    with pytest.raises(ValueError, match=r"k must be in \[1, 15\], the number of columns; got 16"):
        train_sparse_regression(dataclasses.replace(QUICK, k=16), parts)
    parts.train.x[:, 1:] = 2.0
    with pytest.raises(ValueError, match="k must be at most 1, .* not constant; got 3"):
        train_sparse_regression(QUICK, parts)
    parts.train.y[:] = 1.0
    with pytest.raises(ValueError, match="y must have different values; got one"):
        train_sparse_regression(dataclasses.replace(QUICK, k=1), parts)
    classes = split(torch.randn(50, 4), torch.arange(50) % 2)
    with pytest.raises(ValueError, match="y must be float32 of shape .* for regression"):
        train_sparse_regression(dataclasses.replace(QUICK, k=1), classes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 0}, "k must be an integer of at least 1; got 0"),
        ({"k": True}, "k must be an integer"),
        ({"steps": 0}, "steps must be an integer of at least 1; got 0"),
        ({"num_samples": 1}, "num_samples must be an integer of at least 2; got 1"),
        ({"estimator": "best"}, "estimator must be one of .*; got 'best'"),
        ({"estimator": "reinmax"}, "k must be 1 with the estimator reinmax; got 3"),
        ({"ridge": 0.0}, r"ridge must be in \(0, 1e30\]; got 0.0"),
        ({"tau": math.nan}, r"tau must be in \(0, 1e30\]; got nan"),
        ({"learning_rate": "1"}, "learning_rate must be a number; got '1'"),
        ({"intercept": 1}, "intercept must be True or False; got 1"),
        ({"references": None}, "references must be True or False; got None"),
        ({"seed": 2**64}, "seed must be an integer of 64 bits"),
    ],
)
def test_a_bad_configuration_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(QUICK, **changes)


def test_a_checkpoint_of_another_training_is_refused():
    recorder = Recorder(1)
    train_sparse_regression(QUICK, LINE, callbacks=recorder)
    with pytest.raises(ValueError, match="resume must be a checkpoint with the config"):
        train_sparse_regression(
            dataclasses.replace(QUICK, seed=1), LINE, resume=recorder.checkpoints[-1]
        )


def test_few_steps_are_one_epoch_and_the_temperature_falls_by_equal_factors():
    config = SparseRegressionConfig(k=3, steps=7, tau=1.0, last_tau=0.25)
    assert (config.epochs, config.steps_per_epoch) == (1, 7)
    assert [config.tau_at(share) for share in (0, 0.5, 1)] == [1, 0.5, 0.25]
    result = train_sparse_regression(config, LINE)
    assert result.epochs_run == 1 and result.model.tau == 0.25
