"""k softmax: its relatives, its limits, and what it lacks."""

import pytest
import torch

import khot


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def test_is_k_times_softmax():
    x, k = normal(4, 9), torch.tensor([0.0, 1.0, 2.5, 9.0])
    wanted = k.double().unsqueeze(-1) * (x / 0.7).softmax(-1)
    assert torch.allclose(khot.softmax_topk(x, k, tau=0.7), wanted, rtol=1e-14)


def test_of_two_units_sigmoid_topk_is_softmax_at_twice_the_temperature():
    x = normal(100, 2) * 5
    softmax = khot.softmax_topk(x, 1, tau=1.4)
    assert torch.allclose(khot.sigmoid_topk(x, 1, tau=0.7), softmax, rtol=1e-12)


def test_of_three_units_it_is_not():
    x = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    for tau in (1.0, 2.0):
        difference = khot.sigmoid_topk(x, 1) - khot.softmax_topk(x, 1, tau=tau)
        assert float(difference.abs().max()) > 0.01


def test_leaves_the_capped_simplex_above_one():
    x = torch.tensor([3.0, 0.0, 0.0])
    assert float(khot.softmax_topk(x, 2)[0]) > 1
    assert khot.softmax_topk(x, 2, tau=1e-3).tolist() == [2, 0, 0]
    assert float(khot.softmax_topk(x, 3)[0]) > 2


def test_high_temperature_is_uniform():
    assert torch.allclose(khot.softmax_topk(normal(8), 3, tau=1e9), torch.tensor(3 / 8).double())


@pytest.mark.parametrize("offset", [1e6, -1e6, 1e15])
def test_an_offset_costs_no_digits_of_value_or_gradient(offset):
    base = (normal(50) * 8).round() / 8  # exact at these offsets
    g, results = normal(50, seed=1), []
    for x in (base, base + offset):
        x.requires_grad_()
        tau = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
        p = khot.softmax_topk(x, 3, tau=tau)
        results.append((p, *torch.autograd.grad((p * g).sum(), (x, tau))))
    assert all(torch.allclose(a, b, rtol=1e-12) for a, b in zip(*results, strict=True))


def test_masked_rows():
    x = torch.tensor([[1.0, -torch.inf, 0.0], [-torch.inf] * 3], requires_grad=True)
    p = khot.softmax_topk(x, torch.tensor([2.0, 0.0]))
    assert p[0, 1] == 0 and p[1].tolist() == [0, 0, 0]
    assert torch.allclose(p[0, ::2], 2 * torch.tensor([1.0, 0.0]).softmax(-1))
    (p * torch.arange(3)).sum().backward()
    assert bool(x.grad.isfinite().all()) and bool((x.grad[x == -torch.inf] == 0).all())
