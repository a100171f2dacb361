"""Every relaxation of the registry keeps every promise of its row, on both paths."""

import pytest
import torch

import khot
from khot import testing
from khot._native import library

# one without a kernel goes one way, the usual one
USUAL = "native" if khot.native_info().in_use else "torch"
CASES = [
    pytest.param(row, path, id=f"{row.name}-{path}" if row.native else row.name)
    for row in khot.operators("relaxation")
    for path in (("native", "torch") if row.native else (USUAL,))
]
pytestmark = [
    pytest.mark.parametrize(("row", "path"), CASES, indirect=["path"]),
    pytest.mark.usefixtures("path"),
]


def scores(n: int = 8, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, generator=generator, dtype=torch.float64)


def ulps(row) -> int:
    """How many roundings the sum over ranks may be off."""
    return 4 if row.ranked else 0


def test_kernels_are_called_where_they_are_named(row, path, monkeypatch):
    kernel, called = library.Kernel.__getitem__, []
    monkeypatch.setattr(
        library.Kernel, "__getitem__", lambda *args: (called.append(args), kernel(*args))[1]
    )
    for dtype in (torch.float32, torch.float64):
        row.soft(scores().to(dtype).requires_grad_(), 3.0).square().sum().backward()
    assert bool(called) == (row.native and path == "native")


def test_values_and_corners(row):
    testing.check_relaxation(
        row.soft,
        capped=row.capped,
        fractional_k=row.fractional_k,
        largest=torch.inf if row.fractional_k else 1e5,
        ulps=ulps(row),
    )


@pytest.mark.parametrize("k", [1.0, 3.0, 7.0])
def test_gradient_in_x_is_that_of_finite_differences(row, k):
    testing.check_gradient(row.soft, scores(), k)


def test_gradients_of_all_promised_arguments(row):
    given = {"x": scores(), "k": torch.tensor(2.5).double() if row.fractional_k else 2}
    given |= {
        name: torch.tensor(0.7).double() for name in row.differentiable_in if name not in given
    }
    names = [name for name in given if name in row.differentiable_in]
    values = [given.pop(name).requires_grad_() for name in names]

    def function(*arguments):
        named = given | dict(zip(names, arguments, strict=True))
        return row.soft(named.pop("x"), named.pop("k"), **named)

    assert torch.autograd.gradcheck(
        function, values, check_forward_ad=True, check_batched_grad=True
    )
    assert torch.autograd.gradgradcheck(function, values)


def test_order_is_kept_where_promised(row):
    if row.order_preserving:
        testing.check_order(row.soft, scores(1000), 37.0, ulps=ulps(row))
        testing.check_order(row.soft, scores(1000).float() * 100, 37.0, ulps=ulps(row))


def test_shifts_change_nothing_where_promised(row):
    if row.shift_invariant:
        testing.check_shift(row.soft, scores(1000), 37.0)


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
    (row.soft(x, 10.0) * scores(50, seed=1)).sum().backward()
    assert bool((x.grad[::2] == 0).all())
    moved = x.grad[1::2] != 0
    assert bool(moved.any() if row.sparse else moved.all())


def test_vmap_is_the_batch(row):
    x = torch.stack([scores(seed=seed) for seed in range(5)])
    k = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    if row.fractional_k:
        mapped = torch.func.vmap(row.soft)(x, k)
        assert torch.equal(mapped, row.soft(x, k))
    over_columns = torch.func.vmap(lambda x: row.soft(x, 2.0), in_dims=1, out_dims=1)(x.T)
    assert torch.equal(over_columns.T, row.soft(x, 2.0))


def test_hessian_agrees_with_double_backward(row):
    def loss(x):
        return row.soft(x, 3.0).square().sum()

    forward_over_reverse = torch.func.hessian(loss)(scores())
    reverse_over_reverse = torch.autograd.functional.hessian(loss, scores())
    assert torch.allclose(forward_over_reverse, reverse_over_reverse, atol=1e-12)


def test_compiles_as_one_graph(row, path):
    if path != USUAL:
        return  # what is compiled does not depend on the path

    def loss(x, k):
        return row.soft(x, k, dim=0).square().sum()

    torch._dynamo.reset()  # one code object for all rows
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    x = torch.stack([scores(seed=seed) for seed in range(5)], 1).requires_grad_()
    k = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], requires_grad=True) if row.fractional_k else 2
    assert torch.allclose(compiled(x, k), loss(x, k))
    arguments = (x, k) if row.fractional_k else (x,)
    wanted = torch.autograd.grad(loss(x, k), arguments)
    for got, want in zip(torch.autograd.grad(compiled(x, k), arguments), wanted, strict=True):
        assert torch.allclose(got, want)


def test_transforms_inside_a_compiled_function(row, path):
    if path != USUAL:
        return  # what is compiled does not depend on the path

    def loss(x):
        return row.soft(x, 2.0).square().sum()

    direction = scores(seed=1)

    def directional(x):
        return torch.func.jvp(loss, (x,), (direction,))[1]

    torch._dynamo.reset()  # one code object for all rows
    x = torch.stack([scores(seed=seed) for seed in range(3)])
    for transform in (torch.func.vmap(torch.func.grad(loss)), torch.func.vmap(directional)):
        compiled = torch.compile(transform, fullgraph=True, backend="aot_eager")
        assert torch.allclose(compiled(x), transform(x), atol=1e-12)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("n", [5, 77, 784, 10_001])
def test_a_row_does_not_depend_on_its_batch(row, n):
    x = torch.stack([scores(n, seed=seed) for seed in range(8)]).float()
    whole = row.soft(x, 3.0)
    for b in range(8):
        for alone in (row.soft(x[b], 3.0), row.soft(x[b:], 3.0)[0]):
            assert torch.equal(alone, whole[b])


def test_input_is_left_alone_and_may_lie_anywhere(row):
    x = torch.stack([scores(seed=seed) for seed in range(6)])
    before = x.clone()
    strided = row.soft(x[::2, ::2], 2.0)
    assert torch.equal(strided, row.soft(x[::2, ::2].contiguous(), 2.0))
    assert torch.equal(x, before)


def test_no_rows_give_no_rows(row):
    assert row.soft(torch.empty(0, 5), 2.0).shape == (0, 5)
    assert row.soft(torch.empty(3, 0, 5), 2.0).shape == (3, 0, 5)
