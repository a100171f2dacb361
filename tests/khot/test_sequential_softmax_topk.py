"""Sequential softmax: the formula at every spread, its limits, and what it lacks."""

import importlib
from decimal import Decimal, localcontext

import pytest
import torch

import khot

sequential = importlib.import_module("khot.relaxations.sequential_softmax_topk")


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def formula(x: torch.Tensor, k: int, tau: float = 1.0) -> torch.Tensor:
    """The definition, in 60 digits and with 1 - p as the sum of the others."""
    with localcontext() as context:
        context.prec = 60
        alpha, tau = [Decimal(v) for v in x.tolist()], Decimal(tau)
        result = [Decimal(0)] * len(alpha)
        for _ in range(k):
            e = [((a - max(alpha)) / tau).exp() for a in alpha]
            others = [sum(e[:i]) + sum(e[i + 1 :]) for i in range(len(e))]
            alpha = [a + (rest / sum(e)).ln() for a, rest in zip(alpha, others, strict=True)]
            result = [r + v / sum(e) for r, v in zip(result, e, strict=True)]
        return torch.tensor([float(v) for v in result], dtype=torch.float64)


@pytest.mark.parametrize("k", [1, 2, 5, 8])
@pytest.mark.parametrize("tau", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0, 300.0])
def test_is_the_formula_at_every_spread(spread, tau, k):
    x = normal(9) * spread
    got = khot.sequential_softmax_topk(x, k, tau=tau)
    assert torch.allclose(got, formula(x, k, tau), rtol=1e-9, atol=1e-12)


def plain(x: torch.Tensor, k: int, tau: float) -> torch.Tensor:
    """The loop as it is usually written, for mild scores."""
    alpha, result = x.double(), torch.zeros(x.shape, dtype=torch.float64)
    for _ in range(k):
        p = (alpha / tau).softmax(-1)
        alpha, result = alpha + torch.log(1 - p), result + p
    return result


def test_is_the_plain_loop_on_mild_scores():
    x = normal(20, 50)
    for k, tau in ((1, 0.5), (7, 1.0), (50, 2.0)):
        got = khot.sequential_softmax_topk(x, k, tau=tau)
        assert torch.allclose(got, plain(x, k, tau), rtol=1e-11)


def test_with_one_choice_it_is_softmax():
    x = normal(9)
    got = khot.sequential_softmax_topk(x, 1, tau=0.7)
    assert torch.allclose(got, khot.softmax_topk(x, 1, tau=0.7), rtol=1e-14, atol=0)


def test_sums_to_k():
    for k in (0, 1, 5, 30):
        assert float(khot.sequential_softmax_topk(normal(30) * 3, k).sum()) == pytest.approx(k)


def test_entries_exceed_one():
    x = torch.tensor([1e4, 0.0])
    assert khot.sequential_softmax_topk(x, 2).tolist() == [1.5, 0.5]
    assert float(khot.sequential_softmax_topk(normal(9), 5).max()) > 1


def test_order_is_not_kept_at_all_temperatures():
    x = torch.tensor([1.3, 1.2, -2.0])
    first, second, _ = khot.sequential_softmax_topk(x, 2, tau=0.2).tolist()
    assert first < 0.9 and second > 1.1


def test_low_temperature_is_topk():
    x = normal(20)
    for k in (1, 7, 20):
        hard = torch.zeros_like(x).index_fill(0, x.topk(k).indices, 1.0)
        got = khot.sequential_softmax_topk(x, k, tau=1e-3)
        assert torch.allclose(got, hard, atol=1e-6)


def test_what_was_chosen_is_not_chosen_again_at_a_low_temperature():
    x = torch.tensor([1e4, 2.0, 1.0, -1e4], dtype=torch.float64)
    for tau in (0.1, 1e-3, 1e-200, 1e-310):
        got = khot.sequential_softmax_topk(x, 3, tau=tau)
        assert torch.allclose(got, torch.tensor([1.0, 1, 1, 0]).double(), atol=1e-3), tau


def test_at_temperature_one_a_whole_choice_falls_to_the_level_of_the_next():
    x = torch.tensor([1e4, 0.0, -1e4], dtype=torch.float64)
    got = khot.sequential_softmax_topk(x, 2)
    assert torch.equal(got, torch.tensor([1.5, 0.5, 0.0]).double())


def test_high_temperature_is_uniform():
    got = khot.sequential_softmax_topk(normal(8), 3, tau=1e9)
    assert torch.allclose(got, torch.tensor(3 / 8).double())


@pytest.mark.parametrize("offset", [1e6, -1e6, 1e15])
def test_an_offset_costs_no_digits(offset):
    base = (normal(20) * 8).round() / 8  # exact at these offsets
    got = khot.sequential_softmax_topk(base + offset, 5)
    assert torch.allclose(got, khot.sequential_softmax_topk(base, 5), rtol=1e-12)


def test_masked_units_take_no_part():
    x = normal(12)
    x[::3] = -torch.inf
    free = x > -torch.inf
    for k in (1, 5, 8):
        p = khot.sequential_softmax_topk(x, k)
        assert bool((p[~free] == 0).all())
        assert torch.allclose(p[free], khot.sequential_softmax_topk(x[free], k))


def test_one_unmasked_unit_and_none():
    x = torch.tensor([[0.5, -torch.inf], [3.0, -torch.inf]], requires_grad=True)
    p = khot.sequential_softmax_topk(x, 1)
    assert p.tolist() == [[1, 0], [1, 0]]
    none = torch.full((2, 3), -torch.inf, requires_grad=True)
    zeros = khot.sequential_softmax_topk(none, 0)
    zeros.sum().backward()
    assert torch.equal(zeros, torch.zeros(2, 3)) and torch.equal(none.grad, torch.zeros(2, 3))


@pytest.mark.parametrize("spread", [1.0, 1e2, 1e4, 1e6])
@pytest.mark.parametrize("tau", [0.1, 1.0, 10.0])
def test_gradients_with_masks_and_a_spread_are_finite(spread, tau):
    x = normal(3, 30) * spread
    x[:, ::3] = -torch.inf
    x.requires_grad_()
    tau = torch.tensor(tau, dtype=torch.float64, requires_grad=True)
    p = khot.sequential_softmax_topk(x, 20, tau=tau)
    for grad in torch.autograd.grad((p * normal(3, 30, seed=1)).sum(), (x, tau)):
        assert bool(grad.isfinite().all())


@pytest.mark.parametrize("spread", [1.0, 20.0])
def test_gradients_are_those_of_finite_differences(spread):
    x = (normal(6) * spread).requires_grad_()
    tau = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)

    def function(x, tau):
        return khot.sequential_softmax_topk(x, 4, tau=tau)

    assert torch.autograd.gradcheck(function, (x, tau), check_forward_ad=True)


@pytest.mark.parametrize(
    ("k", "error", "got"),
    [
        (2.5, ValueError, "2.5"),
        (float("nan"), ValueError, "nan"),
        (float("inf"), ValueError, "inf"),
        (True, TypeError, "bool"),
        (torch.tensor(2), TypeError, "Tensor"),
    ],
)
def test_k_is_one_whole_number(k, error, got):
    message = f"^sequential_softmax_topk: k must be one whole number; got {got}$"
    with pytest.raises(error, match=message):
        khot.sequential_softmax_topk(normal(4), k)


def test_a_k_of_more_than_64_bits_is_not_cut():
    with pytest.raises(
        ValueError, match=r"k must be in \[0, n\].*; got k = 1.84467e\+19 for n = 4"
    ):
        khot.sequential_softmax_topk(normal(4), 2**64 + 2)


@pytest.mark.gpu
def test_cuda_agrees_with_the_cpu():
    x = normal(16, 50)
    there = khot.sequential_softmax_topk(x.cuda(), 5)
    assert torch.allclose(there.cpu(), khot.sequential_softmax_topk(x, 5), atol=1e-12)


def on_torch(k):
    """The map by torch operations."""
    return lambda x, tau: sequential.rounded(sequential._sum(x, tau[:, None], k), x)


@pytest.mark.parametrize(
    ("shape", "k"),
    [((4, 50), 7), ((3, 784), 50), ((19, 32), 5), ((2, 9), 9), ((2, 1), 1), ((1, 70_000), 61)],
    ids=["few", "pixels", "side by side", "all", "one", "rounds that are made twice"],
)
@pytest.mark.parametrize("tau", [1.0, 0.2])
def test_kernels_agree_with_torch_operations(shape, k, tau):
    x, g = normal(*shape) * 3, normal(*shape, seed=1)
    if k < shape[1]:
        x[0, ::5] = -torch.inf
    taus = torch.full(shape[:1], tau, dtype=torch.float64)
    found = []
    for function in (lambda x, tau: khot.sequential_softmax_topk(x, k, tau=tau), on_torch(k)):
        given = x.clone().requires_grad_(), taus.clone().requires_grad_()
        p = function(*given)
        found.append((p.detach(), *torch.autograd.grad(p, given, g)))
    for kernel, torch_operations in zip(*found, strict=True):
        scale = float(torch_operations.abs().max()) or 1.0
        assert torch.allclose(kernel / scale, torch_operations / scale, rtol=0, atol=1e-10)


needs_kernels = pytest.mark.skipif(
    not khot.native_info().in_use, reason=f"needs the C kernels: {khot.native_info().reason}"
)


def found(x, k, tau, g):
    """p, and the cotangents of x and tau."""
    given = x.clone().requires_grad_(), tau.clone().requires_grad_()
    p = khot.sequential_softmax_topk(given[0], k, tau=given[1])
    return p.detach(), *torch.autograd.grad(p, given, g)


def some_rows(n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x, tau and g: mild and wild rows, ties, some with masks."""
    x = normal(29, n) * torch.logspace(-2, 4, 29, dtype=torch.float64).unsqueeze(-1)
    x[3] = x[3].sign()
    x[4] = 0
    x[::3, ::4] = -torch.inf
    return x, torch.logspace(-1, 1, 29, dtype=torch.float64), normal(29, n, seed=1)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("k", [1, 5])
def test_rows_side_by_side_are_as_longer_ones_with_a_mask(dtype, k):
    """Which are done one by one."""
    x, tau, g = some_rows(10)
    longer = torch.nn.functional.pad(x, (0, 70), value=-torch.inf)
    p, grad_x, grad_tau = found(longer, k, tau, torch.nn.functional.pad(g, (0, 70)))
    wanted = p[:, :10], grad_x[:, :10], grad_tau
    tolerance = {torch.float64: 1e-12, torch.float32: 2e-5}[dtype]
    for got, want in zip(found(x.to(dtype), k, tau, g.to(dtype)), wanted, strict=True):
        scale = want.abs().amax(-1, keepdim=True).clamp(min=1e-6)
        assert torch.allclose(got / scale, want / scale, rtol=0, atol=tolerance)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("n", [10, 40])
def test_neither_threads_nor_the_batch_change_a_bit(dtype, n):
    x, tau, g = (value.to(dtype) if value.ndim == 2 else value for value in some_rows(n))
    x, tau, g = (value.repeat(30, *(1,) * (value.ndim - 1)) for value in (x, tau, g))
    try:
        khot.set_kernel_threads(1)
        whole = found(x, 5, tau, g)
        khot.set_kernel_threads(3)
        assert all(map(torch.equal, found(x, 5, tau, g), whole))
    finally:
        khot.set_kernel_threads(None)
    for b in range(11):  # in another lane, with other rows beside it or none
        for rows in (slice(b, b + 7), slice(b, b + 1)):
            part = found(x[rows], 5, tau[rows], g[rows])
            assert all(map(torch.equal, part, (column[rows] for column in whole)))
