"""Training a VAE: what it reaches, what it reports, and that it resumes bit for bit."""

import dataclasses
import itertools
import json
import math

import pytest
import torch
from sklearn.datasets import load_digits
from torch.nn import functional

from khot import models
from khot.models import KHotVAE
from khot.models._inclusion import EXACT
from khot.models.feature_selector import ESTIMATORS
from khot.training import (
    Callbacks,
    Checkpoint,
    Diverged,
    Examples,
    Split,
    UnlabelledSplit,
    VAEConfig,
    evaluate_vae,
    train_vae,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def digits() -> torch.Tensor:
    x = torch.tensor(load_digits().data, dtype=torch.float32) / 16
    return x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))]


DIGITS = UnlabelledSplit(*digits().split([1300, 200, 297]))
SMALL = UnlabelledSplit(DIGITS.train[:250], DIGITS.validation[:60], DIGITS.test[:50])
CONFIG = VAEConfig(
    latents=3, n=6, k=2, encoder=(16,), decoder=(16,), epochs=3, batch_size=32, learning_rate=3e-3
)  # 8 steps an epoch of SMALL


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


def same(one, other) -> bool:
    """Whether two results are, to the bit."""
    state, others = one.model.state_dict(), other.model.state_dict()
    return (
        (one.test, one.validation, one.epochs_run, one.best_epoch)
        == (other.test, other.validation, other.epochs_run, other.best_epoch)
        and torch.equal(one.usage, other.usage)
        and all(torch.equal(value, others[name]) for name, value in state.items())
    )


CHANGES = [
    {},
    {"estimator": "simple", "prior": "exact", "last_tau": 0.5},
    {"estimator": "score_function", "patience": 1},
    {"estimator": "gumbel_sigmoid", "last_tau": 0.2},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_resumed_training_is_the_same_to_the_bit(change):
    config, whole = dataclasses.replace(CONFIG, **change), Recorder()
    wanted = train_vae(config, SMALL, callbacks=whole)
    reports, resume = [], None
    for stop in (3, 5, 6):  # in an epoch, at the end of one, and in the next
        recorder = Recorder(stop)
        torch.rand(7)  # the global generator is not looked at
        assert train_vae(config, SMALL, resume=resume, callbacks=recorder) is None
        reports += recorder.reports
        resume = stored(recorder.checkpoints[-1])
    recorder = Recorder()
    assert same(train_vae(config, SMALL, resume=resume, callbacks=recorder), wanted)
    assert reports + recorder.reports == whole.reports
    last, other = recorder.checkpoints[-1], whole.checkpoints[-1]
    assert last.meta == other.meta and list(last.tensors) == list(other.tensors)
    assert all(torch.equal(value, other.tensors[name]) for name, value in last.tensors.items())


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    train_vae(dataclasses.replace(CONFIG, epochs=1), SMALL)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("hard", [False, True])
def test_every_estimator_takes_steps(estimator, hard):
    k = ESTIMATORS[estimator].only_k or 2
    config = dataclasses.replace(CONFIG, estimator=estimator, k=k, hard=hard, epochs=2)
    recorder = Recorder()
    result = train_vae(config, SMALL, callbacks=recorder)
    assert [report.step for report in recorder.reports] == [8, 10, 16]
    metrics = recorder.reports[-1].metrics
    exact = {"validation_elbo"} if estimator in EXACT else set()
    assert set(metrics) == exact | {
        "loss",
        "validation_loss",
        "validation_reconstruction",
        "validation_prior",
        "validation_top_reconstruction",
    }
    assert all(math.isfinite(value) for value in metrics.values())
    # 64 pixels of even chance cost 44.4
    assert 20 < result.test_loss < 45 and (result.test_elbo is None) == (not exact)
    solved = [sum(report.roots.iterations.values()) for report in recorder.reports]
    assert solved == [0, 32 * 3 if ESTIMATORS[estimator].with_diagnostics else 0, 0]


def test_the_loss_falls_below_that_of_the_mean_image():
    config = dataclasses.replace(
        CONFIG, latents=4, n=8, k=3, encoder=(64,), decoder=(64,), epochs=20
    )
    mean = DIGITS.train.mean(0).clamp(1e-6, 1 - 1e-6).expand_as(DIGITS.test)
    of_mean = functional.binary_cross_entropy(mean, DIGITS.test, reduction="none").sum(-1).mean()
    result = train_vae(config, DIGITS)
    assert result.test_loss < float(of_mean) - 2
    assert result.test["prior"] > 0.5  # the code says something


def test_with_the_exact_prior_an_elbo_is_reported():
    config = dataclasses.replace(CONFIG, estimator="simple", prior="exact")
    recorder = Recorder()
    result = train_vae(config, SMALL, callbacks=recorder)
    assert result.test_loss is None and result.test_elbo == result.test["elbo"]
    for terms in (result.test, result.validation):
        assert set(terms) == {"elbo", "reconstruction", "prior", "top_reconstruction"}
        assert terms["elbo"] == -(terms["reconstruction"] + terms["prior"]) < 0 < terms["prior"]
    last = recorder.reports[-1].metrics
    assert last["validation_elbo"] == -last["validation_loss"]


def test_the_elbo_is_the_same_whichever_prior_is_trained_with():
    config = dataclasses.replace(CONFIG, estimator="simple", epochs=3)
    result = train_vae(config, SMALL)
    assert set(result.test) == {"loss", "elbo", "reconstruction", "prior", "top_reconstruction"}
    assert result.test["loss"] == result.test["reconstruction"] + result.test["prior"]
    exact = KHotVAE(**{**result.model.arguments, "prior": "exact"})
    exact.load_state_dict(result.model.state_dict())
    terms = evaluate_vae(exact, SMALL.test, seed=config.seed)
    assert terms["elbo"] == pytest.approx(result.test_elbo, rel=1e-6)
    assert terms["reconstruction"] == result.test["reconstruction"]
    assert terms["prior"] != pytest.approx(result.test["prior"], rel=1e-2)


def test_the_bound_of_other_codes_is_that_of_the_k_subset_law_of_their_logits():
    config = dataclasses.replace(CONFIG, estimator="pi_st", epochs=2, bound=True)
    result = train_vae(config, SMALL)
    terms = {"reconstruction", "prior", "top_reconstruction"}
    assert set(result.test) == {"loss", "subset_elbo", *terms}
    assert set(result.validation) == set(result.test) and result.test_elbo is None
    exact = KHotVAE(**{**result.model.arguments, "estimator": "simple", "prior": "exact"})
    exact.load_state_dict(result.model.state_dict())
    own = evaluate_vae(exact, SMALL.test, seed=config.seed)
    assert result.test["subset_elbo"] == pytest.approx(own["elbo"], rel=1e-6)
    assert set(evaluate_vae(exact, SMALL.test, bound=True)) == set(own), "it has its own"
    plain = train_vae(dataclasses.replace(config, bound=False), SMALL)
    assert plain.test == {n: v for n, v in result.test.items() if n != "subset_elbo"}


def test_imle_learns_at_its_strength_by_its_noise():
    config = dataclasses.replace(CONFIG, estimator="imle", epochs=2)
    changes = ({}, {"strength": 10.0}, {"noise": "gumbel"}, {"strength": 1.0})
    one, ten, gumbel, other = (
        train_vae(dataclasses.replace(config, **change), SMALL).model.encoder[0].weight
        for change in changes
    )
    assert torch.equal(one, other)
    assert not torch.equal(one, ten) and not torch.equal(one, gumbel)


def test_the_result_is_that_of_the_best_epoch_and_training_ends_by_patience():
    # few examples are soon learned by heart
    few = UnlabelledSplit(SMALL.train[:24], SMALL.validation, SMALL.test)
    config = dataclasses.replace(
        CONFIG, epochs=300, patience=2, learning_rate=3e-2, batch_size=8, last_tau=0.5
    )
    recorder = Recorder()
    result = train_vae(config, few, callbacks=recorder)
    ends = [report for report in recorder.reports if "validation_loss" in report.metrics]
    losses = [report.metrics["validation_loss"] for report in ends]
    best = min(range(len(losses)), key=losses.__getitem__)
    assert len(losses) == result.epochs_run == result.best_epoch + 2 < 300
    assert best + 1 == result.best_epoch and result.validation["loss"] == losses[best]
    # with the temperature it had then
    assert result.model.tau == config.tau_at((3 * result.best_epoch - 1) / 900)
    assert evaluate_vae(result.model, few.validation, seed=config.seed) == result.validation


def test_an_evaluation_is_a_function_of_model_examples_and_seed():
    config = dataclasses.replace(CONFIG, estimator="gumbel_sigmoid", seed=5)
    result = train_vae(config, SMALL)
    model = result.model
    assert not model.training
    assert evaluate_vae(model, SMALL.test, seed=5) == result.test
    assert evaluate_vae(model.train(), SMALL.test, seed=5) == result.test  # hard all the same
    assert model.training
    assert evaluate_vae(model, SMALL.test, seed=6) != result.test
    assert evaluate_vae(model, SMALL.test, seed=6)["prior"] == result.test["prior"]


def test_an_evaluation_in_parts_is_that_of_the_whole():
    model = train_vae(dataclasses.replace(CONFIG, epochs=1), SMALL).model
    x = DIGITS.train[:1250]  # more than are evaluated at once
    whole = evaluate_vae(model, x)
    first = evaluate_vae(model, x[:1000])
    again = evaluate_vae(model, torch.cat((x[:1000], x[:250])))
    assert whole["prior"] == pytest.approx(
        (1000 * first["prior"] + 250 * evaluate_vae(model, x[1000:])["prior"]) / 1250
    )
    # the draws of the second part are not those of the first again
    assert again["reconstruction"] != pytest.approx(
        (1000 * first["reconstruction"] + 250 * evaluate_vae(model, x[:250])["reconstruction"])
        / 1250,
        rel=1e-9,
    )


def test_usage_is_over_the_test_examples():
    result = train_vae(dataclasses.replace(CONFIG, epochs=1), SMALL)
    assert torch.equal(result.usage, result.model.usage(SMALL.test))


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_saved_model_has_the_loss_of_the_result(change, tmp_path):
    config = dataclasses.replace(CONFIG, epochs=1, **change)
    result = train_vae(config, SMALL)
    models.save(result.model, tmp_path / "vae.safetensors")
    loaded = models.load(tmp_path / "vae.safetensors")
    assert evaluate_vae(loaded, SMALL.test, seed=config.seed) == result.test
    assert torch.equal(loaded.usage(SMALL.test), result.usage)


def test_another_seed_is_another_training():
    one, other = (train_vae(dataclasses.replace(CONFIG, seed=s, epochs=1), SMALL) for s in (0, 1))
    assert one.test != other.test


def test_a_checkpoint_of_another_training_is_refused():
    recorder = Recorder(3)
    assert train_vae(CONFIG, SMALL, callbacks=recorder) is None
    resume = recorder.checkpoints[-1]
    with pytest.raises(ValueError, match="^train_vae: resume must be a checkpoint with the config"):
        train_vae(dataclasses.replace(CONFIG, n=7), SMALL, resume=resume)
    fewer = dataclasses.replace(SMALL, train=SMALL.train[:200])
    with pytest.raises(ValueError, match="^train_vae: resume must be a checkpoint with the shapes"):
        train_vae(CONFIG, fewer, resume=resume)


def test_a_checkpoint_of_an_earlier_version_goes_on():
    """It knows nothing of a field that came later, and so means its default."""
    recorder = Recorder(3)
    assert train_vae(CONFIG, SMALL, callbacks=recorder) is None
    resume = recorder.checkpoints[-1]
    del resume.meta["config"]["strength"]
    assert train_vae(CONFIG, SMALL, resume=resume).test == train_vae(CONFIG, SMALL).test
    with pytest.raises(ValueError, match="resume must be a checkpoint with the config"):
        train_vae(dataclasses.replace(CONFIG, strength=2.0), SMALL, resume=resume)


def test_a_huge_learning_rate_is_divergence():
    with pytest.raises(Diverged, match="^train_vae: .* must stay finite"):
        train_vae(dataclasses.replace(CONFIG, learning_rate=1e30), SMALL)


def test_a_split_with_labels_can_lose_them():
    parts = (SMALL.train, SMALL.validation, SMALL.test)
    labelled = Split(*(Examples(x, torch.zeros(len(x), dtype=torch.int64)) for x in parts))
    bare = UnlabelledSplit.of(labelled)
    for one, other in zip((bare.train, bare.validation, bare.test), parts, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["train", "validation", "test"])
@pytest.mark.parametrize("value", [-1e-6, 1.01, math.nan, math.inf])
def test_values_that_are_no_pixels_are_refused(name, value):
    bad = getattr(SMALL, name).clone()
    bad[[3, 4], [5, 6]] = value
    must = rf"{name} must be in \[0, 1\], the range of a pixel; got others in 2 of {len(bad)} rows"
    with pytest.raises(ValueError, match=f"^UnlabelledSplit: {must}"):
        dataclasses.replace(SMALL, **{name: bad})


def test_examples_of_other_kinds_are_refused():
    for bad in (SMALL.test.double(), SMALL.test[0], SMALL.test[:0]):
        with pytest.raises(ValueError, match=r"test must be float32 of shape \(m, d\).*; got"):
            dataclasses.replace(SMALL, test=bad)
    with pytest.raises(ValueError, match="validation must have the 64 features of train; got 7"):
        dataclasses.replace(SMALL, validation=SMALL.validation[:, :7])
    model = train_vae(dataclasses.replace(CONFIG, epochs=1), SMALL).model
    with pytest.raises(ValueError, match=r"^evaluate_vae: x must be in \[0, 1\]"):
        evaluate_vae(model, 2 * SMALL.test)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"latents": 0}, "latents must be an integer of at least 1; got 0"),
        ({"n": 2.0}, "n must be an integer of at least 1; got 2.0"),
        ({"k": 7}, r"k must be in \[1, 6\], the number of units; got 7"),
        ({"epochs": True}, "epochs must be an integer of at least 1; got True"),
        ({"patience": 0}, "patience must be an integer of at least 1; got 0"),
        ({"encoder": [64]}, r"encoder must be a tuple of integers of at least 1; got \[64\]"),
        ({"decoder": (0,)}, r"decoder must be a tuple of integers of at least 1; got \(0,\)"),
        ({"learning_rate": 0.0}, r"learning_rate must be in \(0, 1e30\]; got 0.0"),
        ({"tau": "1"}, "tau must be a number; got '1'"),
        ({"last_tau": math.nan}, r"last_tau must be in \(0, 1e30\]; got nan"),
        ({"hard": 1}, "hard must be True or False; got 1"),
        ({"bound": "no"}, "bound must be True or False; got 'no'"),
        ({"strength": 0.0}, r"strength must be in \(0, 1e30\]; got 0.0"),
        ({"noise": "white"}, "noise must be one of sum_of_gamma, gumbel; got 'white'"),
        ({"estimator": "magic"}, "estimator must be one of pi_st, .*; got 'magic'"),
        ({"estimator": "reinmax"}, "k must be 1 with the estimator reinmax; got 2"),
        (
            {"prior": "exact"},
            "estimator must be one of simple, score_function for .*; got 'gumbel_",
        ),
        ({"seed": 2**64}, "seed must be an integer of 64 bits; got"),
    ],
    ids=str,
)
def test_bad_configs_are_refused(change, message):
    with pytest.raises(ValueError, match=f"^VAEConfig: {message}"):
        dataclasses.replace(CONFIG, **change)


def test_the_temperature_goes_to_its_end_by_equal_factors():
    config = dataclasses.replace(CONFIG, tau=8.0, last_tau=0.5)
    taus = [config.tau_at(share) for share in (0, 0.25, 0.5, 0.75, 1)]
    assert all(a / b == pytest.approx(2) for a, b in itertools.pairwise(taus))
    assert (taus[0], taus[-1]) == pytest.approx((8.0, 0.5)) and CONFIG.tau_at(0.7) == 1.0
