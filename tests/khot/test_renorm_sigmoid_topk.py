"""Renormalised sigmoids: the formula, where it loses digits, and what it lacks."""

import importlib
from decimal import Decimal, localcontext

import pytest
import torch

import khot

renorm = importlib.import_module("khot.relaxations.renorm_sigmoid_topk")
pytestmark = pytest.mark.usefixtures("path")
needs_kernels = pytest.mark.skipif(
    not khot.native_info().in_use, reason=f"needs the C kernels: {khot.native_info().reason}"
)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def formula(x: torch.Tensor, k: float, tau: float = 1.0) -> torch.Tensor:
    """The definition, in 500 digits."""
    with localcontext() as context:
        context.prec = 500
        p = [1 / (1 + (-Decimal(v) / Decimal(tau)).exp()) for v in x.tolist()]
        n, total, k = len(p), sum(p), Decimal(k)
        if total >= k:
            pi = [v * k / total for v in p]
        else:
            pi = [1 - (1 - v) * (n - k) / (n - total) for v in p]
        return torch.tensor([float(v) for v in pi], dtype=torch.float64)


@pytest.mark.parametrize("k", [0.0, 1e-6, 2.5, 5.0, 9.0, 12 - 1e-6, 12.0])
@pytest.mark.parametrize("offset", [0.0, 30.0, -30.0, 300.0, -300.0])
def test_is_the_formula_to_the_last_digits(k, offset):
    """Relative to every entry, also where p or 1 - p is below what a float64 resolves."""
    x = normal(12) * 3 + offset
    assert torch.allclose(khot.renorm_sigmoid_topk(x, k), formula(x, k), rtol=1e-12, atol=0)
    tempered = khot.renorm_sigmoid_topk(x, k, tau=0.7)
    assert torch.allclose(tempered, formula(x, k, 0.7), rtol=1e-12, atol=0)


def test_small_entries_keep_their_digits_when_others_grow():
    # P < k: one unit is far below the rest, which must be raised a little
    x = torch.tensor([5.0, 5.0, 5.0, -30.0], dtype=torch.float64)
    k = float(torch.sigmoid(x).sum()) + 1e-6
    assert torch.allclose(khot.renorm_sigmoid_topk(x, k), formula(x, k), rtol=1e-9, atol=0)


def test_the_two_forms_meet_where_the_sigmoids_sum_to_k():
    x = normal(9)
    k = float(torch.sigmoid(x).sum())
    for near in (k - 1e-9, k, k + 1e-9):
        assert torch.allclose(khot.renorm_sigmoid_topk(x, near), torch.sigmoid(x), atol=1e-9)


def test_the_gradient_jumps_there():
    x = normal(9)
    k = torch.sigmoid(x).sum()

    def slope(k):
        return torch.func.jacrev(lambda k: khot.renorm_sigmoid_topk(x, k))(k)

    p = torch.sigmoid(x)
    assert torch.allclose(slope(k - 1e-9), p / p.sum(), atol=1e-6)
    assert torch.allclose(slope(k + 1e-9), (1 - p) / (1 - p).sum(), atol=1e-6)


@pytest.mark.parametrize("k", [0.0, 6.0])
def test_ends_of_k_have_values_and_gradients(k):
    x = normal(6).requires_grad_()
    end = torch.tensor(k, dtype=torch.float64, requires_grad=True)
    tau = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    pi = khot.renorm_sigmoid_topk(x, end, tau=tau)
    assert torch.equal(pi, torch.full_like(pi, k / 6))
    p = torch.sigmoid(x / 0.7)
    weight = p / p.sum() if k == 0 else (1 - p) / (1 - p).sum()
    for i in range(6):
        in_x, in_k, in_tau = torch.autograd.grad(pi[i], (x, end, tau), retain_graph=True)
        assert bool((in_x == 0).all()) and float(in_tau) == 0
        assert torch.allclose(in_k, weight[i])


def test_shifts_change_it():
    x = normal(9)
    difference = khot.renorm_sigmoid_topk(x + 3, 3) - khot.renorm_sigmoid_topk(x, 3)
    assert float(difference.abs().max()) > 0.05


def test_far_offsets_have_limits():
    x = normal(9)
    low = khot.renorm_sigmoid_topk(x - 1e6, 3)  # all p are 0: each gets k / n
    assert torch.allclose(low, torch.tensor(1 / 3).double())
    few = khot.renorm_sigmoid_topk(x - 1e3, 0.0)
    assert torch.equal(few, torch.zeros(9).double())
    high = khot.renorm_sigmoid_topk(x + 1e6, 3)
    assert torch.allclose(high, torch.tensor(1 / 3).double())


def test_high_temperature_is_uniform():
    pi = khot.renorm_sigmoid_topk(normal(8), 3, tau=1e9)
    assert torch.allclose(pi, torch.tensor(3 / 8).double())


def test_low_temperature_spreads_k_over_the_positive_scores():
    x = torch.tensor([3.0, 2.0, 1.0, -1.0, -2.0])
    assert khot.renorm_sigmoid_topk(x, 1.5, tau=1e-3).tolist() == [0.5, 0.5, 0.5, 0, 0]
    assert khot.renorm_sigmoid_topk(x, 4, tau=1e-3).tolist() == [1, 1, 1, 0.5, 0.5]


def test_each_row_has_its_k_and_tau():
    x, k, tau = normal(2, 3, 7), torch.tensor([1.0, 2.5, 6.0]), torch.tensor([[0.5], [2.0]])
    pi = khot.renorm_sigmoid_topk(x, k, tau=tau)
    for i in range(2):
        for j in range(3):
            wanted = formula(x[i, j], float(k[j]), float(tau[i]))
            assert torch.allclose(pi[i, j], wanted, rtol=1e-12)


def test_masked_units_are_not_counted():
    x = normal(12)
    x[::3] = -torch.inf
    free = x > -torch.inf
    for k in (1.0, 4.0, 7.0, 8.0):
        pi = khot.renorm_sigmoid_topk(x, k)
        assert bool((pi[~free] == 0).all())
        assert torch.allclose(pi[free], formula(x[free], k), rtol=1e-12)


def test_a_row_that_is_all_masked():
    x = torch.full((2, 3), -torch.inf, requires_grad=True)
    pi = khot.renorm_sigmoid_topk(x, 0)
    pi.sum().backward()
    assert torch.equal(pi, torch.zeros(2, 3)) and torch.equal(x.grad, torch.zeros(2, 3))


def test_gradients_with_masks_and_a_spread_are_finite():
    x = normal(4, 100) * torch.tensor([[1.0], [1e2], [1e4], [1e6]])
    x[:, ::3] = -torch.inf
    x.requires_grad_()
    tau = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    for k in (0, 20, 50):
        pi = khot.renorm_sigmoid_topk(x, k, tau=tau)
        for grad in torch.autograd.grad((pi * normal(4, 100, seed=1)).sum(), (x, tau)):
            assert bool(grad.isfinite().all())


@pytest.mark.parametrize("k", [1.5, 6.5])
def test_gradients_on_both_sides_are_those_of_finite_differences(k):
    arguments = [normal(8), torch.tensor(k), torch.tensor(0.7)]
    arguments = [value.double().requires_grad_() for value in arguments]

    def function(x, k, tau):
        return khot.renorm_sigmoid_topk(x, k, tau=tau)

    assert torch.autograd.gradcheck(function, arguments, check_forward_ad=True)


@pytest.mark.gpu
def test_cuda_agrees_with_the_cpu():
    x = normal(16, 784)
    there = khot.renorm_sigmoid_topk(x.cuda(), 50)
    assert torch.allclose(there.cpu(), khot.renorm_sigmoid_topk(x, 50), atol=1e-12)


# kernels


@pytest.fixture
def other_threads():
    """Let the kernels have another number of threads, until the end of the test."""
    yield khot.set_kernel_threads
    khot.set_kernel_threads(None)


def some_rows(n: int) -> tuple[torch.Tensor, ...]:
    """x, k, tau, g: rows on both sides of 0, far from it, spread out and tied, most with a mask."""
    x = normal(40, n) * torch.logspace(-2, 4, 40, dtype=torch.float64).unsqueeze(-1)
    x[10:14] = normal(4, n, seed=1) + torch.tensor([[-30.0], [30.0], [-1e4], [1e4]])
    x[14] = x[14].sign()
    x[::3, ::4] = -torch.inf
    units = (x > -torch.inf).sum(-1).double()
    k = torch.linspace(0, 1, 40, dtype=torch.float64) * units
    k[15:20] = torch.tensor([0.0, 1e-6, 1.0, float(units[18]) - 1e-6, float(units[19])])
    k = k.clamp(min=0).minimum(units)
    return x, k, torch.linspace(0.5, 2, 40, dtype=torch.float64), normal(40, n, seed=2)


def found(x, k, tau, g):
    """pi, and the cotangents of x, k and tau."""
    given = [value.clone().requires_grad_() for value in (x, k, tau)]
    pi = khot.renorm_sigmoid_topk(given[0], given[1], tau=given[2])
    return pi.detach(), *torch.autograd.grad(pi, given, g)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("n", [1, 9, 501])
def test_kernels_agree_with_torch_operations(monkeypatch, path, dtype, n):
    if path == "torch":
        return
    x, k, tau, g = (value.to(dtype) if value.ndim == 2 else value for value in some_rows(n))
    kernel = found(x, k, tau, g)
    monkeypatch.setattr("khot._native.library._library.object", None)
    tolerance = 16 * torch.finfo(dtype).eps
    for got, wanted in zip(kernel, found(x.double(), k, tau, g.double()), strict=True):
        scale = wanted.abs().amax(-1, keepdim=True).clamp(min=1e-3)
        assert torch.allclose(got / scale, wanted / scale, rtol=0, atol=tolerance)


@pytest.mark.parametrize("tau", [1e-310, 1e-39, 1e-25, 1e25, 1e39, 1e300])
def test_wild_temperatures_in_single_precision_are_those_in_double(tau):
    x = torch.tensor([[3e38, 1.0, 1e-38, 0.0, -1e-38, -2.0, -torch.inf]])
    in_double = khot.renorm_sigmoid_topk(x.double(), 2.5, tau=tau)
    assert torch.allclose(khot.renorm_sigmoid_topk(x, 2.5, tau=tau), in_double.float())


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("n", [10, 70_000])
def test_neither_threads_nor_the_batch_change_a_bit(other_threads, path, dtype, n):
    if path == "torch":
        return
    rows = [0, 7, 12, 14] if n > 1000 else range(40)  # fewer rows: threads share each of them
    given = [value.to(dtype)[rows] if value.ndim == 2 else value[rows] for value in some_rows(n)]
    other_threads(1)
    whole = found(*given)
    for threads in (3, 8):
        other_threads(threads)
        assert all(map(torch.equal, found(*given), whole))
    for b in range(0, len(rows), 3):
        alone = found(*(value[b : b + 1] for value in given))
        assert all(map(torch.equal, alone, (part[b : b + 1] for part in whole)))
