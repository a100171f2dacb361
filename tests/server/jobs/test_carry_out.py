"""What an attempt does: train, report, and say why it could not."""

import pytest
import torch

from khot.training import Diverged
from khot_server.jobs import checkpoint, tasks
from khot_server.jobs.messages import Failed, Finished, Order, Saved, Stepped, Stopped
from khot_server.jobs.spec import FeatureSelectionSpec, SpecError
from khot_server.jobs.states import FailureKind
from khot_server.jobs.tasks.carry_out import Throttle, carry_out, failure_kind

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def order(tmp_path):
    spec = FeatureSelectionSpec("digits", 10, epochs=2)
    return Order(attempt=1, spec=spec, device="cpu", directory=tmp_path, resume=None)


def never():
    return False


def run(order, should_stop=never):
    sent = []
    return carry_out(order, sent.append, should_stop), sent


def test_a_training_reports_and_ends_with_a_result(order):
    last, sent = run(order)
    assert isinstance(last, Finished)
    result = last.result
    assert len(result.features) == 10 and sorted(set(result.features)) == list(result.features)
    assert len(result.scores) == 64 and result.feature_shape == (8, 8)
    assert all(type(value) is float for value in (result.test_loss, result.test_accuracy))
    steps = [report for report in sent if isinstance(report, Stepped)]
    assert steps[-1].step == steps[-1].total_steps
    assert steps[-1].metrics["test_accuracy"] == result.test_accuracy
    saved = [report for report in sent if isinstance(report, Saved)]
    assert [s.step for s in saved] == [steps[-1].total_steps // 2, steps[-1].total_steps]
    assert all(checkpoint.read(s.path).meta["step"] == s.step for s in saved)


def test_iterations_are_told_of_once_each(order):
    _, sent = run(order)
    rows = sum(sum(s.iterations.values()) for s in sent if isinstance(s, Stepped))
    assert rows == order.spec.epochs * 1297, "a mask for each of digits' training examples"


def test_a_stopped_training_goes_on_to_the_same_bits(order):
    whole, _ = run(order)
    asked = iter([False] * 5 + [True])  # the first time before it begins
    last, sent = run(order, lambda: next(asked))
    assert isinstance(last, Stopped)
    (saved,) = (report for report in sent if isinstance(report, Saved))
    assert saved.step == 5
    resumed, _ = run(Order(**vars(order) | {"attempt": 2, "resume": saved.path}))
    assert resumed == whole


def test_a_stop_before_the_first_step_leaves_no_checkpoint(order):
    assert run(order, lambda: True) == (Stopped(), [])


def fail_with(monkeypatch, error, *, preparing=False):
    def raise_it(*_):
        raise error

    prepare = raise_it if preparing else lambda *_: raise_it
    monkeypatch.setitem(tasks.TASKS, "feature_selection", prepare)


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


def test_a_cpu_without_memory_is_known():
    with pytest.raises(RuntimeError, match="memory") as caught:
        torch.empty(2**60)
    assert failure_kind(caught.value) is FailureKind.OUT_OF_MEMORY


def test_a_damaged_checkpoint_is_a_failure_of_storage(order, tmp_path, capsys):
    (tmp_path / "bad").write_bytes(b"not a checkpoint")
    last, sent = run(Order(**vars(order) | {"resume": tmp_path / "bad"}))
    assert last.kind is FailureKind.STORAGE and "must be a whole checkpoint" in last.message
    assert sent == []


def test_throttled_progress_is_rare_keeps_the_last_and_counts_everything(clock):
    sent = []
    throttle = Throttle(sent.append, 0.1, clock)
    for step in range(1, 101):
        throttle.put(Stepped(step, 100, {"loss": step / 2}, {3: 2, 100 + step: 1}))
        clock.now += 0.01
    throttle.flush()
    throttle.flush()
    assert len(sent) <= 12
    assert sent[0].step == 1 and (sent[-1].step, sent[-1].metrics) == (100, {"loss": 50.0})
    assert [s.step for s in sent] == sorted({s.step for s in sent})
    assert sum(s.iterations.get(3, 0) for s in sent) == 200
    assert sum(sum(s.iterations.values()) for s in sent) == 300
