"""Adam for small steps: torch's own, bit for bit."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn import functional

from khot.training._adam import Adam

STEPS, UNUSED_FROM = 40, 25


class Fit:
    """A small network and a mask, trained by one of them."""

    def __init__(self, make):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        self.logits = nn.Parameter(torch.zeros(8))
        network = {"params": self.network.parameters(), "weight_decay": 0.1}
        self.optimizer = make([network, {"params": [self.logits], "lr": 0.05}])

    def step(self, number):
        generator = torch.Generator().manual_seed(number)
        x = torch.randn(5, 8, generator=generator)
        y = torch.randint(3, (5,), generator=generator)
        mask = torch.sigmoid(self.logits) if number < UNUSED_FROM else 0.5
        self.optimizer.param_groups[0]["lr"] = 0.1 / (number + 1)
        self.optimizer.zero_grad()
        functional.cross_entropy(self.network(x * mask), y).backward()
        self.optimizer.step()

    def tensors(self):
        state = self.optimizer.state_dict()["state"]
        kept = [value for of_one in state.values() for value in of_one.values()]
        return [*self.network.state_dict().values(), self.logits, *kept]


@pytest.fixture
def both():
    return Fit(Adam), Fit(lambda groups: torch.optim.Adam(groups, fused=True))


def assert_same(ours, theirs):
    pairs = list(zip(ours.tensors(), theirs.tensors(), strict=True))
    assert len(pairs) == 4 + 1 + 5 * 3
    assert all(torch.equal(a, b) for a, b in pairs)


def test_it_goes_where_torchs_own_goes_bit_for_bit(both):
    for number in range(STEPS):
        for fit in both:
            fit.step(number)
        assert_same(*both)


def test_it_goes_on_from_a_state_that_was_loaded(both):
    ours, theirs = both
    for number in range(10):
        theirs.step(number)
    ours.network.load_state_dict(theirs.network.state_dict())
    ours.logits.data.copy_(theirs.logits)
    ours.optimizer.load_state_dict(deepcopy(theirs.optimizer.state_dict()))
    for fit in both:
        fit.step(10)
    assert_same(*both)


def test_without_gradients_nothing_moves(both):
    ours, _ = both
    ours.step(0)
    before = [value.clone() for value in ours.tensors()]
    ours.optimizer.zero_grad()
    ours.optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, ours.tensors(), strict=True))


def test_a_closure_is_called_as_torchs_own_does(both):
    ours, _ = both
    ours.step(0)

    def loss():
        ours.optimizer.zero_grad()
        value = ours.logits.square().sum()
        value.backward()
        return value

    assert ours.optimizer.step(loss) is not None
    assert ours.logits.grad is not None
