import pytest
import torch

from khot.training import _batches
from khot.training._batches import Batches, shuffled

X = torch.arange(10 * 3, dtype=torch.float32).reshape(10, 3)
Y = torch.arange(10)


def epoch(batches, number):
    first = number * batches.per_epoch
    return [batches[first + step] for step in range(batches.per_epoch)]


@pytest.mark.parametrize("at_once", [1, 150, 2**21], ids=["one", "some", "all"])
def test_an_epoch_has_every_example_once_in_its_own_order(monkeypatch, at_once):
    monkeypatch.setattr(_batches, "_AT_ONCE", at_once)
    batches = Batches(7, 3, X, Y)
    assert batches.per_epoch == 4
    for number in range(3):
        found = epoch(batches, number)
        assert [len(y) for _, y in found] == [3, 3, 3, 1]
        order = torch.cat([y for _, y in found])
        assert order.equal(shuffled(7, 10, epoch=number))
        assert torch.cat([x for x, _ in found]).equal(X[order])
    orders = {tuple(torch.cat([y for _, y in epoch(batches, e)]).tolist()) for e in range(5)}
    assert len(orders) == 5


def test_a_batch_depends_on_its_step_alone():
    batches, wanted = Batches(0, 4, Y), [y.tolist() for (y,) in epoch(Batches(0, 4, Y), 1)]
    assert [batches[step][0].tolist() for step in (5, 3, 4)] == [wanted[i] for i in (2, 0, 1)]


def test_targets_without_columns_and_examples_without_bytes_are_batched():
    (x, y) = Batches(0, 4, torch.zeros(5, 0), torch.zeros(5))[0]
    assert x.shape == (4, 0) and y.shape == (4,)
