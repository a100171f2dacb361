"""Straight-through top-k: its value, its gradient, and no randomness."""

import pytest
import torch

import khot

pytestmark = pytest.mark.usefixtures("path")


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def test_value_is_the_top_k_and_gradient_that_of_sigmoid_topk():
    inputs = [normal(20, 9), torch.tensor(3.0).double(), torch.tensor(0.7).double()]
    given = tuple(value.requires_grad_() for value in inputs)
    logits, k, tau = given
    z, p = khot.st_topk(logits, k, tau=tau), khot.sigmoid_topk(logits, k, tau=tau)
    assert torch.equal(z, khot.topk(logits, 3))
    got, wanted = (torch.autograd.grad(out, given, normal(20, 9, seed=1)) for out in (z, p))
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_neither_seeds_nor_generators_matter(generator):
    logits, before = normal(20, 9), generator.get_state()
    torch.manual_seed(0)
    state = torch.get_rng_state()
    z = khot.st_topk(logits, 3)
    assert torch.equal(z, khot.st_topk(logits, 3, seeds=khot.row_seeds(0, 20)))
    assert torch.equal(z, khot.st_topk(logits, 3, generator=generator))
    assert torch.equal(generator.get_state(), before)
    assert torch.equal(torch.get_rng_state(), state)


def test_logits_are_ranked_where_their_probabilities_are_equal():
    """Both sigmoids round to 1; ties of the logits go to the lower index."""
    logits = torch.tensor([100.0, 101.0, 0.0, 0.0, 0.0])
    assert khot.st_topk(logits, 1).tolist() == [0, 1, 0, 0, 0]
    assert khot.st_topk(logits, 3).tolist() == [1, 1, 1, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("n", [1, 7, 64, 99])
def test_it_chooses_as_a_stable_sort(n, dtype):
    """Ordinary numbers, ties, signed zeros, subnormal and huge ones, masks; k by row."""
    x = normal(40, n).to(dtype)
    rows = [
        x,
        (2 * x).round(),
        0 * x,
        x * torch.finfo(dtype).tiny,
        x * (torch.finfo(dtype).max / 9),
    ]
    rows.append(torch.where(torch.arange(n) % 3 == 1, -torch.inf, x))
    logits = torch.cat(rows)
    free = (logits > -torch.inf).sum(-1)
    k = (torch.rand(len(logits), generator=torch.Generator().manual_seed(0)) * (free + 1)).long()
    order = logits.sort(dim=-1, descending=True, stable=True).indices
    wins = (torch.arange(n) < k.unsqueeze(-1)).to(dtype)
    wanted = torch.zeros_like(logits).scatter(-1, order, wins)
    assert torch.equal(khot.st_topk(logits, k), wanted)


def test_it_is_what_pi_st_tends_to():
    logits, seeds = normal(20, 9), khot.row_seeds(0, 20)
    assert torch.equal(khot.st_topk(logits, 3), khot.pi_st(logits, 3, tau=1e-4, seeds=seeds))
