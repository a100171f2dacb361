"""Training a feature selector: what it finds, and that it resumes bit for bit."""

import dataclasses
import json
import math

import pytest
import torch
from sklearn.datasets import load_digits

from khot.models.feature_selector import ESTIMATORS
from khot.training import (
    Callbacks,
    Checkpoint,
    Diverged,
    Examples,
    FeatureSelectionConfig,
    train_feature_selector,
)
from khot.training.feature_selection import _means_of_others

pytestmark = pytest.mark.usefixtures("one_thread")
INFORMATIVE = (4, 9, 17)


def synthetic(m: int, seed: int) -> Examples:
    """20 features, of which three say the class, by their signs."""
    x = torch.randn(m, 20, generator=torch.Generator().manual_seed(seed))
    bits = (x[:, list(INFORMATIVE)] > 0).long()
    return Examples(x, bits @ torch.tensor([1, 2, 4]))


TRAIN, TEST = synthetic(500, 0), synthetic(200, 1)
CONFIG = FeatureSelectionConfig(k=3, epochs=3, batch_size=32)  # 16 steps an epoch


class Recorder(Callbacks):
    """Remembers everything, and stops after some steps if asked to."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.stop_after, self.asked = stop_after, 0
        self.reports, self.checkpoints = [], []

    def progress(self, progress):
        self.reports.append(progress)

    def checkpoint(self, checkpoint):
        self.checkpoints.append(checkpoint)

    def should_stop(self):
        self.asked += 1
        return self.asked == self.stop_after


def stored(checkpoint: Checkpoint) -> Checkpoint:
    """As it comes back from a disk."""
    tensors = {name: value.clone() for name, value in checkpoint.tensors.items()}
    return Checkpoint(tensors, json.loads(json.dumps(checkpoint.meta)))


@pytest.fixture(scope="module")
def uninterrupted():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    recorder = Recorder()
    result = train_feature_selector(CONFIG, TRAIN, TEST, callbacks=recorder)
    torch.set_num_threads(before)
    return result, recorder


@pytest.mark.parametrize("stops", [(1,), (10,), (13,), (16,), (32,), (47,), (5, 1, 7, 20)], ids=str)
def test_a_resumed_training_is_the_same_to_the_bit(uninterrupted, stops):
    wanted, whole = uninterrupted
    reports, resume = [], None
    for stop in stops:
        recorder = Recorder(stop)
        torch.rand(7)  # the global generator is not looked at
        assert (
            train_feature_selector(CONFIG, TRAIN, TEST, resume=resume, callbacks=recorder) is None
        )
        reports += recorder.reports
        resume = stored(recorder.checkpoints[-1])
    recorder = Recorder()
    got = train_feature_selector(CONFIG, TRAIN, TEST, resume=resume, callbacks=recorder)
    assert got == wanted
    assert reports + recorder.reports == whole.reports
    last, other = recorder.checkpoints[-1], whole.checkpoints[-1]
    assert last.meta == other.meta and list(last.tensors) == list(other.tensors)
    assert all(torch.equal(value, other.tensors[name]) for name, value in last.tensors.items())


def test_the_last_checkpoint_gives_the_result(uninterrupted):
    wanted, whole = uninterrupted
    recorder = Recorder()
    resume = whole.checkpoints[-1]
    got = train_feature_selector(CONFIG, TRAIN, TEST, resume=resume, callbacks=recorder)
    assert got == wanted and recorder.asked == 0


def test_a_stop_at_the_last_step_is_no_stop(uninterrupted):
    recorder = Recorder(48)
    result = train_feature_selector(CONFIG, TRAIN, TEST, callbacks=recorder)
    assert result == uninterrupted[0] and len(recorder.checkpoints) == 3


def test_progress_tells_losses_tests_and_iterations(uninterrupted):
    result, whole = uninterrupted
    assert [report.step for report in whole.reports] == [10, 16, 20, 30, 32, 40, 48]
    assert [report.epoch for report in whole.reports] == [1, 1, 2, 2, 2, 3, 3]
    assert all(report.total_steps == 48 for report in whole.reports)
    for report in whole.reports:
        tested = {"test_loss", "test_accuracy"} if report.step % 16 == 0 else set()
        assert set(report.metrics) == {"loss"} | tested
    # every example of the three epochs had its mask solved for once
    assert sum(sum(report.iterations.values()) for report in whole.reports) == 3 * 500
    assert whole.reports[-1].metrics["test_loss"] == result.test_loss


def test_checkpoints_are_made_for_safetensors_and_json(uninterrupted):
    for checkpoint in uninterrupted[1].checkpoints:
        values = checkpoint.tensors.values()
        assert all(value.is_contiguous() and value.device.type == "cpu" for value in values)
        assert not any(value.requires_grad for value in values)
        assert len({value.untyped_storage().data_ptr() for value in values}) == len(values)
        assert json.loads(json.dumps(checkpoint.meta)) == checkpoint.meta
    assert [checkpoint.meta["step"] for checkpoint in uninterrupted[1].checkpoints] == [16, 32, 48]


def test_checkpoints_are_not_changed_by_going_on(uninterrupted):
    first, last = uninterrupted[1].checkpoints[0], uninterrupted[1].checkpoints[-1]
    assert not torch.equal(first.tensors["model.logits"], last.tensors["model.logits"])


def test_seeds_decide():
    runs = [
        train_feature_selector(dataclasses.replace(CONFIG, epochs=1, seed=seed), TRAIN, TEST)
        for seed in (0, 0, 1)
    ]
    assert runs[0] == runs[1] != runs[2]


def test_the_global_generator_is_left_alone():
    torch.manual_seed(3)
    wanted = torch.rand(1)
    torch.manual_seed(3)
    train_feature_selector(dataclasses.replace(CONFIG, epochs=1), TRAIN, TEST)
    assert torch.equal(torch.rand(1), wanted)


@pytest.mark.parametrize(
    "change", [{"k": 4}, {"seed": 1}, {"hidden": (32,)}, {"tau": 0.5}], ids=str
)
def test_a_checkpoint_of_another_config_is_refused(uninterrupted, change):
    other = dataclasses.replace(CONFIG, **change)
    message = "^train_feature_selector: resume must be a checkpoint with the config .*; got"
    with pytest.raises(ValueError, match=message):
        train_feature_selector(other, TRAIN, TEST, resume=uninterrupted[1].checkpoints[0])


def test_a_checkpoint_of_other_data_is_refused(uninterrupted):
    resume = uninterrupted[1].checkpoints[0]
    with pytest.raises(ValueError, match="resume must be a checkpoint with the shapes"):
        train_feature_selector(CONFIG, synthetic(400, 0), TEST, resume=resume)


@pytest.mark.parametrize("step", [None, -1, 49, "3"])
def test_a_checkpoint_of_no_step_is_refused(uninterrupted, step):
    good = uninterrupted[1].checkpoints[0]
    bad = Checkpoint(good.tensors, good.meta | {"step": step})
    with pytest.raises(ValueError, match=r"resume must have its step in \[0, 48\]; got"):
        train_feature_selector(CONFIG, TRAIN, TEST, resume=bad)


def test_a_checkpoint_without_its_tensors_is_refused(uninterrupted):
    good = uninterrupted[1].checkpoints[0]
    bad = Checkpoint({k: v for k, v in good.tensors.items() if "logits" not in k}, good.meta)
    with pytest.raises(ValueError, match="resume must have the tensors of this model; got"):
        train_feature_selector(CONFIG, TRAIN, TEST, resume=bad)


def test_the_informative_features_are_found():
    config = FeatureSelectionConfig(k=3, epochs=20)
    result = train_feature_selector(config, synthetic(2000, 0), TEST)
    assert result.features == INFORMATIVE
    assert len(result.scores) == 20 and result.test_accuracy > 0.9


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_of_k_of_n_finds_them(estimator):
    """But the one that never draws: it keeps what it begins with, and sees nothing else."""
    slow = estimator in ("score_function", "ncpss")
    config = dataclasses.replace(CONFIG, estimator=estimator, epochs=40 if slow else 15)
    recorder = Recorder()
    result = train_feature_selector(config, TRAIN, TEST, callbacks=recorder)
    assert (result.features == INFORMATIVE) == (estimator != "st_topk")
    solved = any(report.iterations for report in recorder.reports)
    assert solved == (estimator == "pi_st")


@pytest.mark.parametrize("estimator", ["score_function", "simple", "gumbel_sigmoid"])
def test_with_any_estimator_a_resumed_training_is_the_same_to_the_bit(estimator):
    config = dataclasses.replace(CONFIG, estimator=estimator, last_tau=0.3)
    wanted, stopped = train_feature_selector(config, TRAIN, TEST), Recorder(21)
    assert train_feature_selector(config, TRAIN, TEST, callbacks=stopped) is None
    resume = stored(stopped.checkpoints[-1])
    assert train_feature_selector(config, TRAIN, TEST, resume=resume) == wanted


def test_the_temperature_goes_to_its_end_by_equal_factors():
    config = dataclasses.replace(CONFIG, tau=8.0, last_tau=0.5)
    assert [config.tau_at(share) for share in (0, 0.25, 0.5, 1)] == pytest.approx([8, 4, 2, 0.5])
    assert CONFIG.tau_at(0.7) == 1.0


def test_the_baseline_of_an_example_is_the_mean_loss_of_the_others():
    losses = torch.tensor([1.0, 2.0, 6.0])
    assert _means_of_others(losses).tolist() == [4.0, 3.5, 1.5]
    assert _means_of_others(losses[:1]).tolist() == [0.0]


def test_digits_by_ten_pixels():
    digits = load_digits()
    order = torch.randperm(1797, generator=torch.Generator().manual_seed(0))
    x = torch.tensor(digits.data, dtype=torch.float32)[order] / 16
    y = torch.tensor(digits.target, dtype=torch.int64)[order]
    result = train_feature_selector(
        FeatureSelectionConfig(k=10), Examples(x[:1437], y[:1437]), Examples(x[1437:], y[1437:])
    )
    assert len(result.features) == 10 and result.test_accuracy > 0.85


def test_bad_numbers_are_divergence():
    bad = Examples(TRAIN.x.clone(), TRAIN.y)
    bad.x[7, 3] = math.nan
    with pytest.raises(Diverged, match="^train_feature_selector: .* must stay finite; got .* step"):
        train_feature_selector(CONFIG, bad, TEST)
    with pytest.raises(Diverged, match="losses must stay finite; got nan at step 16"):
        train_feature_selector(CONFIG, TRAIN, bad)


def test_a_huge_learning_rate_is_divergence():
    config = dataclasses.replace(CONFIG, learning_rate=1e30)
    with pytest.raises(Diverged, match="must stay finite"):
        train_feature_selector(config, TRAIN, TEST)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "k must be an integer of at least 1; got 0"),
        ({"k": 2.0}, "k must be an integer of at least 1; got 2.0"),
        ({"epochs": True}, "epochs must be an integer of at least 1; got True"),
        ({"batch_size": -1}, "batch_size must be an integer of at least 1; got -1"),
        ({"hidden": [64]}, r"hidden must be a tuple of integers of at least 1; got \[64\]"),
        ({"hidden": (0,)}, r"hidden must be a tuple of integers of at least 1; got \(0,\)"),
        ({"learning_rate": 0.0}, "learning_rate must be in \\(0, 1e30\\]; got 0.0"),
        ({"mask_learning_rate": "1"}, "mask_learning_rate must be a number; got '1'"),
        ({"last_tau": 0}, r"last_tau must be in \(0, 1e30\]; got 0"),
        ({"estimator": "magic"}, "estimator must be one of pi_st, .*; got 'magic'"),
        ({"estimator": "reinmax"}, "estimator must be one of pi_st, .*; got 'reinmax'"),
        ({"tau": math.nan}, "tau must be in .*; got nan"),
        ({"seed": 2**64}, "seed must be an integer of 64 bits; got"),
        ({"seed": 0.5}, "seed must be an integer of 64 bits; got 0.5"),
    ],
    ids=str,
)
def test_bad_configs_are_refused(change, message):
    with pytest.raises(ValueError, match=f"^FeatureSelectionConfig: {message}"):
        dataclasses.replace(CONFIG, **change)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.ones(3), torch.zeros(3).long(), r"x must be float32 of shape \(m, n\).*; got"),
        (torch.ones(3, 2).double(), torch.zeros(3).long(), "x must be float32 .*; got float64"),
        (torch.ones(0, 2), torch.zeros(0).long(), "x must be float32"),
        (torch.ones(3, 2), torch.zeros(3), r"y must be int64 of shape \(3,\); got float32"),
        (torch.ones(3, 2), torch.zeros(2).long(), r"y must be int64 of shape \(3,\); got int64"),
        (torch.ones(3, 2), torch.tensor([0, 1, -1]), "y must be at least 0; got -1"),
    ],
)
def test_bad_examples_are_refused(x, y, message):
    with pytest.raises(ValueError, match=f"^Examples: {message}"):
        Examples(x, y)


def test_data_that_do_not_fit_are_refused():
    narrow = Examples(TEST.x[:, :7], TEST.y)
    with pytest.raises(ValueError, match="test must have the 20 features of train; got 7"):
        train_feature_selector(CONFIG, TRAIN, narrow)
    with pytest.raises(ValueError, match=r"k must be in \[1, 20\].*; got 21"):
        train_feature_selector(dataclasses.replace(CONFIG, k=21), TRAIN, TEST)
