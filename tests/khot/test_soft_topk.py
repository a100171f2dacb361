"""SOFT top-k: the theorem that it is sigmoid top-k, Sinkhorn's iteration, and the bias."""

import math

import pytest
import torch

import khot
from khot import _checks, _sinkhorn, testing
from khot._sigmoid import relax_with_diagnostics

pytestmark = pytest.mark.usefixtures("path")
METHODS = pytest.mark.parametrize("method", ["exact", "sinkhorn"])


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def sinkhorn(x, k, *, dim=-1, **options):
    return khot.soft_topk(x, k, method="sinkhorn", dim=dim, **options)


# the theorem


@METHODS
@pytest.mark.parametrize("k", [0.4, 1.0, 2.5, 6.0, 7.9])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_is_the_entropic_transport_to_two_anchors(method, k, epsilon):
    x = normal(8)
    cost = torch.stack([x**2, (x - 1) ** 2], -1)
    plan = testing.transport_plan(cost, torch.tensor([8 - k, k], dtype=torch.float64), epsilon)
    p = khot.soft_topk(x, k, epsilon=epsilon, method=method)
    assert torch.allclose(p, plan[:, 1], rtol=0, atol=1e-10)


def test_is_sigmoid_topk_at_half_the_temperature():
    x = normal(5, 100)
    epsilon = torch.linspace(0.1, 3, 5)
    p = khot.soft_topk(x, 7.5, epsilon=epsilon)
    assert torch.equal(p, khot.sigmoid_topk(x, 7.5, tau=epsilon / 2))


# how far from the hard top-k


def hard(x, k):
    return torch.zeros_like(x).index_fill(0, x.topk(k).indices, 1.0)


@METHODS
@pytest.mark.parametrize("k", [1, 4, 19])
def test_bias_is_bounded_by_entropy_over_gap(method, k):
    x = torch.stack([normal(20, seed=seed) for seed in range(5)])
    epsilon = torch.tensor([1e-3, 1e-2, 0.1, 1.0]).double().unsqueeze(-1)
    ordered = x.sort(descending=True).values
    gap = ordered[:, k - 1] - ordered[:, k]
    off = khot.soft_topk(x.expand(4, 5, 20), k, epsilon=epsilon, method=method)
    off = off - torch.stack([hard(row, k) for row in x])
    # below 1e-12 is the tolerance of the iteration
    assert bool((off.abs().sum(-1) <= epsilon * 20 * math.log(2) / gap + 1e-12).all())
    # Theorem 2 with the factor n that its proof loses; the plan is that of mass 1
    frobenius = math.sqrt(2) * off.norm(dim=-1) / 20
    assert bool((frobenius <= epsilon * math.log(40) / gap + 1e-12).all())


def test_theorem_2_as_printed_fails_where_many_units_lie_at_the_gap():
    n, epsilon = 1000, 1.0
    edges = torch.tensor([0.5, -0.5]).double().repeat_interleave(n // 2)
    x = edges + edges.sign() * torch.rand(n, generator=torch.Generator().manual_seed(0)) * 1e-3
    ordered = x.sort(descending=True).values
    gap = float(ordered[499] - ordered[500])
    off = khot.soft_topk(x, n // 2, epsilon=epsilon) - hard(x, n // 2)
    frobenius = math.sqrt(2) * float(off.norm()) / n
    assert frobenius > epsilon * (math.log(n) + math.log(2)) / (n * gap)
    assert frobenius <= epsilon * (math.log(n) + math.log(2)) / gap


# Sinkhorn's iteration


@pytest.mark.parametrize("case", list(testing.hard_rows()), ids=lambda case: case[0])
def test_sinkhorn_stands_hard_rows(case):
    _, x, k = case
    x, tau = x.expand(2, -1), torch.tensor([1.0, 0.1]).double()
    p, diagnostics = relax_with_diagnostics("soft_topk", x, k, tau, -1, solver="sinkhorn")
    assert bool(((p >= 0) & (p <= 1)).all()) and bool((p[x == -torch.inf] == 0).all())
    for row, iterations in zip(p, diagnostics.iterations, strict=True):
        converged = int(iterations) < _sinkhorn.MOST_ITERATIONS
        assert float(row.sum()) == pytest.approx(k, rel=1e-12 if converged else 1e-7)
    assert torch.allclose(p, khot.soft_topk(x, k, epsilon=2 * tau), rtol=0, atol=1e-6)


def test_sinkhorn_never_passes_the_root(monkeypatch):
    x = normal(4, 200) * torch.tensor([[0.1], [1.0], [10.0], [100.0]])
    k = torch.tensor([3.0, 50.5, 100.0, 199.0]).double()
    root = relax_with_diagnostics("soft_topk", x, k, 0.5, -1)[1].c
    distances = []
    for limit in range(1, 30):
        monkeypatch.setattr(_sinkhorn, "MOST_ITERATIONS", limit)
        _, diagnostics = relax_with_diagnostics("soft_topk", x, k, 0.5, -1, solver="sinkhorn")
        assert int(diagnostics.iterations.max()) <= limit
        distances.append(diagnostics.c - root)
    steps = torch.stack(distances)
    assert bool((steps.abs().diff(dim=0) <= 1e-12).all())
    assert bool(((steps.sign() == steps[0].sign()) | (steps.abs() < 1e-10)).all())


def test_sinkhorn_that_ran_out_of_steps_returns_what_it_has():
    _, x, k = next(case for case in testing.hard_rows() if case[0] == "Cauchy")
    tau = torch.tensor([1.0, 0.03]).double()
    p, diagnostics = relax_with_diagnostics(
        "soft_topk", x.expand(2, -1), k, tau, -1, solver="sinkhorn"
    )
    assert int(diagnostics.iterations[0]) < _sinkhorn.MOST_ITERATIONS
    assert int(diagnostics.iterations[1]) == _sinkhorn.MOST_ITERATIONS
    testing.check_row(lambda x, k: p[0], x, k)
    assert bool(((p >= 0) & (p <= 1)).all())
    off = abs(float(p[1].sum()) - k) / k
    assert 1e-10 < off < 1e-2
    testing.check_order(lambda x, k: p[1], x, k)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_sinkhorn_agrees_in_every_dtype(dtype):
    x = normal(10, 50).to(dtype)
    p = sinkhorn(x, 7.5)
    assert p.dtype == dtype
    assert torch.allclose(p, khot.soft_topk(x, 7.5), rtol=1e-6, atol=1e-11)


def test_sinkhorn_takes_a_k_for_each_row():
    x, k = normal(3, 10), torch.tensor([0.0, 9.5, 10.0])
    assert torch.allclose(sinkhorn(x, k), khot.soft_topk(x, k), rtol=0, atol=1e-11)
    assert sinkhorn(torch.empty(0, 5), 2).shape == (0, 5)


def test_sinkhorn_at_the_ends_of_k():
    x = normal(6).requires_grad_()
    for k, value, limit in ((0.0, 0.0, 2 * x), (6.0, 1.0, -2 * x)):
        end = torch.tensor(k, dtype=torch.float64, requires_grad=True)
        p = sinkhorn(x, end)
        assert torch.equal(p, torch.full_like(p, value))
        in_x, in_k = torch.autograd.grad(p[2], (x, end))
        assert bool((in_x == 0).all()) and torch.allclose(in_k, limit.softmax(-1)[2])


def test_sinkhorn_gradients():
    arguments = [normal(8), torch.tensor(2.5).double(), torch.tensor(1.4).double()]
    for argument in arguments:
        argument.requires_grad_()

    def function(x, k, epsilon):
        return sinkhorn(x, k, epsilon=epsilon)

    assert torch.autograd.gradcheck(
        function, arguments, check_forward_ad=True, check_batched_grad=True
    )
    assert torch.autograd.gradgradcheck(function, arguments)
    testing.check_gradient(sinkhorn, normal(8), 3.0)


def test_sinkhorn_under_transformations():
    x, k = normal(4, 8), torch.tensor([1.0, 2.5, 3.0, 7.0]).double()
    assert torch.equal(torch.func.vmap(sinkhorn)(x, k), sinkhorn(x, k))
    compiled = torch.compile(sinkhorn, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(x, k), sinkhorn(x, k))


def test_sinkhorn_in_float32_where_there_is_no_float64(monkeypatch):
    monkeypatch.setattr(_checks, "work_dtype", lambda x: torch.float32)
    p = sinkhorn(normal(5, 100).float(), 7.5)
    assert torch.allclose(p.double().sum(-1), torch.tensor(7.5).double(), rtol=2e-6)


@pytest.mark.gpu
def test_cuda_agrees_with_the_cpu():
    x = normal(16, 784)
    assert torch.allclose(sinkhorn(x.cuda(), 50).cpu(), sinkhorn(x, 50), atol=1e-12)


# refusals


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"method": "newton"}, ValueError, "method must be one of exact, sinkhorn; got 'newton'"),
        ({"epsilon": -2.0}, ValueError, "epsilon must be finite and above 0; got -2$"),
        ({"epsilon": torch.tensor(torch.inf)}, ValueError, "epsilon must be finite and above 0"),
        ({"epsilon": "1"}, TypeError, "epsilon must be a number or a tensor; got str"),
        ({"epsilon": True}, TypeError, "epsilon must be a number or a tensor; got bool"),
        ({"epsilon": torch.tensor(True)}, TypeError, "epsilon must be real; got bool"),
    ],
)
def test_refusals(options, error, message):
    with pytest.raises(error, match=f"^soft_topk: {message}"):
        khot.soft_topk(normal(5), 2, **options)


def test_sinkhorn_refuses_what_exact_refuses():
    for x, k, message in (
        (torch.tensor([1.0, torch.nan]), 1, "x must hold finite numbers or -inf"),
        (torch.ones(3), 4, r"k must be in \[0, n\].*; got k = 4 for n = 3"),
    ):
        with pytest.raises(ValueError, match=f"^soft_topk: {message}"):
            sinkhorn(x, k)
