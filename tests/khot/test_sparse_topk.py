"""Sparse top-k: the problem it solves, its free units, and the traps of its numerics."""

from functools import cache

import numpy as np
import pytest
import torch

import khot
from khot import _checks, testing
from khot._native import library
from khot._native import sparse_topk as native
from khot._sparse_solve import solve

pytestmark = pytest.mark.usefixtures("path")
NORMS = pytest.mark.parametrize("p", [2.0, 4 / 3], ids=["p = 2", "p = 4/3"])


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def bisected(x: torch.Tensor, k: float, tau: float, p: float) -> torch.Tensor:
    """By plain bisection for the threshold, in numpy's long double."""
    scores = x.numpy().astype(np.longdouble)
    lo, hi = scores[scores > -np.inf].min() - tau, scores.max()

    def entries(nu):
        t = np.clip((scores - nu) / np.longdouble(tau), 0, 1)
        return t if p == 2 else t * t * t

    for _ in range(120):
        middle = (lo + hi) / 2
        lo, hi = (middle, hi) if entries(middle).sum() > k else (lo, middle)
    return torch.from_numpy(entries(hi).astype(np.float64))


HARD_ROWS = {name: (x, k) for name, x, k in testing.hard_rows()}


@cache
def bisected_row(name: str, p: float) -> torch.Tensor:
    x, k = HARD_ROWS[name]
    if name == "all equal at 1e17":  # where no long double is the root
        return torch.full_like(x, k / x.numel())
    return bisected(x, k, 1.0, p)


# what it is


@NORMS
@pytest.mark.parametrize("name", HARD_ROWS)
def test_is_what_plain_bisection_finds(name, p):
    (x, k), wanted = HARD_ROWS[name], bisected_row(name, p)
    assert torch.allclose(khot.sparse_topk(x, k, p=p), wanted, rtol=1e-9, atol=1e-11)
    testing.check_row(lambda x, k: khot.sparse_topk(x, k, p=p), x, k)
    testing.check_row(lambda x, k: khot.sparse_topk(x, k, p=p), x.float(), k)


@NORMS
@pytest.mark.parametrize("tau", [0.3, 1.0, 5.0])
def test_maximises_score_minus_norm_over_the_capped_simplex(tau, p):
    """No point of the capped simplex lies uphill of it, and the objective is concave."""
    x, k = normal(7), 2.5
    y = khot.sparse_topk(x, k, tau=tau, p=p)
    uphill = x - tau * y ** (p - 1)
    first, second, third = uphill.topk(3).values
    assert float(first + second + third / 2 - uphill @ y) <= 1e-10, "2.5 of the steepest"


def test_at_two_it_is_the_euclidean_projection():
    """No point of the capped simplex is nearer to x / tau: the variational inequality."""
    x, k, tau = normal(50), 10.0, 0.6
    y = khot.sparse_topk(x, k, tau=tau)
    vertices = torch.eye(50, dtype=torch.float64)[(x / tau - y).topk(10).indices].sum(0)
    assert float((x / tau - y) @ (vertices - y)) <= 1e-12


def test_at_k_one_it_is_sparsemax():
    x = normal(20)
    ordered = x.sort(descending=True).values
    sizes = torch.arange(1, 21)
    thresholds = (ordered.cumsum(0) - 1) / sizes
    nu = thresholds[(ordered > thresholds).sum() - 1]
    assert torch.allclose(khot.sparse_topk(x, 1), (x - nu).clamp(min=0), atol=1e-14)


@NORMS
def test_low_temperature_equals_topk_once_tau_is_below_the_gap(p):
    x = normal(20)
    ordered = x.sort(descending=True).values
    gap = float(ordered[6] - ordered[7])
    hard = torch.zeros_like(x).index_fill(0, x.topk(7).indices, 1.0)
    assert torch.equal(khot.sparse_topk(x, 7, tau=0.99 * gap, p=p), hard)
    assert not torch.equal(khot.sparse_topk(x, 7, tau=1.5 * gap, p=p), hard)


@NORMS
def test_high_temperature_is_uniform(p):
    y = khot.sparse_topk(normal(8), 3, tau=1e9, p=p)
    assert torch.allclose(y, torch.tensor(3 / 8).double(), atol=1e-8)


@NORMS
def test_taus_at_the_ends_of_the_floats(p):
    x = torch.tensor([3.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    tau = torch.tensor([1e300, 1e-300, 5e-324], dtype=torch.float64)
    y = khot.sparse_topk(x.expand(3, 4), 2, tau=tau, p=p)
    assert torch.allclose(y[0], torch.full((4,), 0.5).double())
    assert torch.allclose(y[1:], torch.tensor([1, 0.5, 0.5, 0]).double().expand(2, 4))


@NORMS
def test_ties_share(p):
    x = torch.tensor([2.0, 1, 1, 1, 0, -1], dtype=torch.float64)
    y = khot.sparse_topk(x, 2, p=p, tau=0.5)
    assert torch.allclose(y, torch.tensor([1, 1 / 3, 1 / 3, 1 / 3, 0, 0]).double())


@NORMS
def test_each_row_has_its_k_and_tau(p):
    x, k, tau = normal(2, 3, 7), torch.tensor([1.0, 2.5, 6.0]), torch.tensor([[0.5], [2.0]])
    y = khot.sparse_topk(x, k, tau=tau, p=p)
    for i in range(2):
        for j in range(3):
            wanted = bisected(x[i, j], float(k[j]), float(tau[i]), p)
            assert torch.allclose(y[i, j], wanted, atol=1e-12)


@NORMS
def test_masked_units_take_no_part(p):
    x = normal(12)
    x[::3] = -torch.inf
    free = x > -torch.inf
    for k in (0.0, 1e-3, 3.3, 8.0):
        y = khot.sparse_topk(x, k, p=p)
        assert bool((y[~free] == 0).all())
        assert torch.allclose(y[free], khot.sparse_topk(x[free], k, p=p), atol=1e-14)


def test_other_norms_are_refused():
    with pytest.raises(ValueError, match="^sparse_topk: p must be 2 or 4/3; got 1.5$"):
        khot.sparse_topk(normal(4), 2, p=1.5)
    with pytest.raises(TypeError, match="^sparse_topk: p must be a number; got str$"):
        khot.sparse_topk(normal(4), 2, p="2")


# its gradient


@NORMS
@pytest.mark.parametrize("k", [0.4, 6.6])
def test_gradients_are_those_of_finite_differences(k, p):
    given = [normal(9, seed=4), torch.tensor(k), torch.tensor(0.8)]
    arguments = [value.double().requires_grad_() for value in given]

    def function(x, k, tau):
        return khot.sparse_topk(x, k, tau=tau, p=p)

    modes = {"check_forward_ad": True, "check_batched_grad": True}
    assert torch.autograd.gradcheck(function, arguments, **modes)
    assert torch.autograd.gradgradcheck(function, arguments)


@NORMS
def test_masked_and_batched_gradients_are_those_of_finite_differences(p):
    x = normal(3, 8)
    x[1, ::3] = -torch.inf
    k = torch.tensor([1.3, 2.0, 6.5]).double().requires_grad_()
    tau = torch.tensor(0.6).double().requires_grad_()
    moving = x[x > -torch.inf].requires_grad_()

    def function(moving, k, tau):
        full = torch.full_like(x, -torch.inf).masked_scatter(x > -torch.inf, moving)
        return khot.sparse_topk(full, k, tau=tau, p=p)

    assert torch.autograd.gradcheck(function, (moving, k, tau), check_forward_ad=True)


@NORMS
def test_third_derivatives_are_those_of_the_threshold(p):
    """Against the implicit function solved by hand: two units, both free."""
    x = torch.tensor([0.3, 0.0], dtype=torch.float64)

    def first(k):
        return khot.sparse_topk(x, k, p=p)[0]

    def by_hand(k):
        if p == 2:
            return (k + 0.3) / 2
        # u^3 + (u - 0.3)^3 = k, by Newton steps from far nearer than needed
        u = torch.tensor(0.7, dtype=torch.float64)
        for _ in range(30):
            u = u - (u**3 + (u - 0.3) ** 3 - k) / (3 * u**2 + 3 * (u - 0.3) ** 2)
        return u**3

    k = torch.tensor(0.5, dtype=torch.float64)
    got, wanted = first, by_hand
    for _ in range(3):
        got, wanted = torch.func.grad(got), torch.func.grad(wanted)
        assert float(got(k)) == pytest.approx(float(wanted(k)), rel=1e-9, abs=1e-12)


@NORMS
def test_only_free_units_have_a_gradient(p):
    x = (normal(40) * 3).requires_grad_()
    y = khot.sparse_topk(x, 10, p=p)
    (y * normal(40, seed=1)).sum().backward()
    free = (y > 0) & (y < 1)
    assert 2 < int(free.sum()) < 20
    assert bool((x.grad[free] != 0).all()) and bool((x.grad[~free] == 0).all())


@NORMS
@pytest.mark.parametrize("transformed", [False, True])
def test_where_no_unit_is_free_only_k_has_a_gradient(p, transformed):
    x = torch.tensor([9.0, 5.0, 5.0, 1.0, 1.0, -3.0], dtype=torch.float64)
    shares = {0: [1, 0, 0, 0, 0, 0], 1: [0, 0.5, 0.5, 0, 0, 0], 3: [0, 0, 0, 0.5, 0.5, 0]}
    shares |= {5: [0, 0, 0, 0, 0, 1], 6: [0, 0, 0, 0, 0, 1]}
    for k, share in shares.items():
        arguments = (x, torch.tensor(k).double(), torch.tensor(1.0).double())

        def function(x, k, tau):
            return khot.sparse_topk(x, k, tau=tau, p=p)

        hard = (torch.arange(6) < k).double()
        assert torch.equal(function(*arguments), hard)
        mode = torch.func.jacfwd if transformed else torch.autograd.functional.jacobian
        if transformed:
            in_x, in_k, in_tau = mode(function, argnums=(0, 1, 2))(*arguments)
        else:
            in_x, in_k, in_tau = mode(function, arguments)
        assert bool((in_x == 0).all()) and bool((in_tau == 0).all())
        assert in_k.tolist() == share


def test_a_row_that_is_all_masked():
    x = torch.full((2, 3), -torch.inf, requires_grad=True)
    y = khot.sparse_topk(x, 0)
    y.sum().backward()
    assert torch.equal(y, torch.zeros(2, 3)) and torch.equal(x.grad, torch.zeros(2, 3))


def test_gradient_of_a_broadcast_k_is_summed_over_rows():
    x, g = normal(4, 10), normal(4, 10, seed=1)
    k = torch.tensor(3.0, requires_grad=True)
    (khot.sparse_topk(x, k) * g).sum().backward()
    rows = torch.full((4,), 3.0, requires_grad=True)
    (khot.sparse_topk(x, rows) * g).sum().backward()
    assert torch.allclose(k.grad, rows.grad.sum())


# the traps of its numerics


@NORMS
def test_tolerance_is_relative_to_a_small_k(p):
    for k in (1e-6, 1e-12, 1e-30):
        for dtype, rel in ((torch.float32, 4e-7), (torch.float64, 1e-10)):
            total = khot.sparse_topk(normal(1000).to(dtype), k, p=p).double().sum()
            assert float(total) == pytest.approx(k, rel=rel)


@NORMS
@pytest.mark.parametrize("tau", [1e-3, 1.0, 1e3])
def test_sums_hold_over_offsets_spreads_and_ks(p, tau):
    scale = torch.logspace(-3, 6, 40).double().unsqueeze(-1)
    x = normal(40, 300) * scale
    k = torch.rand(40, generator=torch.Generator().manual_seed(0)).double() * 300
    for offset in (0.0, 1e6):
        for dtype, rel in ((torch.float32, 4e-7), (torch.float64, 1e-10)):
            y = khot.sparse_topk((x + offset).to(dtype), k, tau=tau, p=p)
            assert torch.allclose(y.double().sum(-1), k, rtol=rel, atol=0)
            assert bool(((y >= 0) & (y <= 1)).all())


@NORMS
def test_an_offset_costs_no_digits(p):
    base = (normal(50) * 64).round() / 64  # exact at the offset
    for offset in (1e6, -1e6, 1e13):
        y = khot.sparse_topk(base + offset, 7.7, p=p)
        assert torch.allclose(y, khot.sparse_topk(base, 7.7, p=p), rtol=1e-13, atol=1e-15)


def test_a_million_units():
    x = normal(1_000_000).float() * 5
    y = khot.sparse_topk(x, 100_000)
    assert float(y.double().sum()) == pytest.approx(100_000, rel=4e-7)


def test_rows_can_be_solved_in_float32_where_there_is_no_float64(monkeypatch):
    monkeypatch.setattr(library._library, "object", None)
    monkeypatch.setattr(_checks, "work_dtype", lambda x: torch.float32)
    for name, x, k in testing.hard_rows():
        y = khot.sparse_topk(x.float(), k)
        assert float(y.double().sum()) == pytest.approx(k, rel=2e-6), name


# the kernel


def wild_rows(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """x, k, tau, g: ordinary and hard rows together."""
    x = normal(64, 501) * torch.logspace(-2, 4, 64).double().unsqueeze(-1)
    x[::5, ::7] = -torch.inf
    generator = torch.Generator().manual_seed(1)
    k = torch.rand(64, 1, generator=generator, dtype=torch.float64) * 400
    k[1], k[2], k[3] = 0, 501, 100
    tau = torch.rand(64, 1, generator=generator, dtype=torch.float64) + 0.5
    return x.to(dtype), k, tau, normal(64, 501, seed=2).to(dtype)


@NORMS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_kernel_agrees_with_torch(path, dtype, p):
    if path == "torch":
        return
    x, k, tau, _ = wild_rows(dtype)
    got, wanted = native.forward(x, k, tau, p < 2), solve(x, k, tau, p < 2)
    assert torch.allclose(got[0], wanted[0], rtol=0, atol=16 * torch.finfo(dtype).eps)


@NORMS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gradients_of_plain_calls_are_those_of_transformed_ones(dtype, p):
    x, k, tau, g = wild_rows(dtype)
    arguments = (x, k.squeeze(-1), tau.squeeze(-1))

    def loss(x, k, tau):
        return (khot.sparse_topk(x, k, tau=tau, p=p) * g).sum()

    wanted = torch.func.grad(loss, (0, 1, 2))(*arguments)
    plain = [value.clone().requires_grad_() for value in arguments]
    for got, want in zip(torch.autograd.grad(loss(*plain), plain), wanted, strict=True):
        tolerance = 1e-10 if dtype == torch.float64 else 2e-5
        assert float((got - want).abs().max() / want.abs().max()) < tolerance


@NORMS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_threads_change_no_bit(path, dtype, p):
    if path == "torch":
        return
    x, k, tau, g = wild_rows(dtype)
    before = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3, 7):
            torch.set_num_threads(count)
            y, c, d = native.forward(x, k, tau, p < 2)
            results.append((y, c, d, *native.backward(g, x, k, tau, c, d, p < 2)))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.gpu
def test_cuda_agrees_with_the_cpu():
    x = normal(16, 784)
    there = khot.sparse_topk(x.cuda(), 50)
    assert torch.allclose(there.cpu(), khot.sparse_topk(x, 50), atol=1e-12)


@NORMS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_however_small_tau_is_it_is_the_hard_top_k_and_ties_share(dtype, p):
    x = torch.tensor([[3.0, 1.0, 1.0, 1.0, 0.5, -2.0], [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]], dtype=dtype)
    wanted = torch.tensor([[1, 2 / 3, 2 / 3, 2 / 3, 0, 0], [1, 1, 1, 0, 0, 0]], dtype=dtype)
    taus = torch.tensor([1e-38, 1e-300, 5e-324], dtype=torch.float64)
    scales = torch.tensor([1.0, 1e30, 1e-30], dtype=torch.float64)
    rows = (x * scales[:, None, None].to(dtype)).expand(3, 3, 2, 6)  # of each tau at each scale
    y = khot.sparse_topk(rows, 3, tau=taus[:, None, None], p=p)
    small = taus[:, None] < 1e-31 * scales  # beside the scores
    assert int(small.sum()) == 8 and torch.allclose(y[small], wanted.expand(8, 2, 6))
    g = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]], dtype=dtype).expand(3, 6)
    got = khot.vjp("sparse_topk", x[1:].expand(3, 6), 3, cotangent=g, tau=taus, p=p)
    assert bool((got.scores == 0).all()) and got.tau.tolist() == [0.0] * 3


def test_scores_further_apart_than_float64_can_say_are_refused():
    x = torch.tensor([[1.7e308, -1.7e308, 0.0]], dtype=torch.float64)
    said = "^sparse_topk: x must have differences within float64; got another in 1 of 1 rows"
    with pytest.raises(ValueError, match=said):
        khot.sparse_topk(x, 1)
    assert khot.sparse_topk(x / 2, 1).tolist() == [[1.0, 0.0, 0.0]]
