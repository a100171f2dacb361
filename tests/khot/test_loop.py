"""The loop: stages, early stopping, the best model, and resumption at every step."""

import json
import math

import pytest
import torch
from torch import nn

from khot import Diagnostics
from khot.training import Roots
from khot.training.loop import Callbacks, Checkpoint, Diverged, Stage, Task, run

pytestmark = pytest.mark.usefixtures("one_thread")
STEPS = 3  # in an epoch


class Line(Task):
    """Learns y = 2 x + offset; its validation losses are told in advance, one for each epoch."""

    def __init__(self, validation, *, patience=None, offset=0.0, first=1, bad=None, identity=None):
        model = nn.Linear(1, 1)
        with torch.no_grad():
            model.weight.fill_(0.5)
            model.bias.fill_(0.25)
        self.validation, self.offset, self.first, self.bad = validation, offset, first, bad or {}
        super().__init__(
            who="train_line",
            identity=identity or {"kind": "line"},
            model=model,
            optimizer=torch.optim.Adam(model.parameters(), 0.1, fused=True),
            epochs=len(validation),
            steps_per_epoch=STEPS,
            patience=patience,
            unit=4.0,
        )

    def loss(self, step):
        x = torch.sin(torch.arange(4.0) + step).unsqueeze(-1)
        loss = (self.model(x) - 2 * x - self.offset).square().mean()
        if step in self.bad:
            loss = self.bad[step](loss, self.model)
        iterations = torch.tensor([step % 2, 5], dtype=torch.int32)
        residual = torch.tensor([0.0, 1e-3], dtype=torch.float64)
        return loss, Diagnostics(residual, iterations, residual, iterations == 5)

    def evaluate(self):
        assert not self.model.training and not torch.is_grad_enabled()
        self.memory.append(self.model.bias.item())
        return {"validation_loss": self.validation[len(self.memory) - 1]}

    def eligible(self, epoch):
        return epoch >= self.first


class Recorder(Callbacks):
    """Remembers everything, stops after some steps if asked to, and wants few checkpoints if so."""

    def __init__(self, stop_after=None, wanted=None):
        self.stop_after, self.wanted, self.asked = stop_after, wanted, 0
        self.reports, self.checkpoints, self.offers = [], [], []

    def progress(self, progress):
        self.reports.append(progress)

    def checkpoint(self, checkpoint):
        self.checkpoints.append(checkpoint)

    def wants_checkpoint(self, step, epoch_ends):
        self.offers.append((step, epoch_ends))
        return epoch_ends if self.wanted is None else step in self.wanted

    def should_stop(self):
        self.asked += 1
        return self.asked == self.stop_after


def single(task):
    return [Stage("only", task.steps, lambda _: task)]


def three():
    """Three stages, of which the first two end early, and the others depend on the first."""
    lengths = (6, 5, 4)

    def second(outcomes):
        return Line([1.0, 2.0, 2.0, 2.0, 2.0], patience=2, offset=bias(outcomes["first"]))

    def third(outcomes):
        return Line([3.0, 2.0, 1.0, 0.0], offset=bias(outcomes["first"]) + bias(outcomes["second"]))

    def first(_):
        return Line([5.0, 4.0, 9.0, 3.0, 8.0, 7.0], patience=1, first=2)

    makers = (first, second, third)
    names = ("first", "second", "third")
    return [Stage(*part) for part in zip(names, (STEPS * n for n in lengths), makers, strict=True)]


def bias(outcome):
    return outcome.task.model.bias.item()


def weights(outcomes):
    return {
        name: [value.tolist() for value in outcome.task.model.state_dict().values()]
        for name, outcome in outcomes.items()
    }


def summary(outcomes):
    return {name: (o.epochs, o.epoch, o.metrics, o.task.memory) for name, o in outcomes.items()}


def stored(checkpoint):
    """As it comes back from a disk."""
    tensors = {name: value.clone() for name, value in checkpoint.tensors.items()}
    return Checkpoint(tensors, json.loads(json.dumps(checkpoint.meta)))


def test_the_best_model_is_kept():
    whole = Line([5.0, 1.0, 3.0])
    outcome = run(single(whole), resume=None, callbacks=Callbacks())["only"]
    alone = run(single(Line([5.0, 1.0])), resume=None, callbacks=Callbacks())["only"]
    assert weights({"": outcome}) == weights({"": alone})
    assert (outcome.epochs, outcome.epoch, outcome.metrics) == (3, 2, {"validation_loss": 1.0})


def test_only_an_eligible_model_is_kept():
    outcome = run(single(Line([0.0, 2.0, 1.0, 3.0], first=2)), resume=None, callbacks=Callbacks())
    assert outcome["only"].epoch == 3
    none = run(single(Line([0.0, 2.0], first=9)), resume=None, callbacks=Callbacks())["only"]
    assert (none.epoch, none.metrics) == (2, {"validation_loss": 2.0})


@pytest.mark.parametrize(
    ("validation", "patience", "first", "ran"),
    [
        ([3.0, 2.0, 2.0, 2.5, 1.0, 0.0], 2, 1, 4),  # equal is not lower
        ([3.0, 2.0, 2.0, 1.0, 1.0, 0.0], 2, 1, 6),
        ([3.0, 4.0, 5.0, 6.0], None, 1, 4),
        ([0.0, 4.0, 5.0, 6.0, 7.0], 1, 3, 4),  # what is not eligible does not count
    ],
)
def test_a_training_ends_when_patience_does(validation, patience, first, ran):
    task, recorder = Line(validation, patience=patience, first=first), Recorder()
    outcome = run(single(task), resume=None, callbacks=recorder)["only"]
    assert outcome.epochs == ran and recorder.asked == ran * STEPS
    assert recorder.reports[-1].total_steps == len(validation) * STEPS


def test_progress_has_the_stage_and_a_step_that_jumps():
    recorder = Recorder()
    run(three(), resume=None, callbacks=recorder)
    ends = {r.step: r for r in recorder.reports if any("validation" in m for m in r.metrics)}
    # the first ends after 3 of 6 epochs, the second after 3 of 5
    assert list(ends) == [3, 6, 9, 21, 24, 27, 36, 39, 42, 45]
    assert [r.stage for r in ends.values()] == ["first"] * 3 + ["second"] * 3 + ["third"] * 4
    assert [r.epoch for r in ends.values()] == [1, 2, 3, 1, 2, 3, 1, 2, 3, 4]
    assert all(r.total_steps == 45 for r in recorder.reports)
    assert set(ends[9].metrics) == {"loss", "validation_loss"}
    assert set(ends[21].metrics) == {"second.loss", "second.validation_loss"}
    roots = Roots()
    for report in recorder.reports:
        roots.merge(report.roots)
    assert sum(roots.iterations.values()) == 2 * recorder.asked
    assert roots.residuals == {-16: recorder.asked, -3: recorder.asked}
    assert roots.fallback == roots.nonconverged == recorder.asked


def test_the_loss_is_reported_in_its_unit():
    first, recorder = Line([1.0]).loss(0)[0].item(), Recorder(stop_after=1)
    run(single(Line([1.0])), resume=None, callbacks=recorder)
    assert recorder.checkpoints[0].meta["counted"][0] == [4 * first]


def test_stopped_at_every_step_and_resumed_it_is_the_same_to_the_bit():
    whole = Recorder()
    wanted = run(three(), resume=None, callbacks=whole)
    reports, resume, last = [], None, None
    for _ in range(whole.asked - 1):
        recorder = Recorder(stop_after=1)
        assert run(three(), resume=resume, callbacks=recorder) is None
        reports += recorder.reports
        (checkpoint,) = recorder.checkpoints
        resume = stored(checkpoint)
    recorder = Recorder(stop_after=1)  # a stop at the last step is none
    got = run(three(), resume=resume, callbacks=recorder)
    assert weights(got) == weights(wanted) and summary(got) == summary(wanted)
    assert reports + recorder.reports == whole.reports
    last, other = recorder.checkpoints[-1], whole.checkpoints[-1]
    assert last.meta == other.meta and list(last.tensors) == list(other.tensors)
    assert all(torch.equal(value, other.tensors[name]) for name, value in last.tensors.items())


def test_every_checkpoint_leads_to_the_same_end():
    whole = Recorder()
    wanted = run(three(), resume=None, callbacks=whole)
    steps = [checkpoint.meta["step"] for checkpoint in whole.checkpoints]
    # at a stage's end, where the next begins
    assert steps == [3, 6, 18, 21, 24, 33, 36, 39, 42, 45]
    for checkpoint in whole.checkpoints:
        recorder = Recorder()
        got = run(three(), resume=stored(checkpoint), callbacks=recorder)
        assert weights(got) == weights(wanted) and summary(got) == summary(wanted)
        if recorder.reports:
            assert recorder.reports == whole.reports[-len(recorder.reports) :]
    assert recorder.asked == 0  # after the last there was nothing to do


def test_checkpoints_are_made_where_they_are_wanted_and_at_a_stop():
    recorder = Recorder(stop_after=11, wanted={6, 10})
    assert run(single(Line([1.0] * 4)), resume=None, callbacks=recorder) is None
    assert recorder.offers == [(3, True), (6, True), (9, True), (10, False)]
    assert [checkpoint.meta["step"] for checkpoint in recorder.checkpoints] == [6, 10, 11]


def test_checkpoints_are_made_for_safetensors_and_json():
    recorder = Recorder()
    run(three(), resume=None, callbacks=recorder)
    for checkpoint in recorder.checkpoints:
        values = checkpoint.tensors.values()
        assert all(value.is_contiguous() and value.device.type == "cpu" for value in values)
        assert not any(value.requires_grad for value in values)
        assert len({value.untyped_storage().data_ptr() for value in values}) == len(values)
        assert json.loads(json.dumps(checkpoint.meta)) == checkpoint.meta


def test_checkpoints_are_not_changed_by_going_on():
    recorder = Recorder()
    run(single(Line([3.0, 2.0, 1.0])), resume=None, callbacks=recorder)
    biases = [c.tensors["model.bias"].item() for c in recorder.checkpoints[:2]]
    assert biases[0] != biases[1]
    assert recorder.checkpoints[0].tensors["best.bias"].item() == biases[0]


def ruined(_, model):
    """The parameters are no longer finite, and the loss does not see it."""
    with torch.no_grad():
        model.bias.fill_(math.nan)
    return model.weight.sum()


def refusing(_, model):
    ruined(_, model)
    raise ValueError("an operator refuses NaN")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({7: lambda loss, _: loss * math.nan}, "losses must stay finite; got nan at step 8"),
        ({7: lambda loss, _: loss * math.inf}, "losses must stay finite; got inf at step 8"),
        ({7: ruined, 8: ruined}, "parameters must stay finite; got others by step 9"),
        ({7: refusing}, "parameters must stay finite; got others by step 7"),
    ],
)
def test_divergence_is_found_and_in_no_checkpoint(bad, message):
    recorder = Recorder()
    with pytest.raises(Diverged, match=f"^train_line: {message}"):
        run(single(Line([3.0, 2.0, 1.0], bad=bad)), resume=None, callbacks=recorder)
    assert [checkpoint.meta["step"] for checkpoint in recorder.checkpoints] == [3, 6]
    for checkpoint in recorder.checkpoints:
        assert all(bool(value.isfinite().all()) for value in checkpoint.tensors.values())


def test_divergence_is_found_at_a_stop():
    recorder = Recorder(stop_after=8)
    with pytest.raises(Diverged, match="parameters must stay finite; got others by step 8"):
        run(single(Line([3.0, 2.0, 1.0], bad={7: ruined})), resume=None, callbacks=recorder)
    assert [checkpoint.meta["step"] for checkpoint in recorder.checkpoints] == [3, 6]


def test_what_is_measured_must_be_finite():
    with pytest.raises(Diverged, match="losses must stay finite; got nan at step 6"):
        run(single(Line([3.0, math.nan])), resume=None, callbacks=Callbacks())


def test_an_error_that_is_no_divergence_is_its_own():
    def broken(_, __):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="^mine$"):
        run(single(Line([1.0], bad={1: broken})), resume=None, callbacks=Callbacks())


@pytest.fixture(scope="module")
def half_way():
    recorder = Recorder(stop_after=4)
    run(single(Line([2.0, 1.0])), resume=None, callbacks=recorder)
    return recorder.checkpoints[-1]


def resumed(checkpoint, **changes):
    task = Line([2.0, 1.0], **changes)
    return run(single(task), resume=checkpoint, callbacks=Callbacks())


def test_a_checkpoint_of_another_training_is_refused(half_way):
    message = "^train_line: resume must be a checkpoint with the kind other; got line"
    with pytest.raises(ValueError, match=message):
        resumed(half_way, identity={"kind": "other"})


@pytest.mark.parametrize("step", [None, -1, 7, "3"])
def test_a_checkpoint_of_no_step_is_refused(half_way, step):
    bad = Checkpoint(half_way.tensors, half_way.meta | {"step": step})
    with pytest.raises(ValueError, match=r"resume must have its step in \[0, 6\]; got"):
        resumed(bad)


@pytest.mark.parametrize("name", ["model.bias", "best.weight"])
def test_a_checkpoint_without_its_tensors_is_refused(half_way, name):
    short = name.partition(".")[2]
    tensors = {key: value for key, value in half_way.tensors.items() if key != name}
    message = f"resume must have the tensors of this model; got others in {short}"
    with pytest.raises(ValueError, match=message):
        resumed(Checkpoint(tensors, half_way.meta))
    tensors[name] = torch.zeros(7)
    with pytest.raises(ValueError, match=message):
        resumed(Checkpoint(tensors, half_way.meta))
