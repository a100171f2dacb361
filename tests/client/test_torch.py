"""The layer on a server is the layer of the library, bit for bit, with its gradients."""

import copy
import pickle
from collections import Counter

import pytest
import torch
from torch import nn

import khot
from khot.modules import LearnableK, SigmoidTopk
from khot_client import BadSettings, Client, InvalidRequest, Unavailable
from khot_client.torch import RemoteKHot, draw_seed

pytestmark = pytest.mark.usefixtures("one_thread")

N, K, SEED = 9, 3, 11
RELAXATIONS = khot.operators("relaxation")
ESTIMATORS = khot.operators("estimator")
WITHOUT_LOSS = [row for row in ESTIMATORS if not row.needs_loss]
DIFFERENTIABLE = [*RELAXATIONS, *WITHOUT_LOSS]
IN_K = [row for row in DIFFERENTIABLE if "k" in row.differentiable_in]
DTYPES = (torch.float16, torch.float32, torch.float64, torch.bfloat16)
NOWHERE = "127.0.0.1:1"


def name_of(row) -> str:
    return row.name


def scores(*shape: int, dtype=torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def k_of(row) -> int:
    return getattr(row, "only_k", None) or K


def local(row, x, k, tau=1.0, **options):
    """What the library makes of the same arguments, with the seeds of the rows of one item.

    The service differentiates in k and tau too, wherever it can. In float32 that makes gradients
    in x that differ in their last bits from those with numbers, here as there.
    """
    leading = x.shape[:-1]
    if row.kind != "relaxation":
        options["seeds"] = khot.row_seeds(SEED, leading.numel()).reshape(leading)
    if not isinstance(k, torch.Tensor) and not row.one_k:
        k = torch.full(leading, k, dtype=torch.float64, requires_grad="k" in row.differentiable_in)
    if not isinstance(tau, torch.Tensor):
        learned = row.tau_keyword in row.differentiable_in
        tau = torch.full(leading, tau, dtype=torch.float64, requires_grad=learned)
    return row.function(x, k, **{row.tau_keyword: tau}, **options)


def remote(server, row, x, k, tau=None, **options):
    layer = RemoteKHot(server, row.name, k, tau=tau, **options)
    return layer(x) if row.kind == "relaxation" else layer(x, seed=SEED)


def leaf(value: torch.Tensor) -> torch.Tensor:
    return value.detach().clone().requires_grad_()


def check_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def check_both(server, row, *values, **options) -> None:
    """Value and gradients in all of the tensors, here and there."""
    here, there = ([leaf(v) if isinstance(v, torch.Tensor) else v for v in values] for _ in "12")
    expected, found = local(row, *here, **options), remote(server, row, *there, **options)
    check_same(found, expected)
    g = scores(*expected.shape, dtype=expected.dtype, seed=1)
    expected.backward(g)
    found.backward(g)
    for ours, theirs in zip(there, here, strict=True):
        if isinstance(ours, torch.Tensor) and theirs.grad is not None:
            check_same(ours.grad, theirs.grad)


class Counted(Client):
    """A client that counts its calls."""

    def __init__(self, *arguments, **options) -> None:
        super().__init__(*arguments, **options)
        self.calls = Counter()
        call = self._connection.call

        def counted(asked, timeout_s=None):
            self.calls[asked.method] += 1
            return call(asked, timeout_s)

        self._connection.call = counted


@pytest.mark.parametrize("row", RELAXATIONS, ids=name_of)
def test_gradcheck(server, row):
    x, tau = leaf(scores(2, 5, dtype=torch.float64)), leaf(torch.tensor(0.8, dtype=torch.float64))
    if row.fractional_k:
        k = leaf(torch.tensor([1.5, 2.5], dtype=torch.float64))
        assert torch.autograd.gradcheck(
            lambda x, k, tau: remote(server, row, x, k, tau), (x, k, tau)
        )
    else:
        assert torch.autograd.gradcheck(lambda x, tau: remote(server, row, x, 2, tau), (x, tau))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=name_of)
def test_is_the_library(server, row, dtype):
    check_both(server, row, scores(4, N, dtype=dtype), k_of(row))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_with_numbers_float32_is_the_library_but_for_rounding(server, dtype):
    here, there = leaf(scores(4, N, dtype=dtype)), leaf(scores(4, N, dtype=dtype))
    g = scores(4, N, dtype=dtype, seed=1)
    khot.sigmoid_topk(here, K).backward(g)
    RemoteKHot(server, k=K)(there).backward(g)
    few = 4 * torch.finfo(dtype).eps if dtype is torch.float32 else 0.0
    torch.testing.assert_close(there.grad, here.grad, rtol=0, atol=few)


@pytest.mark.parametrize("shape", [(N,), (1, N), (2, 3, N)], ids=str)
@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=name_of)
def test_any_leading_dimensions(server, row, shape):
    check_both(server, row, scores(*shape), k_of(row))


@pytest.mark.parametrize("row", IN_K, ids=name_of)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 1), (2, 3)], ids=str)
def test_gradients_in_k_and_tau(server, row, shape):
    """One for all rows, one for each, and what broadcasts; also of another dtype than x."""
    whole = row.kind == "estimator" and row.whole_k
    k = torch.full(shape, 2.0 if whole else 2.25)
    tau = torch.full(shape, 0.75, dtype=torch.float64)
    check_both(server, row, scores(2, 3, N), k, tau)


@pytest.mark.parametrize("row", WITHOUT_LOSS, ids=name_of)
def test_several_draws(server, row):
    check_both(server, row, scores(2, 2, N), k_of(row), num_samples=3)


@pytest.mark.parametrize("shape", [(N,), (2, 3, N)], ids=str)
def test_with_losses(server, shape):
    """The losses come by the cotangent that `with_losses` makes of them."""
    row = khot.operator("score_function")
    here, there = leaf(scores(*shape)), leaf(scores(*shape))
    for x, z in (
        (here, local(row, here, K, num_samples=4)),
        (there, remote(server, row, there, K, num_samples=4)),
    ):
        losses = (z.detach() * scores(*shape, seed=2)).sum(-1).exp()
        khot.with_losses(z, losses, baseline="leave_one_out").mean().backward()
        assert x.grad.any()
    torch.testing.assert_close(there.grad, here.grad)


def test_options_are_those_of_the_operator(server):
    row, p = khot.operator("sparse_topk"), 4 / 3
    found = RemoteKHot(server, row.name, K, options={"p": p})(scores(2, N))
    check_same(found, row.function(scores(2, N), K, p=p))


@pytest.mark.parametrize("row", khot.operators("design"), ids=name_of)
def test_designs_draw_without_a_gradient(server, row):
    x = leaf(scores(2, 2, N))
    z = RemoteKHot(server, row.name, K)(x, seed=SEED)
    pi = khot.sigmoid_topk(x.detach(), K)
    check_same(z, row.function(pi, seeds=khot.row_seeds(SEED, 4).reshape(2, 2)))
    assert not z.requires_grad


def test_designs_take_probabilities(server):
    pi = khot.sigmoid_topk(scores(N), K)
    z = RemoteKHot(server, "pivotal")(pi, seed=SEED)
    check_same(z, khot.pivotal(pi, seeds=khot.row_seeds(SEED, 1)[0]))


def test_seeds_come_from_torch(server):
    """From its own generator or another; and `draw_seed` tells which."""
    layer, x = RemoteKHot(server, "pi_st", K), scores(3, N)
    torch.manual_seed(5)
    first, second = layer(x), layer(x)
    assert not first.equal(second)
    torch.manual_seed(5)
    assert layer(x).equal(first) and layer(x, seed=draw_seed()).equal(second)
    generator = torch.Generator().manual_seed(5)
    assert layer(x, generator=generator).equal(first)


@pytest.mark.parametrize("operator", ["sigmoid_topk", "pi_st"])
def test_one_call_forward_one_backward(server, operator):
    with Counted(server) as client:
        layer, x = RemoteKHot(client, operator, K), leaf(scores(3, N))
        with torch.no_grad():
            layer(x)
            layer(x)
        forward, backward = {"sigmoid_topk": ("Relax", "RelaxVjp")}.get(
            operator, ("Sample", "SampleVjp")
        )
        assert client.calls == {"ListOperators": 1, forward: 2}
        layer(x).sum().backward()
        assert client.calls == {"ListOperators": 1, forward: 3, backward: 1}


def test_k_of_a_forward_goes_before_the_layers_own(server):
    layer, x = RemoteKHot(server, k=K), scores(2, N)
    check_same(layer(x, 2.5), khot.sigmoid_topk(x, 2.5))
    k = leaf(torch.tensor([1.0, 2.0]))
    layer(x, k)[:, 0].sum().backward()
    assert k.grad.shape == (2,) and k.grad.all()


@pytest.mark.parametrize(
    "make", [lambda: nn.Parameter(torch.tensor(2.0)), lambda: LearnableK(2.0, low=1, high=N)]
)
def test_k_is_learned_as_in_the_library(server, make):
    layers = RemoteKHot(server, "sigmoid_topk", make()), SigmoidTopk(make())
    first = [parameter.detach().clone() for parameter in layers[0].parameters()]
    for layer in layers:
        optimizer = torch.optim.Adam(layer.parameters(), 0.1)
        for _ in range(5):
            optimizer.zero_grad()
            layer(scores(4, N)).square().sum().backward()
            optimizer.step()
    for was, *both in zip(first, *(layer.parameters() for layer in layers), strict=True):
        check_same(*both)
        assert not both[0].equal(was)


def test_state_is_of_parameters_and_tensors_alone():
    assert RemoteKHot(NOWHERE, k=2).state_dict() == {}
    both = RemoteKHot(NOWHERE, k=nn.Parameter(torch.tensor(2.0)), tau=torch.ones(3))
    assert [*both.state_dict()] == ["k", "tau"]


def test_repr_shows_no_token():
    layer = RemoteKHot(NOWHERE, "pi_st", 2, tau=torch.ones(3), token="secret", options={"a": 1})
    shown = "'127.0.0.1:1', 'pi_st', k=2, tau=tensor of shape (3,), options={'a': 1}"
    assert repr(layer) == f"RemoteKHot({shown})"


def test_copies_and_pickles_go_on(server):
    x = scores(2, N)
    layer = RemoteKHot(server, "sigmoid_topk", K, token="secret")
    unused = pickle.dumps(layer)
    expected = layer(x)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), pickle.loads(unused)):
        check_same(other(x), expected)
    assert b"secret" not in unused


def test_a_layer_with_a_client_is_copied_but_not_pickled(client):
    layer = RemoteKHot(client, k=K)
    check_same(copy.deepcopy(layer)(scores(N)), layer(scores(N)))
    with pytest.raises(InvalidRequest, match="must be host:port to be pickled; got a Client"):
        pickle.dumps(layer)


def test_a_compiled_model_calls_it_as_it_is(server):
    model = nn.Sequential(nn.Linear(N, N), RemoteKHot(server, k=K))
    x = scores(4, N)
    check_same(torch.compile(model, backend="eager")(x), model(x))


def test_differentiating_twice_is_refused(server):
    x = leaf(scores(N))
    (grad,) = torch.autograd.grad(RemoteKHot(server, k=K)(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


def test_a_server_that_is_lost_is_told_as_ours():
    layer = RemoteKHot(NOWHERE, k=K, timeout_s=1.0)
    with pytest.raises(Unavailable, match="127.0.0.1:1"):
        layer(scores(N))


def test_errors_of_backward_are_ours(server):
    with Client(server) as client:
        p = RemoteKHot(client, k=K)(leaf(scores(N)))
        with pytest.raises(InvalidRequest, match="cotangent"):
            p.backward(torch.full_like(p, torch.inf), retain_graph=True)
        client.close()
        with pytest.raises(Exception, match="closed"):
            p.sum().backward()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"operator": "no"}, "operator: must be one of sigmoid_topk, .*; got 'no'"),
        ({"operator": "sigmoid_topk", "num_samples": 2}, "num_samples: must be None, as sig"),
        ({"operator": "pi_st", "k": 2.5}, "k must be whole"),
        ({"k": torch.ones(4)}, r"k: must broadcast to the rows, shape \(2,\); got shape \(4,\)"),
        ({"tau": torch.ones(2, 2)}, r"tau: must broadcast to the rows, shape \(2,\)"),
    ],
)
def test_what_a_forward_refuses(server, options, match):
    with pytest.raises(InvalidRequest, match=match):
        RemoteKHot(server, **{"k": K, **options})(scores(2, N))


def test_what_a_forward_refuses_of_its_own(server):
    layer = RemoteKHot(server, "pi_st", K)
    with pytest.raises(InvalidRequest, match="generator: must be None where a seed is given"):
        layer(scores(N), seed=1, generator=torch.Generator())
    with pytest.raises(InvalidRequest, match="x: must be a torch.Tensor; got list"):
        layer([1.0, 2.0])
    for x in (torch.zeros(3, dtype=torch.int64), torch.tensor(1.0)):
        with pytest.raises(InvalidRequest, match=r"x: must be a floating-point tensor of shape"):
            layer(x)
    with pytest.raises(InvalidRequest, match="seed: must be None, as sigmoid_topk draws nothing"):
        RemoteKHot(server, k=K)(scores(N), seed=1)


def test_what_construction_refuses(client):
    with pytest.raises(InvalidRequest, match="operator: must be a name; got Tensor"):
        RemoteKHot(NOWHERE, torch.tensor(1))
    with pytest.raises(InvalidRequest, match="k: must be a number, a tensor or a module; got str"):
        RemoteKHot(NOWHERE, k="2")
    with pytest.raises(InvalidRequest, match="tau: must be a number.*; got bool"):
        RemoteKHot(NOWHERE, tau=True)
    with pytest.raises(InvalidRequest, match="address: must be host:port where token is given"):
        RemoteKHot(client, token="t")
    with pytest.raises(BadSettings, match="address"):
        RemoteKHot("no port")
