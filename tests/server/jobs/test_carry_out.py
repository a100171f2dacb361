"""What an attempt does: train, report, and say why it could not."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from khot.training import Diverged, FeatureSelectionConfig, Roots
from khot.training import Progress as Told
from khot_server.jobs import checkpoint, tasks
from khot_server.jobs.artifacts import Effects
from khot_server.jobs.messages import Began, Failed, Finished, Order, Saved, Stepped, Stopped
from khot_server.jobs.records import Point
from khot_server.jobs.spec import FeatureSelectionSpec, SparseRegressionSpec, SpecError, VaeSpec
from khot_server.jobs.states import FailureKind
from khot_server.jobs.tasks.carry_out import carry_out, failure_kind
from khot_server.jobs.tasks.reporter import Course, Reporter

pytestmark = pytest.mark.usefixtures("one_thread")

ROWS = 1258  # of digits, to train with
STEPS = 20  # of an epoch


@pytest.fixture
def order(tmp_path):
    spec = FeatureSelectionSpec(dataset="digits", k=10, epochs=2, patience=0, references=False)
    return Order(
        job_id="j",
        attempt=1,
        spec=spec,
        device="cpu",
        directory=tmp_path / "jobs" / "j",
        state_dir=tmp_path,
    )


def never():
    return False


def run(order, should_stop=never):
    sent = []
    return carry_out(order, sent.append, should_stop), sent


def of(kind, sent):
    return [report for report in sent if isinstance(report, kind)]


def test_a_training_reports_and_ends_with_a_result_and_files(order):
    last, sent = run(order)
    assert isinstance(last, Finished)
    result = last.result
    assert len(result.features) == 10 and sorted(set(result.features)) == list(result.features)
    assert len(result.scores) == 64 and result.feature_shape == (8, 8)
    assert sent[0] == Began(0)
    steps = of(Stepped, sent)
    assert steps[-1].progress.step == steps[-1].progress.total_steps == 2 * STEPS
    saved = of(Saved, sent)
    assert [s.step for s in saved] == [10, 20, 30, 40], "every ten steps, and ends of epochs"
    assert all(checkpoint.read(s.path).meta["step"] == s.step for s in saved)
    assert [file.name for file in last.artifacts] == [
        "curves.png",
        "inclusion.png",
        "metrics.csv",
        "model.safetensors",
        "report.html",
        "result.json",
    ]
    for file in last.artifacts:
        assert (order.directory / "artifacts" / file.name).stat().st_size == file.size_bytes


def test_a_reconstruction_needs_no_target_and_leaves_its_pictures(order):
    last, _ = run(replace(order, spec=replace(order.spec, objective="reconstruction")))
    assert isinstance(last, Finished), last
    result = last.result
    assert len(result.features) == 10 and set(result.test) == {"loss", "rmse", "r2"}
    assert result.classes == () and 0 < result.test["loss"] < 0.7, "that of even chance is 0.69"
    assert "reconstructions.png" in {file.name for file in last.artifacts}
    code = (order.directory / "artifacts" / "report.html").read_text()
    assert "outputs.sigmoid()" in code


def test_a_vae_leaves_its_pictures(order):
    spec = VaeSpec(dataset="digits", latents=2, n=6, k=2, epochs=1, encoder=(16,), decoder=(16,))
    last, _ = run(replace(order, spec=spec))
    assert isinstance(last, Finished), last
    names = {file.name for file in last.artifacts}
    drawn = {"reconstructions.png", "samples.png", "units.png", "usage.png", "curves.png"}
    assert drawn <= names


def test_of_very_many_units_those_that_differ_most_are_looked_at(order, monkeypatch):
    seen = []

    def effects(**parts):
        seen.append(Effects(**parts))
        return seen[-1]

    monkeypatch.setattr("khot_server.jobs.tasks.vae.UNITS", 5)
    monkeypatch.setattr("khot_server.jobs.tasks.vae.Effects", effects)
    spec = VaeSpec(dataset="digits", latents=2, n=6, k=2, epochs=1, encoder=(16,), decoder=(16,))
    last, _ = run(replace(order, spec=spec))
    assert isinstance(last, Finished), last
    p = np.array(last.result.usage)
    wanted = np.sort(np.argsort(-(p * (1 - p)))[:5])
    assert seen[0].units == tuple((i // 6, i % 6) for i in wanted.tolist())
    assert seen[0].changes.shape == (5, 64)
    assert "units.png" in {file.name for file in last.artifacts}


REGRESSION = SparseRegressionSpec(dataset="kuramoto-sivashinsky", k=3, intercept=False, steps=40)


def test_a_sparse_regression_leaves_its_equation(order):
    last, sent = run(replace(order, spec=replace(REGRESSION, steps=None)))
    assert isinstance(last, Finished), last
    assert last.result.names == ("v_xx", "v_xxxx", "v*v_x") and last.result.target == "v_t"
    assert last.result.coefficients == pytest.approx((-1, -1, -1), rel=1e-3)
    names = {file.name for file in last.artifacts}
    assert {"coefficients.png", "columns.png", "predictions.png", "curves.png"} <= names
    page = (order.directory / "artifacts/report.html").read_text()
    assert "v_t = -1.000 v_xx - 1.000 v_xxxx - 1.000 v*v_x" in page
    rows = sum(report.counted.rows for report in of(Stepped, sent))
    assert rows == 400 * 3500, "every step has all training rows"


def test_a_sparse_regression_goes_on_to_the_very_bits(order):
    order = replace(order, spec=REGRESSION)
    whole, _ = run(order)
    asked = iter(range(1000))
    stopped, sent = run(replace(order, attempt=2), lambda: next(asked) == 27)
    assert isinstance(stopped, Stopped)
    saved = of(Saved, sent)[-1]
    again, _ = run(replace(order, attempt=3, resume=saved.path))
    assert again.result == whole.result
    hashes = [{file.name: file.sha256 for file in one.artifacts} for one in (whole, again)]
    assert hashes[0]["model.safetensors"] == hashes[1]["model.safetensors"]


def test_every_measurement_is_told_once(order):
    _, sent = run(order)
    points = [point for report in of(Stepped, sent) for point in report.points]
    assert [point.step for point in points] == [10, 20, 30, 40]
    assert [point.epoch for point in points] == [1, 1, 2, 2]
    assert "validation_accuracy" in points[1].metrics and points[1].stage == "selection"


def test_iterations_are_told_of_once_each(order):
    _, sent = run(order)
    rows = sum(sum(report.counted.iterations.values()) for report in of(Stepped, sent))
    # the masks of each tenth step, of 20 in an epoch: whole batches of 64, and a last one of 42
    assert rows == 64 + 42 + 64 + 42, "each mask has a root of its own"


def test_epochs_examples_and_the_estimator_are_told(order):
    last, sent = run(replace(order, spec=replace(order.spec, references=True)))
    assert isinstance(last, Finished)
    counted = [report.counted for report in of(Stepped, sent)]
    points = [point for report in of(Stepped, sent) for point in report.points]
    epochs = sum("validation_loss" in {n.rpartition(".")[2] for n in p.metrics} for p in points)
    assert len({point.stage for point in points}) > 1
    assert sum(one.epochs for one in counted) == epochs
    assert sum(one.rows for one in counted) == epochs * ROWS
    assert {one.operator for one in counted} == {FeatureSelectionConfig(k=10).used_estimator}
    assert all(0 < saved.seconds < 10 for saved in of(Saved, sent))


@pytest.mark.parametrize(
    ("examples", "batch_size"), [(640, 64), (1258, 64), (7, 10), (3000, 7), (5, 1)]
)
def test_each_example_of_an_epoch_is_told_of_once(examples, batch_size):
    """Whenever progress is told, by the rule of the loop; and in later stages too."""
    course, per_epoch = Course("pi_st", examples, batch_size), -(-examples // batch_size)
    for stage, epochs in ((0, 3), (1, 2)):
        told = []
        for step in range(1, epochs * per_epoch + 1):
            if step % 10 == 0 or step % per_epoch == 0:
                epoch = -(-step // per_epoch)
                told.append(course.rows(stage * 3 * per_epoch + step, epoch))
        assert sum(told) == epochs * examples and min(told) > 0


def test_a_stopped_training_goes_on_to_the_same_bits(order):
    whole, everything = run(order)
    asked = iter([False] * 13 + [True])  # the first time before it begins
    last, sent = run(order, lambda: next(asked))
    assert isinstance(last, Stopped)
    saved = of(Saved, sent)[-1]
    assert saved.step == 13
    known = tuple(point for report in of(Stepped, sent) for point in report.points)
    again = replace(order, attempt=2, resume=saved.path, history=known)
    resumed, more = run(again)
    assert resumed.result == whole.result and more[0] == Began(13)
    files = {file.name: file.sha256 for file in resumed.artifacts}
    wanted = {file.name: file.sha256 for file in whole.artifacts}
    for name in ("model.safetensors", "metrics.csv", "curves.png", "inclusion.png"):
        assert files[name] == wanted[name], "the course of both attempts, as if it were one"
    told = [point for report in of(Stepped, sent) + of(Stepped, more) for point in report.points]
    assert told == [point for report in of(Stepped, everything) for point in report.points]


def test_a_stop_before_the_first_step_leaves_no_checkpoint(order):
    assert run(order, lambda: True) == (Stopped(), [])


def fail_with(monkeypatch, error, *, preparing=False):
    class Bad:
        course = Course("pi_st", ROWS, 64)

        def __init__(self, order):
            if preparing:
                raise error

        def train(self, resume, callbacks):
            raise error

    monkeypatch.setitem(tasks.TASKS, "feature_selection", Bad)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Diverged("losses must stay finite"), FailureKind.DIVERGED),
        (MemoryError(), FailureKind.OUT_OF_MEMORY),
        (torch.OutOfMemoryError("CUDA out of memory"), FailureKind.OUT_OF_MEMORY),
        (OSError(28, "No space left on device"), FailureKind.STORAGE),
        (checkpoint.CheckpointError("checkpoint: damaged"), FailureKind.STORAGE),
        (ValueError("a fault of ours"), FailureKind.INTERNAL),
        (ZeroDivisionError("a fault of ours"), FailureKind.INTERNAL),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_an_error_is_told_by_its_kind_and_in_words(order, monkeypatch, capsys, error, kind):
    fail_with(monkeypatch, error)
    last, _ = run(order)
    assert last.kind is kind
    named = f"{type(error).__name__}: {error}"
    assert last.message == (named if kind is FailureKind.INTERNAL else str(error) or "MemoryError")
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error", [SpecError("feature_selection.k", "must be 1", 2), ValueError("y: one class only")]
)
def test_what_cannot_be_prepared_is_the_users_to_mend(order, monkeypatch, error):
    fail_with(monkeypatch, error, preparing=True)
    assert run(order)[0] == Failed(FailureKind.USER_ERROR, str(error))


def test_a_training_that_diverges_keeps_its_last_good_checkpoint(order):
    spec = replace(order.spec, learning_rate=1e6, hidden=(8,) * 8)
    last, sent = run(replace(order, spec=spec))
    if isinstance(last, Finished):
        pytest.fail("it was to diverge")
    assert last.kind is FailureKind.DIVERGED and "must stay finite; got" in last.message
    for saved in of(Saved, sent):
        values = checkpoint.read(saved.path).tensors.values()
        assert all(
            bool(torch.as_tensor(v).isfinite().all()) for v in values if v.is_floating_point()
        )


def test_a_cpu_without_memory_is_known():
    with pytest.raises(RuntimeError, match="memory") as caught:
        torch.empty(2**60)
    assert failure_kind(caught.value) is FailureKind.OUT_OF_MEMORY


def test_a_damaged_checkpoint_gives_way_to_the_one_before(order, capsys):
    whole, sent = run(order)
    first, *_, last = of(Saved, sent)
    for saved in of(Saved, sent)[1:]:
        saved.path.write_bytes(saved.path.read_bytes()[:-1])
    resumed, more = run(replace(order, attempt=2, resume=last.path))
    assert resumed.result == whole.result and more[0] == Began(first.step)
    assert capsys.readouterr().out.count("going on from the one before") == 3


def test_without_any_whole_checkpoint_it_begins_anew(order, tmp_path):
    path = order.directory / "attempt-000001-step-000000000010.safetensors"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not a checkpoint")
    last, sent = run(replace(order, attempt=2, resume=path))
    assert isinstance(last, Finished) and sent[0] == Began(0)


# The reporter.


def test_progress_is_sent_seldom_keeps_all_points_and_counts_everything(order, clock):
    sent = []
    reporter = Reporter(order, sent.append, never, clock)
    reporter.course = Course("pi_st", 64 * 200, 64)
    for step in range(1, 101):
        roots = Roots({3: 2, 100 + step: 1}, {-7: 3}, 1, step % 2)
        reporter.progress(Told(step, 200, 1, {"loss": step / 2}, roots, "s"))
        clock.now += 0.01
    reporter.flush()
    reporter.flush()
    assert 5 <= len(sent) <= 12
    points = [point for report in sent for point in report.points]
    assert points == [Point(step, 1, "s", {"loss": step / 2}) for step in range(1, 101)]
    assert sum(report.counted.iterations.get(3, 0) for report in sent) == 200
    assert sum(sum(report.counted.iterations.values()) for report in sent) == 300
    assert sum(report.counted.residuals[-7] for report in sent) == 300
    assert sum(report.counted.fallback_rows for report in sent) == 100
    assert sum(report.counted.nonconverged_rows for report in sent) == 50
    last = sent[-1].progress
    assert last.steps_per_s == pytest.approx(100) and last.remaining_s == pytest.approx(1)


def test_checkpoints_take_a_fiftieth_of_the_time_at_most(order, clock, monkeypatch):
    reporter = Reporter(replace(order, checkpoint_s=1.0), lambda _: None, never, clock)
    assert not reporter.wants_checkpoint(10, False)
    clock.now += 1
    assert reporter.wants_checkpoint(20, False)

    def slow(path, contents):
        clock.now += 0.5

    monkeypatch.setattr(checkpoint, "write", slow)
    reporter.checkpoint(checkpoint.Checkpoint({}, {"step": 20}))
    clock.now += 24
    assert not reporter.wants_checkpoint(30, True)
    clock.now += 1
    assert reporter.wants_checkpoint(40, True)
