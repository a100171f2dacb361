"""Sorted SOFT top-k: a column for each rank, its limits, and its solver."""

import itertools

import pytest
import torch

import khot
from khot import _checks, _ranks, testing


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def transported(x, k, epsilon):
    """The same by plain Sinkhorn on the transport problem, run long; k < n."""
    anchors = torch.arange(k, -1, -1, dtype=torch.float64)
    wanted = torch.ones(k + 1, dtype=torch.float64)
    wanted[k] = len(x) - k
    cost = (x.unsqueeze(-1) - anchors) ** 2
    return testing.transport_plan(cost, wanted, epsilon)[:, :k]


# values


@pytest.mark.parametrize("k", [1, 3, 7])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_is_the_entropic_transport_to_an_anchor_for_each_rank(k, epsilon):
    for seed in range(3):
        x = normal(8, seed=seed)
        wanted = transported(x, k, epsilon)
        assert torch.allclose(khot.sorted_soft_topk(x, k, epsilon=epsilon), wanted, atol=1e-10)


def test_is_the_transport_also_for_tied_and_masked_units():
    x = torch.tensor([2.0, 1, 1, 1, 0, 0.2, 0.2]).double()
    p = khot.sorted_soft_topk(x, 3)
    assert torch.allclose(p, transported(x, 3, 1.0), atol=1e-10)
    masked = torch.full((10,), -torch.inf, dtype=torch.float64)
    masked[::3], masked[1:9:3] = x[:4], x[4:]
    q = khot.sorted_soft_topk(masked, 3)
    assert torch.allclose(q[[0, 3, 6, 9, 1, 4, 7]], p, atol=1e-14)
    assert bool((q[[2, 5, 8]] == 0).all())


def test_all_units_ranked_is_a_doubly_stochastic_matrix_of_its_kind():
    x = normal(6)
    p = khot.sorted_soft_topk(x, 6)
    assert torch.allclose(p.sum(0), torch.ones(6).double(), atol=1e-13)
    assert torch.allclose(p.sum(1), torch.ones(6).double(), atol=1e-13)
    # the form of the plan: log P is 2 x_i y_l / epsilon up to potentials of rows and columns
    anchors = torch.arange(6, 0, -1).double()
    rest = p.log() - 2 * x.unsqueeze(-1) * anchors
    rest = rest - rest.mean(0) - rest.mean(1, keepdim=True) + rest.mean()
    assert float(rest.abs().max()) < 1e-12


@pytest.mark.parametrize("k", [0, 1, 4, 9, 10])
def test_columns_sum_to_one_and_rows_to_at_most_one(k):
    p = khot.sorted_soft_topk(normal(5, 10) * torch.logspace(-2, 3, 5).unsqueeze(-1), k)
    assert p.shape == (5, 10, k) and bool((p >= 0).all())
    assert torch.allclose(p.sum(-2), torch.ones(5, k).double(), rtol=0, atol=1e-12)
    assert bool((p.sum(-1) <= 1 + 1e-15).all())


def test_one_rank_is_soft_topk():
    x = normal(4, 20)
    p = khot.sorted_soft_topk(x, 1, epsilon=0.3).squeeze(-1)
    assert torch.allclose(p, khot.soft_topk(x, 1, epsilon=0.3), atol=1e-13)


def test_low_epsilon_is_the_permutation_that_sorts():
    x = normal(20)
    p = khot.sorted_soft_topk(x, 7, epsilon=1e-4)
    hard = torch.zeros(20, 7).double()
    hard[x.topk(7).indices, torch.arange(7)] = 1.0
    assert torch.allclose(p, hard, rtol=0, atol=1e-12)


def test_high_epsilon_is_uniform():
    p = khot.sorted_soft_topk(normal(20), 7, epsilon=1e9)
    assert torch.allclose(p, torch.tensor(1 / 20).double())


def test_tied_units_share_their_ranks():
    x = torch.tensor([50.0, 50.0, 80.0, 0.0, 0.0, 0.0]).double()
    p = khot.sorted_soft_topk(x, 4)
    wanted = torch.zeros(6, 4).double()
    wanted[2, 0] = 1.0
    wanted[:2, 1:3] = 0.5
    wanted[3:, 3] = 1 / 3
    assert torch.allclose(p, wanted, atol=1e-13)


def test_soft_sorted_values_come_out_sorted():
    x = normal(30)
    p = khot.sorted_soft_topk(x, 10)
    values = p.mT @ x
    assert bool((values.diff() < 0).all()) and float(values[0]) < float(x.max())
    sharp = khot.sorted_soft_topk(x, 10, epsilon=1e-4).mT @ x
    assert torch.allclose(sharp, x.topk(10).values, atol=1e-12)


def test_epsilon_differs_by_row_and_ranks_come_last():
    x, epsilon = normal(3, 8, 4), torch.rand(3, 4, generator=torch.Generator().manual_seed(0)) + 0.2
    for dim in (1, -2):
        p = khot.sorted_soft_topk(x, 2, epsilon=epsilon, dim=dim)
        assert p.shape == (3, 8, 4, 2)
        for i, j in itertools.product(range(3), range(4)):
            alone = khot.sorted_soft_topk(x[i, :, j], 2, epsilon=float(epsilon[i, j]))
            assert torch.allclose(p[i, :, j], alone, atol=1e-13)


# the solver


def test_many_ranks():
    _, x, k = next(case for case in testing.hard_rows() if case[0] == "k > n / 2")
    p = khot.sorted_soft_topk(x[:500], 450)
    assert float(k) == 900 and torch.allclose(p.sum(0), torch.ones(450).double(), atol=1e-12)


def test_every_row_takes_a_few_steps(monkeypatch):
    plans = 0
    plan = _ranks._plan

    def counted(*arguments):
        nonlocal plans
        plans += 1
        return plan(*arguments)

    monkeypatch.setattr(_ranks, "_plan", counted)
    kinds = {
        "normal": lambda x: x,
        "tied": torch.round,
        "two values": lambda x: (x > 0).double(),
        "nearly two values": lambda x: (x > 0) + 1e-3 * x,
        "heavy tails": lambda x: x**5,
        "log-normal": lambda x: (5 * x).exp(),
    }
    for (name, kind), scale, seed in itertools.product(
        kinds.items(), (1e-2, 0.5, 2, 10, 1e3, 1e6), range(2)
    ):
        x = kind(normal(50, seed=seed)) * scale
        for k in (1, 20, 49, 50):
            plans = 0
            p = khot.sorted_soft_topk(x, k)
            error = float((p.sum(0) - 1).abs().max())
            assert error < 1e-12 and plans <= 12, f"{name} at scale {scale}, seed {seed}, k = {k}"


def test_sinkhorn_finishes_what_newton_cannot(monkeypatch):
    x = normal(4, 12)
    wanted = khot.sorted_soft_topk(x, 3)
    useless = torch.zeros(())
    monkeypatch.setattr(
        _ranks, "newton_step", lambda plan, columns: useless.expand(len(plan), 1, 3)
    )
    assert torch.allclose(khot.sorted_soft_topk(x, 3), wanted, rtol=0, atol=1e-11)


def test_a_row_does_not_unsettle_its_neighbours():
    x = normal(3, 200)
    x[1] *= 1e4
    p = khot.sorted_soft_topk(x, 20)
    for row, alone in zip(p, x, strict=True):
        assert torch.allclose(row, khot.sorted_soft_topk(alone, 20), rtol=1e-10, atol=1e-14)


def test_rows_are_solved_in_pieces(monkeypatch):
    x = normal(7, 30)
    whole = khot.sorted_soft_topk(x, 4)
    monkeypatch.setattr(_ranks, "ENTRIES_TOGETHER", 2 * 30 * 5)
    assert torch.allclose(khot.sorted_soft_topk(x, 4), whole, rtol=1e-11, atol=1e-14)


def test_float32_sums_within_its_rounding():
    for scale in (0.1, 1.0, 100.0):
        p = khot.sorted_soft_topk((normal(784) * scale).float(), 50)
        assert p.dtype == torch.float32
        assert float((p.double().sum(0) - 1).abs().max()) < 4e-7


def test_rows_can_be_solved_in_float32_where_there_is_no_float64(monkeypatch):
    monkeypatch.setattr(_checks, "work_dtype", lambda x: torch.float32)
    p = khot.sorted_soft_topk(normal(5, 100).float(), 10)
    assert float((p.double().sum(-2) - 1).abs().max()) < 1e-4


# gradients


def test_gradient_of_every_entry():
    x, epsilon = normal(5).requires_grad_(), torch.tensor(0.8).double().requires_grad_()
    for k in (1, 5, 3):

        def function(x, epsilon, k=k):
            return khot.sorted_soft_topk(x, k, epsilon=epsilon)

        assert torch.autograd.gradcheck(function, (x, epsilon), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, (x, epsilon), check_fwd_over_rev=True)


def test_gradient_at_ties_and_with_masks():
    x = torch.tensor([1.0, 1.0, 0.5, -torch.inf, 1.0, 0.0]).double()
    free = x > -torch.inf

    def function(y):
        return khot.sorted_soft_topk(torch.where(free, x, -torch.inf).masked_scatter(free, y), 3)

    assert torch.autograd.gradcheck(function, x[free].requires_grad_())
    x.requires_grad_()
    khot.sorted_soft_topk(x, 3)[0, 1].backward()
    assert float(x.grad[3]) == 0 and bool(x.grad.isfinite().all())


def test_gradient_where_ranks_hardly_mix():
    """Against finite differences of steps so large that they can be seen."""
    x = torch.tensor([30.0, 20.0, 8.0, 1.0, -9.0]).double()
    jacobian = torch.func.jacrev(lambda x: khot.sorted_soft_topk(x, 3))(x)
    for i in range(5):
        step = torch.zeros(5).double().index_fill(0, torch.tensor(i), 1e-4)
        wanted = khot.sorted_soft_topk(x + step, 3) - khot.sorted_soft_topk(x - step, 3)
        assert torch.allclose(jacobian[..., i], wanted / 2e-4, rtol=1e-5, atol=1e-11)


@pytest.mark.parametrize("case", list(testing.hard_rows()), ids=lambda case: case[0])
def test_gradients_at_hard_rows_are_finite_and_sum_to_zero(case):
    _, x, k = case
    k = max(1, round(k))
    if x.numel() * k > 1e5:
        return
    x, epsilon = x.clone().requires_grad_(), torch.tensor(1.0).double().requires_grad_()
    g = normal(x.numel(), k)
    (khot.sorted_soft_topk(x, k, epsilon=epsilon) * g).sum().backward()
    assert bool(x.grad.isfinite().all()) and bool(epsilon.grad.isfinite())
    # for shifts change nothing
    assert float(x.grad.sum().abs()) <= 1e-10 * float(g.abs().sum())


def test_backward_keeps_a_few_numbers_for_each_entry():
    """Not the n x n matrices of Algorithm 3."""
    x = normal(3000).requires_grad_()
    kept = 0

    def count(tensor):
        nonlocal kept
        kept += tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        p = khot.sorted_soft_topk(x, 5)
    p.sum().backward()
    assert kept <= 3 * p.numel()


def test_transformations_see_all_ranks():
    x = normal(4, 7)
    whole = khot.sorted_soft_topk(x, 3)
    assert torch.equal(torch.func.vmap(lambda x: khot.sorted_soft_topk(x, 3))(x), whole)
    compiled = torch.compile(khot.sorted_soft_topk, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(x, 3), whole)


def test_no_ranks_have_no_gradient():
    x = torch.tensor([[1.0, -torch.inf], [-torch.inf, -torch.inf]], requires_grad=True)
    p = khot.sorted_soft_topk(x, 0)
    p.sum().backward()
    assert p.shape == (2, 2, 0) and torch.equal(x.grad, torch.zeros(2, 2))


@pytest.mark.gpu
def test_cuda_agrees_with_the_cpu():
    x = normal(16, 100)
    there = khot.sorted_soft_topk(x.cuda(), 10)
    assert torch.allclose(there.cpu(), khot.sorted_soft_topk(x, 10), atol=1e-12)


# refusals


ONES = torch.ones(3)


@pytest.mark.parametrize(
    ("x", "k", "options", "error", "message"),
    [
        (ONES, 1.5, {}, ValueError, "k must be one whole number; got 1.5"),
        (ONES, torch.nan, {}, ValueError, "k must be one whole number; got nan"),
        (ONES, torch.tensor(1), {}, TypeError, "k must be one whole number; got Tensor"),
        (ONES, True, {}, TypeError, "k must be a number or a tensor; got bool"),
        (ONES, "1", {}, TypeError, "k must be a number or a tensor; got str"),
        (ONES, 4, {}, ValueError, r"k must be in \[0, n\].*; got k = 4 for n = 3"),
        (ONES, -1, {}, ValueError, r"k must be in \[0, n\].*; got k = -1 for n = 3"),
        (torch.tensor([1, -torch.inf]), 2, {}, ValueError, r"k must be in \[0, n\].* for n = 1"),
        (torch.tensor([1, torch.nan]), 0, {}, ValueError, "x must hold finite numbers or -inf"),
        (ONES, 1, {"epsilon": 0.0}, ValueError, "epsilon must be finite and above 0; got 0"),
        (ONES, 1, {"epsilon": torch.ones(2)}, ValueError, "epsilon must broadcast to the rows"),
        ([1.0], 1, {}, TypeError, "x must be a torch.Tensor; got list"),
    ],
)
def test_refusals(x, k, options, error, message):
    with pytest.raises(error, match=f"^sorted_soft_topk: {message}"):
        khot.sorted_soft_topk(x, k, **options)


def test_values_are_refused_in_every_mode():
    def function(x):
        return khot.sorted_soft_topk(x, 2)

    bad = torch.tensor([[1.0, 2.0, 3.0], [1.0, -torch.inf, -torch.inf]])
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    for mode in (function, torch.func.vmap(function), torch.func.jacrev(function), compiled):
        with pytest.raises(ValueError, match=r"^sorted_soft_topk: k must be in \[0, n\]"):
            mode(bad)
