"""The root finder: what its docstring proves, tried."""

import pytest
import torch

from khot import _solve, testing


def total(s: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(s + c).sum(-1, keepdim=True)


@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0, 100.0])
def test_balance_step_never_passes_the_root(generator, spread):
    s = torch.randn(200, 50, generator=generator, dtype=torch.float64) * spread
    k = torch.randint(1, 50, (200, 1), generator=generator).double()
    root = _solve.solve_shift(s, k, torch.full_like(k, 50))
    exact = root.c + root.step
    for offset in (-20.0, -1.0, -1e-3, 1e-3, 1.0, 20.0):
        c = exact + offset
        h, low, high, _, _ = _solve._sums(s, c)
        step = _solve._balance_step(h - k, low, high)
        # towards the root, and not beyond it
        assert bool((step * offset <= 1e-12).all())
        assert bool((step.abs() <= abs(offset) * (1 + 1e-9) + 1e-12).all())


@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0, 100.0])
def test_bracket_holds_the_root(generator, spread):
    s = torch.randn(200, 50, generator=generator, dtype=torch.float64) * spread
    k = torch.rand(200, 1, generator=generator, dtype=torch.float64) * 50
    start = _solve._start(s, k, torch.full_like(k, 50))
    assert bool((total(s, start.lo) <= k * (1 + 1e-12)).all())
    assert bool((total(s, start.hi) >= k * (1 - 1e-12)).all())
    assert bool(((start.c >= start.lo) & (start.c <= start.hi)).all())


def test_residual_keeps_its_digits_where_all_is_saturated():
    # f(c) - k is e^-100 - e^-300 here; as a difference of sums it would be 0
    s = torch.tensor([[200.0, -200.0]], dtype=torch.float64)
    h, low, high, _, _ = _solve._sums(s, torch.tensor([[100.0]], dtype=torch.float64))
    assert float((h - 1) + low - high) == pytest.approx(torch.tensor(-100.0).double().exp().item())


def test_every_hard_row_is_solved():
    for name, x, k in testing.hard_rows():
        s, n = x.unsqueeze(0), (x > -torch.inf).sum().double().reshape(1, 1)
        root = _solve.solve_shift(s, torch.full_like(n, k), n)
        assert bool(root.done.all()), name
        reached = torch.sigmoid((s + root.c) + root.step).sum()
        assert float(reached) == pytest.approx(k, rel=1e-10), name


def test_rows_may_need_different_numbers_of_iterations(generator):
    s = torch.randn(4, 100, generator=generator, dtype=torch.float64)
    s[2] *= 1e4
    k = torch.tensor([[3.0], [0.0], [3.0], [100.0]], dtype=torch.float64)
    root = _solve.solve_shift(s, k, torch.full_like(k, 100))
    easy, empty, hard, full = root.iterations.squeeze().tolist()
    assert (empty, full) == (0, 0)
    assert 0 < easy <= _solve.COMMON_ITERATIONS < hard
