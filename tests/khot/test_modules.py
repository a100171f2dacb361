"""The modules are the functions, and a learned k stays within its bounds."""

import copy
import inspect
import io
import math
import pickle

import pytest
import torch
from torch import nn

import khot
from khot import modules
from khot.modules import LearnableK, PiSt, SigmoidTopk, SortedSoftTopk

RELAXATIONS = khot.operators("relaxation")
ROWS = pytest.mark.parametrize("row", RELAXATIONS, ids=lambda row: row.name)


def module_of(row: khot.Operator) -> type[nn.Module]:
    return getattr(modules, row.name.title().replace("_", ""))


def scores(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("row", [*RELAXATIONS, khot.operator("pi_st")], ids=lambda row: row.name)
def test_signature_is_the_functions(row):
    assert module_of(row).__name__ in modules.__all__
    takes = inspect.signature(row.function).parameters
    mine = inspect.signature(module_of(row)).parameters
    inputs = {"x", "logits", "num_samples", "generator", "seeds"}
    assert list(mine) == [name for name in takes if name not in inputs]
    for name, parameter in mine.items():
        assert (parameter.default, parameter.kind) == (takes[name].default, takes[name].kind)


@ROWS
def test_forward_is_the_function(row):
    x, settings = scores(3, 7, 4), {row.tau_keyword: 0.7, "dim": 1}
    layer = module_of(row)(2, **settings)
    assert torch.equal(layer(x), row.function(x, 2, **settings))
    assert torch.equal(module_of(row)(2)(x), row.function(x, 2))


@ROWS
def test_settings_are_shown(row):
    shown = repr(module_of(row)(3, **{row.tau_keyword: 0.25}, dim=0))
    for setting in ("k=3", f"{row.tau_keyword}=0.25", "dim=0"):
        assert setting in shown
    others = inspect.signature(row.function).parameters.keys() - {"x", "k", row.tau_keyword, "dim"}
    assert all(f"{name}=" in shown for name in others)
    tau = repr(module_of(row)(3, **{row.tau_keyword: torch.ones(2, 1)}))
    assert f"{row.tau_keyword}=tensor of shape (2, 1)" in tau


@ROWS
def test_copies_are_the_same(row):
    x = scores(2, 6)
    layer = module_of(row)(3, **{row.tau_keyword: torch.tensor([0.5, 2.0])})
    for again in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert repr(again) == repr(layer)
        assert torch.equal(again(x), layer(x))


@ROWS
def test_state_is_saved_and_loaded(row):
    trained, fresh = (
        module_of(row)(3, **{row.tau_keyword: nn.Parameter(torch.tensor(tau))})
        for tau in (0.3, 1.0)
    )
    file = io.BytesIO()
    torch.save(trained.state_dict(), file)
    file.seek(0)
    x = scores(2, 6)
    assert not torch.equal(fresh(x), trained(x))
    fresh.load_state_dict(torch.load(file))
    assert torch.equal(fresh(x), trained(x))


@pytest.mark.parametrize("of", ["sigmoid_topk", "sorted_soft_topk"])
def test_compiles_as_one_graph_and_learns_there(of):
    """With a k that is learned and with a number; the functions are compiled by conformance."""
    row = khot.operator(of)
    layer = module_of(row)(LearnableK(2.5, low=1, high=4) if row.fractional_k else 2)
    torch.compiler.reset()  # the modules share their forward, which is recompiled for each
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    learned = [scores(3, 6).requires_grad_(), *layer.parameters()]
    wanted, got = (
        torch.autograd.grad(f(learned[0]).square().sum(), learned) for f in (layer, compiled)
    )
    for one, other in zip(got, wanted, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@ROWS
def test_what_is_compiled_is_one_forward_for_all(row):
    assert module_of(row).forward is SigmoidTopk.forward


def test_a_tensor_moves_with_the_module_and_a_parameter_is_trained():
    layer = SigmoidTopk(torch.tensor([1.0, 2.0]), tau=nn.Parameter(torch.tensor(0.5)))
    assert dict(layer.named_buffers()).keys() == {"k"}
    assert dict(layer.named_parameters()).keys() == {"tau"}
    assert layer.double().k.dtype == torch.float64
    layer(scores(2, 5)).square().sum().backward()
    assert float(layer.tau.grad) != 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("low", "high"), [(1, 20), (0.1, 0.3), (0, 1e-3), (100, 104)])
def test_k_never_leaves_its_bounds(dtype, low, high):
    k = LearnableK((low + high) / 2, low=low, high=high, shape=(9,), dtype=dtype)
    extremes = [0.0, 3.0, 12.0, 40.0, torch.finfo(dtype).max, -12.0, -40.0, -1e4, -torch.inf]
    with torch.no_grad():
        k.theta.copy_(torch.tensor(extremes))
    assert k().dtype == dtype
    assert bool(((k().double() > low) & (k().double() < high)).all())
    assert bool((k()[:5].diff() >= 0).all()) and bool((k()[5:].diff() <= 0).all())


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_k_starts_where_it_was_told(shape):
    k = LearnableK(5.0, low=1, high=20, shape=shape, dtype=torch.float64)
    assert k().shape == shape
    assert torch.allclose(k(), torch.full(shape, 5.0, dtype=torch.float64), rtol=1e-14, atol=0)


def test_gradient_of_k_is_that_of_finite_differences():
    layer = SigmoidTopk(LearnableK(2.5, low=1, high=5, shape=(3,), dtype=torch.float64))
    x = scores(3, 6).double()
    theta = layer.k.theta.detach().clone().requires_grad_()

    def of(theta, x):
        return torch.func.functional_call(layer, {"k.theta": theta}, (x,))

    assert torch.autograd.gradcheck(of, (theta, x.requires_grad_()))
    k = layer.k()
    (slope,) = torch.autograd.grad(k.sum(), layer.k.theta)
    assert torch.allclose(slope, (k - 1) * (5 - k) / 4, rtol=1e-12)


def test_a_known_k_is_learned():
    layer = SigmoidTopk(LearnableK(3.0, low=1, high=20))
    x = scores(4, 50)
    wanted = khot.sigmoid_topk(x, 7.3)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(150):
        optimizer.zero_grad()
        (layer(x) - wanted).square().sum().backward()
        optimizer.step()
    assert layer.k().item() == pytest.approx(7.3, abs=0.01)


@pytest.mark.parametrize("rate", [1e3, 1e9, 1e38])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_no_learning_rate_leaves_the_bounds(rate, sign):
    layer = SigmoidTopk(LearnableK(5.0, low=1, high=20))
    optimizer = torch.optim.SGD(layer.parameters(), lr=rate)
    x = scores(4, 20)
    for _ in range(5):
        optimizer.zero_grad()
        (sign * layer(x).sum()).backward()
        optimizer.step()
        assert 1 < layer.k().item() < 20
    assert layer.k().item() == pytest.approx(1 if sign > 0 else 20, rel=1e-6)
    assert bool(layer(x).isfinite().all())


def test_pi_st_draws_in_training_and_takes_the_largest_in_evaluation():
    layer, logits = PiSt(3, tau=0.5, dim=0), scores(8, 5).requires_grad_()
    seeds = khot.row_seeds(0, 5)
    z = layer(logits, seeds=seeds)
    assert torch.equal(z, khot.pi_st(logits, 3, tau=0.5, dim=0, seeds=seeds))
    assert z.requires_grad
    hard = layer.eval()(logits)
    assert torch.equal(hard, layer(logits)) and not hard.requires_grad
    assert torch.equal(hard.nonzero().T[0].unique(), logits.topk(3, dim=0).indices.unique())
    for column in range(5):
        chosen = logits[:, column].topk(3).indices.sort().values
        assert torch.equal(hard[:, column].nonzero().squeeze(-1), chosen)


def test_construction_draws_no_random_numbers():
    before = torch.get_rng_state()
    PiSt(2)
    assert torch.equal(torch.get_rng_state(), before)


def test_pi_st_in_evaluation_knows_masks_ties_and_a_k_for_each_row():
    logits = torch.tensor([[1.0, -torch.inf, 1.0, 1.0], [0.0, 3.0, -torch.inf, -1.0]])
    layer = PiSt(torch.tensor([2, 3])).eval()
    assert layer(logits).tolist() == [[1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.0, 1.0]]
    with pytest.raises(ValueError, match=r"^pi_st: k must be in \[0, n\]"):
        PiSt(4).eval()(logits)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(logits), layer(logits))


@ROWS
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"k": -1}, ValueError, "k must be at least 0, and finite; got -1"),
        ({"k": math.nan}, ValueError, "k must be at least 0, and finite; got nan"),
        ({"k": "five"}, TypeError, "k must be .*; got str"),
        ({"k": True}, TypeError, "k must be .*; got bool"),
        ({"dim": 1.0}, TypeError, "dim must be an integer; got float"),
        ({"tau": 0.0}, ValueError, "{tau} must be finite and above 0; got 0"),
        ({"tau": "hot"}, TypeError, "{tau} must be a number or a tensor; got str"),
    ],
)
def test_bad_settings_are_refused_at_construction(row, changes, error, message):
    given = {"k": 2} | {row.tau_keyword if n == "tau" else n: v for n, v in changes.items()}
    message = message.format(tau=row.tau_keyword)
    with pytest.raises(error, match=f"^{row.name}: {message}$"):
        module_of(row)(given.pop("k"), **given)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: modules.SoftTopk(2, method="guess"), ValueError, "soft_topk: method must be one"),
        (lambda: modules.SparseTopk(2, p=3), ValueError, "sparse_topk: p must be 2 or 4/3; got 3"),
        (lambda: SortedSoftTopk(2.5), ValueError, "sorted_soft_topk: k must be one whole number"),
        (
            lambda: SortedSoftTopk(LearnableK(2.0, low=1, high=3)),
            TypeError,
            "sorted_soft_topk: k must be one whole number; got LearnableK",
        ),
        (lambda: PiSt(-2), ValueError, "pi_st: k must be at least 0, and finite; got -2"),
        (lambda: PiSt(2, tau=-1.0), ValueError, "tau must be finite and above 0; got -1"),
        (
            lambda: LearnableK(1.0, low=1, high=3),
            ValueError,
            "LearnableK: initial must be strictly between low = 1 and high = 3; got 1.0",
        ),
        (
            lambda: LearnableK(1 + 1e-9, low=1, high=3),
            ValueError,
            "LearnableK: initial must be strictly between low = 1 and high = 3; got 1.00",
        ),
        (lambda: LearnableK(2.0, low=-1, high=3), ValueError, "low must be at least 0; got -1"),
        (lambda: LearnableK(2.0, low=1, high=torch.inf), ValueError, "high must be finite"),
        (lambda: LearnableK("2", low=1, high=3), TypeError, "initial must be a number; got str"),
        (
            lambda: LearnableK(2, low=1, high=3, dtype=torch.int64),
            TypeError,
            "LearnableK: dtype must be a floating point one; got torch.int64",
        ),
    ],
)
def test_bad_values_are_refused_at_construction(make, error, message):
    with pytest.raises(error, match=message):
        make()
