"""Every relaxation of the registry keeps every promise of its row, on both paths."""

import pytest
import torch

import khot
from khot import testing

ROWS = pytest.mark.parametrize("row", khot.operators("relaxation"), ids=lambda row: row.name)
pytestmark = [ROWS, pytest.mark.usefixtures("path")]


def scores(n: int = 8, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, generator=generator, dtype=torch.float64)


def test_values_and_corners(row):
    testing.check_relaxation(row.function, capped=row.capped, fractional_k=row.fractional_k)


@pytest.mark.parametrize("k", [1.0, 3.0, 7.0])
def test_gradient_in_x_is_that_of_finite_differences(row, k):
    testing.check_gradient(row.function, scores(), k)


def test_gradients_of_all_promised_arguments(row):
    given = {"x": scores(), "k": torch.tensor(2.5 if row.fractional_k else 2.0).double()}
    given |= {
        name: torch.tensor(0.7).double() for name in row.differentiable_in if name not in given
    }
    names = [name for name in given if name in row.differentiable_in]
    values = [given.pop(name).requires_grad_() for name in names]

    def function(*arguments):
        named = given | dict(zip(names, arguments, strict=True))
        return row.function(named.pop("x"), named.pop("k"), **named)

    assert torch.autograd.gradcheck(
        function, values, check_forward_ad=True, check_batched_grad=True
    )
    assert torch.autograd.gradgradcheck(function, values)


def test_order_is_kept_where_promised(row):
    if row.order_preserving:
        testing.check_order(row.function, scores(1000), 37.0)
        testing.check_order(row.function, scores(1000).float() * 100, 37.0)


def test_shifts_change_nothing_where_promised(row):
    if row.shift_invariant:
        testing.check_shift(row.function, scores(1000), 37.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_the_rounded_float32_result(row, dtype):
    x = scores(784).to(dtype)
    p = row.function(x, 50.0)
    assert p.dtype == dtype
    assert torch.equal(p, row.function(x.float(), 50.0).to(dtype))


def test_masked_units_get_no_gradient(row):
    x = scores(50)
    x[::2] = -torch.inf
    x.requires_grad_()
    (row.function(x, 10.0) * scores(50, seed=1)).sum().backward()
    assert bool((x.grad[::2] == 0).all())
    assert bool((x.grad[1::2] != 0).all())


def test_vmap_is_the_batch(row):
    x = torch.stack([scores(seed=seed) for seed in range(5)])
    k = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    mapped = torch.func.vmap(row.function)(x, k)
    assert torch.equal(mapped, row.function(x, k))
    over_columns = torch.func.vmap(lambda x: row.function(x, 2.0), in_dims=1, out_dims=1)(x.T)
    assert torch.equal(over_columns.T, row.function(x, 2.0))


def test_hessian_agrees_with_double_backward(row):
    def loss(x):
        return row.function(x, 3.0).square().sum()

    forward_over_reverse = torch.func.hessian(loss)(scores())
    reverse_over_reverse = torch.autograd.functional.hessian(loss, scores())
    assert torch.allclose(forward_over_reverse, reverse_over_reverse, atol=1e-12)


def test_compiles_as_one_graph(row):
    def loss(x, k):
        return row.function(x, k, dim=0).square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    x = torch.stack([scores(seed=seed) for seed in range(5)], 1).requires_grad_()
    k = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], requires_grad=True)
    assert torch.allclose(compiled(x, k), loss(x, k))
    wanted = torch.autograd.grad(loss(x, k), (x, k))
    for got, want in zip(torch.autograd.grad(compiled(x, k), (x, k)), wanted, strict=True):
        assert torch.allclose(got, want)


@pytest.mark.parametrize("n", [5, 77, 784, 10_001])
def test_a_row_does_not_depend_on_its_batch(row, path, n):
    x = torch.stack([scores(n, seed=seed) for seed in range(8)]).float()
    # torch rounds the last few elements of a tensor otherwise than the rest; the kernels do not
    ulps = 0 if path == "native" else 2
    whole = row.function(x, 3.0)
    for b in range(8):
        for alone in (row.function(x[b], 3.0), row.function(x[b:], 3.0)[0]):
            assert torch.allclose(alone, whole[b], rtol=ulps * 2**-23, atol=0)


def test_input_is_left_alone_and_may_lie_anywhere(row):
    x = torch.stack([scores(seed=seed) for seed in range(6)])
    before = x.clone()
    strided = row.function(x[::2, ::2], 2.0)
    assert torch.equal(strided, row.function(x[::2, ::2].contiguous(), 2.0))
    assert torch.equal(x, before)


def test_no_rows_give_no_rows(row):
    assert row.function(torch.empty(0, 5), 2.0).shape == (0, 5)
    assert row.function(torch.empty(3, 0, 5), 2.0).shape == (3, 0, 5)


REFUSALS = {
    "a list": ([1.0, 2.0], 1, {}, TypeError, "x must be a torch.Tensor; got list"),
    "integers": (torch.arange(3), 1, {}, TypeError, "x must be one of .*; got int64"),
    "a scalar": (torch.tensor(1.0), 1, {}, ValueError, "at least one dimension"),
    "no units": (torch.empty(2, 0), 0, {}, ValueError, "at least one entry along dim"),
    "no such dim": (torch.ones(3), 1, {"dim": 1}, ValueError, r"dim must be in \[-1, 0\]"),
    "a dim that is no number": (torch.ones(3), 1, {"dim": "1"}, TypeError, "dim must be an int"),
    "NaN": (torch.tensor([1.0, torch.nan]), 1, {}, ValueError, "NaN or \\+inf in 1 of 1 rows"),
    "+inf": (torch.tensor([1.0, torch.inf]), 1, {}, ValueError, "x must hold finite numbers"),
    "k < 0": (torch.ones(3), -1, {}, ValueError, r"k must be in \[0, n\]"),
    "k > n": (torch.ones(3), 4, {}, ValueError, "got k = 4 for n = 3"),
    "k > unmasked": (torch.tensor([1.0, -torch.inf]), 2, {}, ValueError, "got k = 2 for n = 1"),
    "k NaN": (torch.ones(3), torch.nan, {}, ValueError, r"k must be in \[0, n\]"),
    "k in one row": (torch.ones(2, 3), torch.tensor([1, 4]), {}, ValueError, "in 1 of 2 rows"),
    "k a bool": (torch.ones(3), True, {}, TypeError, "k must be a number or a tensor; got bool"),
    "k a string": (torch.ones(3), "2", {}, TypeError, "k must be a number or a tensor; got str"),
    "k complex": (torch.ones(3), torch.tensor(1j), {}, TypeError, "k must be real"),
    "k of wrong shape": (torch.ones(2, 3), torch.ones(3), {}, ValueError, r"shape \(2,\); got"),
    "k with more rows": (torch.ones(3), torch.ones(2), {}, ValueError, r"shape \(\); got"),
    "tau = 0": (torch.ones(3), 1, {"tau": 0}, ValueError, "tau must be finite and above 0; got 0"),
    "tau < 0": (torch.ones(3), 1, {"tau": -1.0}, ValueError, "tau must be finite and above 0"),
    "tau inf": (torch.ones(3), 1, {"tau": torch.inf}, ValueError, "tau must be finite"),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
def test_refusals(row, case):
    x, k, options, error, message = case
    with pytest.raises(error, match=f"^{row.name}: .*{message}"):
        row.function(x, k, **options)


VALUES = [name for name in REFUSALS if name in ("NaN", "+inf", "k < 0", "k > n", "tau = 0")]


@pytest.mark.parametrize("case", [REFUSALS[name] for name in VALUES], ids=VALUES)
def test_refusals_of_values_hold_when_compiled_and_mapped(row, case):
    x, k, options, error, _ = case
    compiled = torch.compile(
        lambda x: row.function(x, k, **options), fullgraph=True, backend="aot_eager"
    )
    with pytest.raises(error, match=f"^{row.name}: "):
        compiled(x)
    with pytest.raises(error, match=f"^{row.name}: "):
        torch.func.vmap(lambda x: row.function(x, k, **options))(torch.stack([x, x]))
