"""Training a feature selector: what it finds, what it tells, and that it resumes bit for bit."""

import dataclasses
import json
import math
import warnings

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_selection import SelectKBest, f_classif

from khot.models import load, save
from khot.models.feature_selector import ESTIMATORS
from khot.training import (
    Callbacks,
    Checkpoint,
    Diverged,
    Examples,
    FeatureSelectionConfig,
    Split,
    split,
    train_feature_selector,
)
from khot.training._selection import means_of_others, measure

pytestmark = pytest.mark.usefixtures("one_thread")
INFORMATIVE = (4, 9, 17)


def signs(m=600, seed=0):
    """20 features, of which three say the class, by their signs."""
    x = torch.randn(m, 20, generator=torch.Generator().manual_seed(seed))
    bits = (x[:, list(INFORMATIVE)] > 0).long()
    return split(x, bits @ torch.tensor([1, 2, 4]))


def line(m=500):
    """The same features, of which three say a number, far from 0 and in its own unit."""
    x = torch.randn(m, 20, generator=torch.Generator().manual_seed(0))
    y = 1e4 + 300 * (x[:, 4] - 2 * x[:, 9] + 0.5 * x[:, 17])
    return split(x * 7 + 3, y, objective="regression")


def noise(m=100):
    """Features that say nothing: who learns them by heart does worse and worse on others."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(m, 20, generator=generator), torch.randint(2, (m,), generator=generator)
    return split(x, y)


def parts_of(parts):
    return parts.train, parts.validation, parts.test


def with_constants(parts, columns=(0, 9)):
    """The same examples, with some features constant."""
    for examples in parts_of(parts):
        examples.x[:, list(columns)] = torch.arange(len(columns)) / 4
    return parts


SIGNS, LINE = signs(), line()
QUICK = FeatureSelectionConfig(k=3, epochs=4, batch_size=32, hidden=(16,))  # 12 steps an epoch
OVERFIT = {"k": 8, "hidden": (64,), "learning_rate": 0.05, "weight_decay": 0.0}
REGRESSION = dataclasses.replace(QUICK, objective="regression", k=None, penalty=0.05, patience=1)


class Recorder(Callbacks):
    """Remembers everything, and stops after some steps if asked to."""

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


def changed(config, **changes):
    return dataclasses.replace(config, **changes)


@pytest.fixture(scope="module")
def uninterrupted():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    recorder = Recorder()
    result = train_feature_selector(QUICK, SIGNS, callbacks=recorder)
    torch.set_num_threads(before)
    return result, recorder


@pytest.mark.parametrize(
    "stops", [(1,), (13,), (36,), (48, 1), (60,), (96,), (5, 1, 50, 60)], ids=str
)
def test_a_resumed_training_is_the_same_to_the_bit(uninterrupted, stops):
    wanted, whole = uninterrupted
    reports, resume = [], None
    for stop in stops:
        recorder = Recorder(stop)
        torch.rand(7)  # the global generator is not looked at
        assert train_feature_selector(QUICK, SIGNS, resume=resume, callbacks=recorder) is None
        reports += recorder.reports
        resume = stored(recorder.checkpoints[-1])
    recorder = Recorder()
    got = train_feature_selector(QUICK, SIGNS, resume=resume, callbacks=recorder)
    assert got == wanted
    assert same_tensors(got.model.state_dict(), wanted.model.state_dict())
    assert reports + recorder.reports == whole.reports
    last, other = recorder.checkpoints[-1], whole.checkpoints[-1]
    assert last.meta == other.meta and same_tensors(last.tensors, other.tensors)


def same_tensors(these, those):
    assert list(these) == list(those)
    return all(torch.equal(value, those[name]) for name, value in these.items())


TINY = Split(*(Examples(e.x[:20, 2:12], e.y[:20] % 2) for e in parts_of(SIGNS)))


@pytest.mark.parametrize(
    "config",
    [
        FeatureSelectionConfig(k=2, epochs=3, batch_size=8, hidden=(4,), patience=1),
        FeatureSelectionConfig(k=None, epochs=4, tuning=0.5, batch_size=8, hidden=(4,), seed=3),
        FeatureSelectionConfig(k=2, epochs=2, tuning=0, batch_size=8, hidden=(4,), last_tau=None),
    ],
    ids=["patience", "learned k", "no tuning"],
)
def test_stopped_after_every_step_it_is_the_same_to_the_bit(config):
    """Over all stages, with each step in a training of its own."""
    whole = Recorder()
    wanted = train_feature_selector(config, TINY, callbacks=whole)
    reports, resume = [], None
    for _ in range(whole.asked - 1):
        recorder = Recorder(1)
        assert train_feature_selector(config, TINY, resume=resume, callbacks=recorder) is None
        reports += recorder.reports
        resume = stored(recorder.checkpoints[-1])
    recorder = Recorder(1)
    assert train_feature_selector(config, TINY, resume=resume, callbacks=recorder) == wanted
    assert reports + recorder.reports == whole.reports
    assert same_tensors(recorder.checkpoints[-1].tensors, whole.checkpoints[-1].tensors)


@pytest.mark.parametrize("estimator", ["score_function", "simple", "gumbel_sigmoid"])
def test_with_any_estimator_a_resumed_training_is_the_same_to_the_bit(estimator):
    config = changed(QUICK, estimator=estimator, references=False)
    wanted, stopped = train_feature_selector(config, SIGNS), Recorder(21)
    assert train_feature_selector(config, SIGNS, callbacks=stopped) is None
    assert train_feature_selector(config, SIGNS, resume=stored(stopped.checkpoints[-1])) == wanted


def test_a_resumed_regression_is_the_same_to_the_bit():
    wanted, stopped = train_feature_selector(REGRESSION, LINE), Recorder(43)
    assert train_feature_selector(REGRESSION, LINE, callbacks=stopped) is None
    assert (
        train_feature_selector(REGRESSION, LINE, resume=stored(stopped.checkpoints[-1])) == wanted
    )


def test_the_last_checkpoint_gives_the_result(uninterrupted):
    wanted, whole = uninterrupted
    recorder, resume = Recorder(), whole.checkpoints[-1]
    got = train_feature_selector(QUICK, SIGNS, resume=resume, callbacks=recorder)
    assert got == wanted and recorder.asked == 0


def test_progress_tells_losses_validations_and_iterations(uninterrupted):
    result, whole = uninterrupted
    assert [report.step for report in whole.reports[:6]] == [10, 12, 20, 24, 30, 36]
    assert all(report.total_steps == 3 * 48 for report in whole.reports)
    stages = [report.stage for report in whole.reports]
    assert list(dict.fromkeys(stages)) == ["selection", "reference_all", "reference_random"]
    for report in whole.reports:
        names = {"loss", "validation_loss", "validation_accuracy"}
        names = names if report.step % 12 == 0 else {"loss"}
        prefix = "" if report.stage == "selection" else f"{report.stage}."
        assert set(report.metrics) == {f"{prefix}{name}" for name in names}
    # of the 36 steps before the tuning, each tenth was looked at: a root for each example's mask
    rows = sum(sum(report.roots.iterations.values()) for report in whole.reports)
    assert rows == 3 * QUICK.batch_size
    tuned = next(report for report in whole.reports if report.step == 48)
    assert tuned.metrics["validation_loss"] == result.validation["loss"]


def test_the_result_is_that_of_the_model(uninterrupted):
    result, _ = uninterrupted
    model, test = result.model, SIGNS.test
    assert result.features == tuple(model.chosen().tolist()) and result.k == 3
    assert not model.training
    with torch.no_grad():
        right = (model(test.x).argmax(-1) == test.y).double().mean()
    assert result.test["accuracy"] == float(right)
    assert len(result.scores) == len(result.inclusion_probabilities) == 20
    assert math.fsum(result.inclusion_probabilities) == pytest.approx(3, abs=1e-5)
    assert set(result.references) == {"all", "random"} and result.epochs_run == 4
    assert set(result.references["all"]) == set(result.test) == {"loss", "accuracy"}
    assert 0 < result.stability <= 1


def test_a_saved_model_takes_raw_examples(tmp_path):
    result = train_feature_selector(changed(REGRESSION, references=False), LINE)
    save(result.model, tmp_path)
    assert measure(load(tmp_path), LINE.test) == result.test


def test_seeds_decide():
    config = changed(QUICK, epochs=1, references=False)
    runs = [train_feature_selector(changed(config, seed=seed), SIGNS) for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]


def test_the_global_generator_is_left_alone():
    torch.manual_seed(3)
    wanted = torch.rand(1)
    torch.manual_seed(3)
    train_feature_selector(changed(QUICK, epochs=1), SIGNS)
    assert torch.equal(torch.rand(1), wanted)


@pytest.mark.parametrize("change", [{"k": 4}, {"seed": 1}, {"hidden": (8,)}, {"tau": 0.5}], ids=str)
def test_a_checkpoint_of_another_config_is_refused(uninterrupted, change):
    message = "^train_feature_selector: resume must be a checkpoint with the config .*; got"
    resume = uninterrupted[1].checkpoints[0]
    with pytest.raises(ValueError, match=message):
        train_feature_selector(changed(QUICK, **change), SIGNS, resume=resume)


def test_a_checkpoint_of_other_data_is_refused(uninterrupted):
    resume = uninterrupted[1].checkpoints[0]
    with pytest.raises(ValueError, match="resume must be a checkpoint with the shapes"):
        train_feature_selector(QUICK, signs(500), resume=resume)


def test_the_informative_features_are_found_and_beat_random_ones():
    config = FeatureSelectionConfig(k=3, epochs=20, hidden=(64,))
    result = train_feature_selector(config, signs(3000))
    assert result.features == INFORMATIVE
    assert result.test["accuracy"] > 0.95 and result.stability > 0.9
    assert result.references["all"]["accuracy"] > 0.8
    assert result.references["random"]["accuracy"] < 0.5


def test_a_regression_finds_the_features_of_a_line():
    config = changed(QUICK, objective="regression", epochs=40, references=False)
    result = train_feature_selector(config, LINE)
    assert result.features == INFORMATIVE
    assert set(result.test) == {"loss", "rmse", "r2"}
    assert result.test["r2"] > 0.95
    assert result.test["rmse"] == pytest.approx(math.sqrt(result.test["loss"]))
    variance = float(LINE.test.y.double().var(correction=0))
    assert result.test["r2"] == pytest.approx(1 - result.test["loss"] / variance)


def bits(m=1200):
    """20 independent bits, of which three are open and the others seldom one; one never."""
    chances = torch.full((20,), 0.03)
    chances[list(INFORMATIVE)], chances[0] = 0.5, 0.0
    x = (torch.rand(m, 20, generator=torch.Generator().manual_seed(0)) < chances).float()
    return split(x, x, objective="reconstruction")


RECONSTRUCTION = changed(QUICK, objective="reconstruction", standardize=False)


@pytest.mark.filterwarnings("ignore:train_feature_selector. constant features")
@pytest.mark.parametrize("estimator", ["gumbel_sigmoid", "pi_st", "simple", "score_function"])
def test_a_reconstruction_finds_what_cannot_be_guessed(estimator):
    parts, slow = bits(), estimator == "score_function"
    config = changed(RECONSTRUCTION, estimator=estimator, epochs=80 if slow else 30)
    result = train_feature_selector(config, parts)
    assert result.features == INFORMATIVE
    assert result.references["random"]["r2"] < result.test["r2"] < result.references["all"]["r2"]
    out = result.model(parts.test.x).detach().sigmoid().double()
    y = parts.test.y.double()
    costs = -(y * out.log() + (1 - y) * (1 - out).log())
    assert result.test["loss"] == pytest.approx(float(costs.mean()), rel=1e-3)
    error = (out - y).square().mean()
    assert result.test["rmse"] == pytest.approx(float(error.sqrt()), rel=1e-4)
    share = 1 - float(error / y.var(0, correction=0).mean())
    assert result.test["r2"] == pytest.approx(share, abs=1e-6)


@pytest.mark.filterwarnings("ignore:train_feature_selector. constant features")
@pytest.mark.parametrize("estimator", ["gumbel_sigmoid", "score_function"])
def test_a_resumed_reconstruction_is_the_same_to_the_bit(estimator):
    parts, stopped = bits(), Recorder(43)
    config = changed(RECONSTRUCTION, epochs=4, references=False, estimator=estimator)
    wanted = train_feature_selector(config, parts)
    assert train_feature_selector(config, parts, callbacks=stopped) is None
    assert train_feature_selector(config, parts, resume=stored(stopped.checkpoints[-1])) == wanted


def test_the_losses_of_a_regression_are_in_the_units_of_y():
    recorder, config = Recorder(), changed(QUICK, objective="regression", references=False)
    train_feature_selector(config, LINE, callbacks=recorder)
    first = recorder.reports[0].metrics["loss"]
    variance = float(LINE.train.y.var())
    assert 0.3 * variance < first < 3 * variance


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_trains_beside_constant_features(estimator):
    k = ESTIMATORS[estimator].only_k or 3
    config = changed(QUICK, k=k, epochs=2, estimator=estimator, references=False)
    recorder = Recorder()
    with pytest.warns(UserWarning, match="constant features are never chosen; got 0, 9$"):
        result = train_feature_selector(config, with_constants(signs()), callbacks=recorder)
    assert result.constant == (0, 9) and not {0, 9} & set(result.features)
    assert len(result.features) == k and math.isfinite(result.test["loss"])
    assert {i for i, score in enumerate(result.scores) if score == -math.inf} == {0, 9}
    assert result.inclusion_probabilities[9] == 0.0
    solved = any(report.roots for report in recorder.reports)
    assert solved == (ESTIMATORS[estimator].with_diagnostics is not None)


@pytest.mark.parametrize("estimator", sorted(set(ESTIMATORS) - {"reinmax", "st_gumbel_softmax"}))
def test_every_estimator_of_k_of_n_finds_them(estimator):
    """But the one that never draws: it keeps what it begins with, and sees nothing else."""
    slow = estimator in ("score_function", "ncpss")
    config = changed(QUICK, estimator=estimator, epochs=60 if slow else 30, references=False)
    result = train_feature_selector(config, SIGNS)
    assert (result.features == INFORMATIVE) == (estimator != "st_topk")


def test_an_estimator_of_one_finds_one():
    """Of features of which one says the class, and the others nothing."""
    parts = (Examples(e.x, (e.x[:, 4] > 0).long()) for e in parts_of(SIGNS))
    result = train_feature_selector(
        changed(QUICK, k=1, estimator="reinmax", epochs=20), Split(*parts)
    )
    assert result.features == (4,)
    # a reference sees more of them than the estimator could draw
    assert result.references["all"]["accuracy"] > 0.8 > result.references["random"]["accuracy"]


def test_no_warning_without_constant_features():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = train_feature_selector(changed(QUICK, epochs=1), SIGNS)
    assert result.constant == ()


def test_a_reference_never_sees_what_is_constant():
    with pytest.warns(UserWarning, match="constant"):
        result = train_feature_selector(
            changed(QUICK, k=None, epochs=1), with_constants(signs(), range(1, 20))
        )
    assert result.features == (0,) and result.k == 1
    assert result.references["all"] == result.references["random"]


def test_a_learned_k_falls_when_the_penalty_rises():
    config = changed(QUICK, k=None, epochs=30, references=False)
    found = {
        penalty: train_feature_selector(changed(config, penalty=penalty), SIGNS)
        for penalty in (0.0, 0.05, 2.0)
    }
    sizes = [result.k for result in found.values()]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 10 and sizes[-1] == 1
    assert found[0.05].features == INFORMATIVE
    assert math.fsum(found[0.05].inclusion_probabilities) == pytest.approx(3, abs=0.5)


def test_a_learned_k_is_near_the_same_from_both_sides():
    rates = {"learning_rate": 1e-2, "epochs": 60}
    config = changed(QUICK, k=None, penalty=0.03, references=False, **rates)
    for first in (2.5, 18):
        assert train_feature_selector(changed(config, initial_k=first), SIGNS).k == 3


def test_a_learned_k_begins_where_it_is_told():
    config = changed(QUICK, k=None, initial_k=5, references=False)
    recorder = Recorder(1)
    train_feature_selector(config, SIGNS, callbacks=recorder)
    pi = torch.sigmoid(recorder.checkpoints[0].tensors["model.logits"])
    assert float(pi.sum()) == pytest.approx(5, abs=20 * config.mask_learning_rate / 4)
    with pytest.raises(ValueError, match="initial_k must be less than 20, .*; got 20"):
        train_feature_selector(changed(config, initial_k=20), SIGNS)


def test_early_stopping_stops_each_stage():
    recorder = Recorder()
    config = changed(QUICK, epochs=40, tuning=0.5, patience=2, **OVERFIT)
    result = train_feature_selector(config, noise(), callbacks=recorder)
    assert 22 < result.epochs_run < 40
    ends = [report for report in recorder.reports if len(report.metrics) > 1]
    ran = {stage: [r for r in ends if r.stage == stage] for stage in ("selection", "reference_all")}
    assert len(ran["selection"]) == result.epochs_run and len(ran["reference_all"]) < 40
    losses = [report.metrics["validation_loss"] for report in ran["selection"]]
    assert min(losses[20:]) == losses[-3] == result.validation["loss"]


def test_without_tuning_the_best_of_all_epochs_is_kept():
    recorder = Recorder()
    config = changed(QUICK, epochs=40, tuning=0, references=False, **OVERFIT)
    result = train_feature_selector(config, noise(), callbacks=recorder)
    losses = [r.metrics["validation_loss"] for r in recorder.reports if len(r.metrics) > 1]
    assert result.validation["loss"] == min(losses) < losses[-1]


def test_the_choice_stands_still_in_the_tuning():
    recorder = Recorder()
    config = changed(QUICK, epochs=8, tuning=0.5, references=False)
    train_feature_selector(config, SIGNS, callbacks=recorder)
    logits = [checkpoint.tensors["model.logits"] for checkpoint in recorder.checkpoints[:-1]]
    weights = [c.tensors["model.network.0.weight"] for c in recorder.checkpoints[:-1]]
    assert torch.equal(logits[3], logits[6]) and not torch.equal(logits[2], logits[3])
    assert not torch.equal(weights[3], weights[6])


def test_stability_is_the_likeness_of_the_last_choices():
    recorder = Recorder()
    config = changed(
        QUICK, epochs=16, mask_learning_rate=0.5, tau=0.05, references=False, tuning=0.25
    )
    result = train_feature_selector(config, TINY, callbacks=recorder)
    kept, values = set(result.features), []
    for checkpoint in recorder.checkpoints[9:12]:  # of 12 that choose
        a = set(checkpoint.tensors["model.logits"].topk(3).indices.tolist())
        values.append(len(a & kept) / len(a | kept))
    assert result.stability == pytest.approx(sum(values) / 3)


def test_wide_data_with_constant_borders():
    """As pictures: many features that are constant, no standardisation, more than one layer."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(4, (400,), generator=generator)
    x = torch.rand(400, 784, generator=generator)
    x[:, 300] += y.float()
    x[:, :100] = 0.0
    config = FeatureSelectionConfig(
        k=20,
        epochs=60,
        hidden=(64, 32),
        learning_rate=1e-2,
        mask_learning_rate=0.1,
        standardize=False,
        references=False,
    )
    with pytest.warns(UserWarning, match="constant features are never chosen; got 0, 1, 2, "):
        result = train_feature_selector(config, split(x, y))
    assert 300 in result.features and min(result.features) >= 100
    assert result.test["accuracy"] > 0.8
    assert bool((result.model.mean == 0).all()) and bool((result.model.scale == 1).all())


def test_the_temperature_goes_to_its_end_by_equal_factors():
    config = changed(QUICK, tau=8.0, last_tau=0.5)
    assert [config.tau_at(share) for share in (0, 0.25, 0.5, 1)] == pytest.approx([8, 4, 2, 0.5])
    assert changed(QUICK, last_tau=None).tau_at(0.7) == 1.0
    result = train_feature_selector(changed(config, references=False), SIGNS)
    assert result.model.tau == 0.5


@pytest.mark.parametrize(
    ("examples", "epochs", "choosing"),
    [(1, 200, 150), (1078, 200, 150), (6400, 40, 30), (10**6, 20, 15)],
)
def test_epochs_follow_from_the_examples_by_default(examples, epochs, choosing):
    config = FeatureSelectionConfig(k=1)
    assert config.epochs_of(examples) == epochs
    assert config.choosing_epochs_of(examples) == choosing
    assert changed(config, epochs=1).choosing_epochs_of(examples) == 1


def test_the_baseline_of_an_example_is_the_mean_loss_of_the_others():
    losses = torch.tensor([1.0, 2.0, 6.0])
    assert means_of_others(losses).tolist() == [4.0, 3.5, 1.5]
    assert means_of_others(losses[:1]).tolist() == [0.0]


def digits(seed):
    data = load_digits()
    x = torch.tensor(data.data, dtype=torch.float32) / 16
    return split(x, torch.tensor(data.target, dtype=torch.int64), seed=seed)


def test_digits_by_ten_pixels():
    config = FeatureSelectionConfig(k=10, epochs=60, standardize=False, references=False)
    with pytest.warns(UserWarning, match="never chosen; got 0, 32, 39$"):
        result = train_feature_selector(config, digits(0))
    assert len(result.features) == 10 and result.test["accuracy"] > 0.85


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore:train_feature_selector. constant features")
@pytest.mark.filterwarnings("ignore:Features .* are constant", "ignore:invalid value")
def test_digits_by_ten_pixels_in_ten_splits():
    """Better than single pixels that look best; `tests/bench/load_selection.py` says how much."""
    config, accuracies, gains = FeatureSelectionConfig(k=10, standardize=False), [], []
    for seed in range(10):
        parts = digits(seed)
        result = train_feature_selector(config, parts)
        x, y = parts.train.x.numpy(), parts.train.y.numpy()
        best = SelectKBest(f_classif, k=10).fit(x, y).get_support(indices=True)
        accuracies.append(result.test["accuracy"])
        gains.append(forest(parts, result.features) - forest(parts, best))
        assert result.references["random"]["accuracy"] < result.test["accuracy"]
    assert sum(accuracies) / 10 >= 0.92
    assert sum(gains) / 10 >= 0.03


def forest(parts, features):
    """The test accuracy of a random forest on these features."""
    columns = list(features)
    learned = RandomForestClassifier(random_state=0).fit(parts.train.x[:, columns], parts.train.y)
    return learned.score(parts.test.x[:, columns], parts.test.y)


def test_a_huge_learning_rate_is_divergence():
    with pytest.raises(Diverged, match="must stay finite"):
        train_feature_selector(changed(QUICK, learning_rate=1e30, hidden=(16, 16)), SIGNS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "k must be an integer of at least 1; got 0"),
        ({"k": 2.0}, "k must be an integer of at least 1; got 2.0"),
        ({"epochs": True}, "epochs must be an integer of at least 1; got True"),
        ({"patience": 0}, "patience must be an integer of at least 1; got 0"),
        ({"batch_size": -1}, "batch_size must be an integer of at least 1; got -1"),
        ({"batch_size": None}, "batch_size must be an integer of at least 1; got None"),
        ({"hidden": [64]}, r"hidden must be a tuple of integers of at least 1; got \[64\]"),
        ({"hidden": (0,)}, r"hidden must be a tuple of integers of at least 1; got \(0,\)"),
        ({"objective": "ranking"}, "objective must be one of classification, regression, recons"),
        ({"learning_rate": 0.0}, "learning_rate must be in \\(0, 1e30\\]; got 0.0"),
        ({"mask_learning_rate": "1"}, "mask_learning_rate must be a number; got '1'"),
        ({"last_tau": 0}, r"last_tau must be in \(0, 1e30\]; got 0"),
        ({"tuning": 1.0}, r"tuning must be in \[0, 1\); got 1.0"),
        ({"hard": 1}, "hard must be True or False; got 1"),
        ({"weight_decay": -0.1}, r"weight_decay must be in \[0, 1e\+30\); got -0.1"),
        ({"estimator": "magic"}, "estimator must be one of pi_st, .*; got 'magic'"),
        ({"estimator": "reinmax"}, "k must be 1 with the estimator reinmax; got 3"),
        ({"penalty": 0.1}, "penalty must be None where k is given; got 0.1"),
        ({"initial_k": 2}, "initial_k must be None where k is given; got 2"),
        ({"k": None, "penalty": -1.0}, r"penalty must be in \[0, 1e30\]; got -1.0"),
        ({"k": None, "estimator": "simple"}, "estimator must be pi_st_implicit where k is learned"),
        ({"tau": math.nan}, "tau must be in .*; got nan"),
        ({"standardize": 1}, "standardize must be True or False; got 1"),
        ({"seed": 2**64}, "seed must be an integer of 64 bits; got"),
        ({"seed": 0.5}, "seed must be an integer of 64 bits; got 0.5"),
    ],
    ids=str,
)
def test_bad_configs_are_refused(change, message):
    with pytest.raises(ValueError, match=f"^FeatureSelectionConfig: {message}"):
        changed(QUICK, **change)


def test_data_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"k must be in \[1, 20\].*; got 21"):
        train_feature_selector(changed(QUICK, k=21), SIGNS)
    with pytest.raises(ValueError, match=r"k must be in \[1, 18\].* not constant; got 19"):
        train_feature_selector(changed(QUICK, k=19), with_constants(signs()))
    with pytest.raises(ValueError, match="a feature must not be constant; got all constant"):
        train_feature_selector(QUICK, with_constants(signs(), range(20)))
    with pytest.raises(ValueError, match="y must be float32 of .* for regression; got int64"):
        train_feature_selector(changed(QUICK, objective="regression"), SIGNS)
    with pytest.raises(ValueError, match="y must be int64 of .* for classification; got float32"):
        train_feature_selector(QUICK, LINE)
    one = Split(*(Examples(e.x, e.y * 0) for e in parts_of(SIGNS)))
    with pytest.raises(ValueError, match="classes must be at least 2"):
        train_feature_selector(QUICK, one)
    far = Split(*(Examples(e.x, e.y * 10**12) for e in parts_of(SIGNS)))
    with pytest.raises(ValueError, match="y must number the classes from 0, .*; got 7000000000000"):
        train_feature_selector(QUICK, far)
