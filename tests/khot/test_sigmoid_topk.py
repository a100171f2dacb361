"""Sigmoid top-k: the propositions of its paper, and the traps of its numerics."""

import math

import pytest
import torch
from scipy.optimize import LinearConstraint, minimize

import khot
from khot import _checks, testing
from khot._native import library

pytestmark = pytest.mark.usefixtures("path")


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("case", list(testing.hard_rows()), ids=lambda case: case[0])
def test_is_what_plain_bisection_finds(case):
    name, x, k = case
    wanted = testing.bisected_topk(x, k)
    if name == "all equal at 1e17":  # where no float64 is the root
        wanted = torch.full_like(x, k / x.numel())
    # near a threshold at 1e6, x itself is known to 1e-10
    assert torch.allclose(khot.sigmoid_topk(x, k), wanted, rtol=1e-9, atol=1e-9)


# Proposition 1


def test_inverse_up_to_a_constant():
    x = normal(50)
    difference = torch.logit(khot.sigmoid_topk(x, 10)) - x
    assert torch.allclose(difference, difference[0].expand(50), atol=1e-12)


def test_strict_order_for_strict_scores():
    p = khot.sigmoid_topk(normal(100).sort().values, 30)
    assert bool((p.diff() > 0).all())


def test_high_temperature_is_uniform():
    assert torch.allclose(khot.sigmoid_topk(normal(8), 3, tau=1e9), torch.tensor(3 / 8).double())


def test_low_temperature_is_topk():
    x = normal(20)
    hard = torch.zeros_like(x).index_fill(0, x.topk(7).indices, 1.0)
    assert torch.equal(khot.sigmoid_topk(x, 7, tau=1e-5), hard)


# Proposition 2 and Corollary 1


@pytest.mark.parametrize("tau", [0.5, 1.0, 3.0])
def test_maximises_score_plus_tau_entropy_over_the_capped_simplex(tau):
    x, k = normal(6), 2.5

    def objective(p):
        entropy = -(p * math_log(p) + (1 - p) * math_log(1 - p))
        return -(x.numpy() @ p + tau * entropy.sum())

    def math_log(p):
        return torch.tensor(p).clamp(min=1e-300).log().numpy()

    def slope(p):
        return -(x.numpy() - tau * (math_log(p) - math_log(1 - p)))

    found = minimize(
        objective,
        [k / 6] * 6,
        jac=slope,
        bounds=[(1e-9, 1 - 1e-9)] * 6,
        constraints=LinearConstraint([[1] * 6], k, k),
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    p = khot.sigmoid_topk(x, k, tau=tau)
    assert torch.allclose(p, torch.tensor(found.x), atol=1e-5)
    assert objective(p.numpy()) <= found.fun + 1e-10


# k and tau


def test_k_and_tau_differ_by_row():
    x, k, tau = (
        normal(4, 3, 10),
        torch.tensor([1.0, 2.5, 9.0]),
        torch.tensor([[0.5], [1], [2], [3]]),
    )
    p = khot.sigmoid_topk(x, k, tau=tau)
    for i in range(4):
        for j in range(3):
            alone = khot.sigmoid_topk(x[i, j], float(k[j]), tau=float(tau[i]))
            assert torch.allclose(p[i, j], alone, rtol=1e-14)


def test_gradient_of_a_broadcast_k_is_summed_over_rows():
    x, g = normal(4, 10), normal(4, 10, seed=1)
    k = torch.tensor(3.0, requires_grad=True)
    (khot.sigmoid_topk(x, k) * g).sum().backward()
    rows = torch.full((4,), 3.0, requires_grad=True)
    (khot.sigmoid_topk(x, rows) * g).sum().backward()
    assert k.grad.dtype == torch.float32
    assert torch.allclose(k.grad, rows.grad.sum())


def test_integer_tensors_as_k():
    x = normal(2, 10)
    assert torch.equal(
        khot.sigmoid_topk(x, torch.tensor([3, 4])), khot.sigmoid_topk(x, torch.tensor([3.0, 4.0]))
    )


def test_ends_of_k_have_values_and_one_sided_gradients():
    x = normal(6).requires_grad_()
    for k, value, limit in ((0.0, 0.0, x.softmax(-1)), (6.0, 1.0, (-x).softmax(-1))):
        end = torch.tensor(k, dtype=torch.float64, requires_grad=True)
        tau = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
        p = khot.sigmoid_topk(x, end, tau=tau)
        assert torch.equal(p, torch.full_like(p, value))
        for i in range(6):
            in_x, in_k, in_tau = torch.autograd.grad(p[i], (x, end, tau), retain_graph=True)
            assert bool((in_x == 0).all()) and float(in_tau) == 0
            assert torch.allclose(in_k, limit[i], atol=1e-12)


def test_gradient_in_k_tends_to_its_limits():
    x = normal(6)
    for k, limit in ((1e-9, x.softmax(-1)), (6 - 1e-9, (-x).softmax(-1))):
        slope = torch.func.jacrev(lambda k: khot.sigmoid_topk(x, k))(torch.tensor(k).double())
        assert torch.allclose(slope, limit, atol=1e-7)


def test_gradient_in_k_where_every_slope_underflows():
    x = torch.tensor([1000.0, 0.0, -1000.0], requires_grad=True)
    k = torch.tensor(1.0, requires_grad=True)
    p = khot.sigmoid_topk(x, k)
    assert p.tolist() == [1, 0, 0]
    # c = -500 by symmetry, so the next unit is as near as the last
    slopes = [float(torch.autograd.grad(p[i], k, retain_graph=True)[0]) for i in range(3)]
    assert slopes == pytest.approx([0.5, 0.5, 0.0])


def test_masked_row_with_k_zero():
    x = torch.full((2, 3), -torch.inf, requires_grad=True)
    p = khot.sigmoid_topk(x, 0)
    p.sum().backward()
    assert torch.equal(p, torch.zeros(2, 3)) and torch.equal(x.grad, torch.zeros(2, 3))


def test_gradients_with_masks_and_a_spread_are_finite():
    x = normal(4, 100) * torch.tensor([[1.0], [1e2], [1e4], [1e6]])
    x[:, ::3] = -torch.inf
    x.requires_grad_()
    tau = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    (khot.sigmoid_topk(x, 20, tau=tau) * normal(4, 100, seed=1)).sum().backward()
    assert bool(x.grad.isfinite().all()) and bool(tau.grad.isfinite())


def test_a_million_units():
    x = normal(1_000_000).float() * 5
    p, diagnostics = khot.sigmoid_topk_with_diagnostics(x, 100_000)
    assert float(p.double().sum()) == pytest.approx(100_000, rel=4e-7)
    assert int(diagnostics.iterations) <= 4


# the traps of root finding


def test_ordinary_rows_take_about_three_iterations():
    x = normal(100, 1000) * torch.linspace(0.1, 5, 100).double().unsqueeze(-1)
    for k in (1, 50, 500, 999):
        _, diagnostics = khot.sigmoid_topk_with_diagnostics(x, k)
        assert float(diagnostics.iterations.double().mean()) < 4
        assert int(diagnostics.iterations.max()) <= 6


def test_a_hard_row_does_not_unsettle_its_neighbours():
    x = normal(3, 1000)
    x[1] *= 1e4
    _, diagnostics = khot.sigmoid_topk_with_diagnostics(x, 37)
    easy, hard, other = diagnostics.iterations.tolist()
    assert easy <= 4 and other <= 4 and 4 < hard < 60
    assert diagnostics.fallback.tolist() == [False, True, False]


def test_no_row_crawls():
    for name, x, k in testing.hard_rows():
        _, diagnostics = khot.sigmoid_topk_with_diagnostics(x, k)
        assert int(diagnostics.iterations) <= 60, name


def test_tolerance_is_relative_to_a_small_k():
    for k in (1e-6, 1e-12, 1e-30):
        total = khot.sigmoid_topk(normal(1000).float(), k).double().sum()
        assert float(total) == pytest.approx(k, rel=4e-7)


def test_diagnostics_describe_the_rows():
    x = normal(2, 3, 10)
    p, diagnostics = khot.sigmoid_topk_with_diagnostics(x, 4, tau=0.5)
    assert torch.equal(p, khot.sigmoid_topk(x, 4, tau=0.5))
    rebuilt = torch.sigmoid(x / 0.5 + diagnostics.c.unsqueeze(-1))
    assert torch.allclose(rebuilt, p, atol=1e-12)
    assert diagnostics.iterations.shape == diagnostics.fallback.shape == (2, 3)
    assert bool((diagnostics.residual < 1e-12).all())
    _, ends = khot.sigmoid_topk_with_diagnostics(normal(2, 5), torch.tensor([0.0, 5.0]))
    assert ends.c.tolist() == [-math.inf, math.inf]
    assert ends.iterations.tolist() == [0, 0] and ends.residual.tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_diagnostics_and_values_are_the_same_whether_autograd_watches_or_not(dtype):
    x = (normal(10, 6) * torch.logspace(0, 4, 6)).to(dtype)
    x[::3, :2] = -torch.inf
    k, tau = torch.rand(6).double() * 6, torch.linspace(0.1, 2, 6).double()
    options = {"tau": tau, "dim": 0}
    p, here = khot.sigmoid_topk_with_diagnostics(x, k, **options)
    assert torch.equal(p, khot.sigmoid_topk(x, k, **options)) and not p.requires_grad
    watched, there = khot.sigmoid_topk_with_diagnostics(x.clone().requires_grad_(), k, **options)
    assert watched.requires_grad and torch.equal(watched, p)
    for field in ("c", "iterations", "residual", "fallback"):
        a, b = getattr(here, field), getattr(there, field)
        assert a.shape == (6,) and a.dtype == b.dtype and torch.equal(a, b)
        assert not b.requires_grad
    assert here.iterations.dtype == torch.int32 and here.fallback.dtype == torch.bool
    with torch.inference_mode():
        assert torch.equal(khot.sigmoid_topk_with_diagnostics(x, k, **options)[0], p)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"x": [1.0]}, TypeError, "x must be a torch.Tensor; got list"),
        ({"dim": 3}, ValueError, r"dim must be in \[-2, 1\] for 2 dimensions; got 3"),
        ({"k": torch.ones(3)}, ValueError, "k must broadcast to the rows"),
        ({"k": torch.tensor([1.0, 9.0])}, ValueError, "k must be in .* another value in 1 of 2"),
        ({"tau": 0.0}, ValueError, "tau must be finite and above 0; got 0"),
    ],
)
def test_with_diagnostics_the_same_is_refused(changed, error, message):
    with pytest.raises(error, match=f"^sigmoid_topk: {message}"):
        khot.sigmoid_topk_with_diagnostics(**{"x": normal(2, 5), "k": 2} | changed)


def test_the_residual_is_how_far_the_sum_is_from_k():
    x, k = normal(50, 100) * 3, torch.linspace(0.5, 99.5, 50).double()
    for scores in (x, x.float(), x.half()):
        p, diagnostics = khot.sigmoid_topk_with_diagnostics(scores, k)
        # of a half type, before it is rounded to that
        p = khot.sigmoid_topk(scores.float(), k) if scores.dtype == torch.float16 else p
        wanted = (p.double().sum(-1) - k).abs() / torch.minimum(k, 100 - k)
        assert torch.allclose(diagnostics.residual, wanted, rtol=0, atol=1e-13)


def test_scores_of_any_size_sum_to_k_though_the_threshold_falls_between_neighbouring_floats():
    rows = [
        [1.0] * 5 + [-1.0] * 5,
        [-1.0] * 2 + [1.0] * 8,
        [3.0, *[1.0] * 7, -1.0, -2.0],
        [-1.0] * 5 + [-1 - 2**-52] * 5,
        [-1.0] * 5 + [-1 + 2**-53] * 5,
    ]
    powers = (0, 8, 12, 15, 17, 24, 36, 100, 171, 300)
    tau = torch.tensor([10.0**-power for power in powers], dtype=torch.float64)[:, None, None]
    k = torch.tensor([1.0, 2.5, 5.0, 7.0, 9.9], dtype=torch.float64)[:, None]
    x = 1.3 * torch.tensor(rows, dtype=torch.float64).expand(10, 5, 5, 10)
    p, diagnostics = khot.sigmoid_topk_with_diagnostics(x, k, tau=tau)
    far = (p.sum(-1) - k).abs() > 1e-10 * k
    assert not bool(far.any()), far.nonzero().tolist()
    assert int(diagnostics.iterations.max()) < 1500


def test_rows_can_be_solved_in_float32_where_there_is_no_float64(monkeypatch):
    monkeypatch.setattr(library._library, "object", None)
    monkeypatch.setattr(_checks, "work_dtype", lambda x: torch.float32)
    for name, x, k in testing.hard_rows():
        p = khot.sigmoid_topk(x.float(), k)
        assert float(p.double().sum()) == pytest.approx(k, rel=1e-6), name


# the same bits


def hard_batch(rows: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """x of every spread, k, and a cotangent."""
    x = normal(rows, n) * torch.logspace(-1, 2.5, rows, dtype=torch.float64).unsqueeze(-1)
    k = torch.linspace(0.1, 0.9, rows, dtype=torch.float64) * n
    return x.to(dtype), k, normal(rows, n, seed=1).to(dtype)


def relaxed(x, k, g):
    """p and the cotangents of x and k."""
    x, k = x.clone().requires_grad_(), k.clone().requires_grad_()
    p = khot.sigmoid_topk(x, k)
    return p.detach(), *torch.autograd.grad(p, (x, k), g)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("n", [1, 5, 13, 64, 784, 10_001])
def test_a_row_and_its_gradient_have_the_same_bits_in_any_batch(n, dtype):
    x, k, g = hard_batch(21, n, dtype)
    whole = relaxed(x, k, g)
    for b in range(0, 21, 4):
        for rows in (slice(b, b + 1), slice(b, None)):
            part = relaxed(x[rows], k[rows], g[rows])
            assert all(torch.equal(p[0], w[b]) for p, w in zip(part, whole, strict=True))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("rows", "n"), [(1, 300_001), (2, 200_000), (3, 70_000), (64, 784)])
def test_threads_change_no_bit_of_the_kernels(path, rows, n, dtype):
    if path == "torch":
        return  # not promised: torch splits the sum of a row
    x, k, g = hard_batch(rows, n, dtype)
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            found.append(relaxed(x, k, g))
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], others, strict=True))


# ties: the rounding of equal terms all goes one way


def test_clusters_of_equal_scores_sum_to_k_in_float32():
    generator = torch.Generator().manual_seed(0)
    for n in (135, 375, 987, 2991):
        apart = torch.rand(512, 1, generator=generator) * 30
        x = (torch.rand(512, n, generator=generator) > 0.5) * apart
        k = torch.rand(512, generator=generator) * n
        total = khot.sigmoid_topk(x, k).double().sum(-1)
        assert float(((total - k.double()).abs() / k).max()) <= 4e-7


# memory


def test_forward_and_backward_hold_two_copies_beyond_input_and_output(path):
    if path == "torch":
        return
    x, g = torch.randn(4, 100_000, requires_grad=True), torch.randn(4, 100_000)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        torch.autograd.grad(khot.sigmoid_topk(x, 1000), x, g)
    events = profile.profiler.kineto_results.events()
    held = [event.nbytes() for event in events if event.name() == "[memory]"]
    peak = max(torch.tensor(held).cumsum(0).tolist())
    assert x.nbytes < peak <= 3 * x.nbytes  # p is the output


@pytest.mark.gpu
def test_cuda_agrees_with_the_cpu():
    x = normal(16, 784)
    there = khot.sigmoid_topk(x.cuda(), 50)
    assert torch.allclose(there.cpu(), khot.sigmoid_topk(x, 50), atol=1e-12)
