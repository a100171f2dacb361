"""Requests that hypothesis makes: whatever they hold, the answer is a result or a clear refusal.

Over a third of them are meant to be valid, so that the operators themselves are reached and
not only the checks before them. 2,000 in the normal run, 20,000 in the slow one.
"""

from collections import Counter

import grpc
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from khot_proto import from_tensor, to_tensor
from khot_proto.v1 import khot_service_pb2 as pb
from khot_proto.v1.tensor_pb2 import DataType, Tensor

OK, INVALID = 0, grpc.StatusCode.INVALID_ARGUMENT.value[0]
FLOATS = ("float16", "float32", "float64")
SPECIAL = (0.0, -0.0, 1e-300, 1e300, -1e300, np.inf, -np.inf, np.nan, 5e-324)
# those that take seconds for a few rows are few
RELAXATIONS = (
    "sigmoid_topk",
    "soft_topk",
    "sorted_soft_topk",
    "sparse_topk",
    "renorm_sigmoid_topk",
    "sequential_softmax_topk",
    "softmax_topk",
)
DRAWS = (
    "pivotal",
    "conditional_poisson",
    "tournament_pivotal",
    "pareto",
    "adjusted_pareto",
    "systematic",
    "sampford",
    "brewer",
    "gumbel_topk",
    "iterated_poisson",
    "topk",
    "pi_st",
    "pi_st_implicit",
    "pi_st2",
    "reinmax",
    "st_gumbel_softmax",
    "simple",
    "score_function",
    "imle",
    "gumbel_sigmoid",
    "softsub",
    "ncpss",
    "st_topk",
)
ONLY_ONE = ("reinmax", "st_gumbel_softmax")


def arrays(draw, shape: tuple[int, ...], dtype: str, *, wild: bool) -> np.ndarray:
    seed = draw(st.integers(0, 2**32 - 1))
    values = np.random.default_rng(seed).normal(scale=3.0, size=shape)
    if wild and values.size:
        at = draw(st.integers(0, values.size - 1))
        values.reshape(-1)[at] = draw(st.sampled_from(SPECIAL))
    with np.errstate(over="ignore"):
        return values.astype(dtype)


@st.composite
def tensors(draw) -> Tensor:
    """Any tensor at all, mostly one that contradicts itself."""
    return Tensor(
        dtype=draw(st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7])),
        shape=draw(st.lists(st.integers(-2, 2**40), max_size=4)),
        data=draw(st.binary(max_size=64)),
    )


@st.composite
def items(draw, kind: type) -> pb.RelaxItem | pb.SampleItem:
    """An item; half of them are meant to be valid."""
    wild = draw(st.booleans())
    names = RELAXATIONS if kind is pb.RelaxItem else DRAWS
    name = draw(st.sampled_from(names))
    rows, n = draw(st.integers(1, 5)), draw(st.integers(1, 20))
    shape = (n,) if rows == 1 and draw(st.booleans()) else (rows, n)
    dtype = draw(st.sampled_from(FLOATS))
    k = [1.0] if name in ONLY_ONE else [float(draw(st.integers(0, n)))]
    item = kind(operator=name, k=k)
    item.scores.CopyFrom(to_tensor(arrays(draw, shape, dtype, wild=wild)))
    item.diagnostics = draw(st.booleans())
    if draw(st.booleans()):
        item.tau.append(draw(st.floats(0.1, 10)))
    draws: tuple[int, ...] = ()
    if kind is pb.SampleItem:
        item.seed = draw(st.integers(0, 2**64 - 1))
        item.format = draw(st.sampled_from(pb.MaskFormat.values()))
        if draw(st.booleans()):
            item.num_samples = draw(st.integers(1, 3))
            draws = (item.num_samples,)
    if draw(st.booleans()) and name != "sorted_soft_topk" and name not in DRAWS[:11]:
        pulled = arrays(draw, draws + shape, dtype, wild=wild)
        if name == "score_function":
            item.losses.values.CopyFrom(to_tensor(np.asarray(pulled.sum(-1), dtype)))
        else:
            item.cotangent.CopyFrom(to_tensor(pulled))
    return spoilt(draw, item) if wild else item


def spoilt(draw, item):
    """The same with something else in some of its fields."""
    for field in draw(st.lists(st.sampled_from(list(item.DESCRIPTOR.fields)), max_size=3)):
        match field.name:
            case "operator":
                item.operator = draw(st.sampled_from([*RELAXATIONS, *DRAWS, "", "x" * 300]))
            case "k" | "tau":
                item.ClearField(field.name)
                values = st.one_of(st.floats(), st.sampled_from([0.0, -1.0, 1e-9, 1.5, 1e18]))
                getattr(item, field.name).extend(draw(st.lists(values, max_size=6)))
            case "scores" | "cotangent":
                getattr(item, field.name).CopyFrom(draw(tensors()))
            case "losses":
                item.losses.values.CopyFrom(draw(tensors()))
                item.losses.leave_one_out = draw(st.booleans())
            case "options":
                names = ["p", "hard", "method", "noise", "strength", "form", "fitted", "", "rounds"]
                value = st.one_of(st.booleans(), st.floats(), st.text(max_size=5), st.none())
                item.options.update(draw(st.dictionaries(st.sampled_from(names), value)))
            case "num_samples":
                item.num_samples = draw(st.sampled_from([-1, 0, 2, 100, 2**40, 2**63 - 1]))
            case "format":
                item.format = draw(st.integers(0, 9))
            case "include_pi":
                item.include_pi = True
            case "seed":
                item.ClearField("seed")
    return item


METHODS = {
    "Relax": (pb.RelaxRequest, pb.RelaxItem),
    "RelaxVjp": (pb.RelaxVjpRequest, pb.RelaxItem),
    "Sample": (pb.SampleRequest, pb.SampleItem),
    "SampleVjp": (pb.SampleVjpRequest, pb.SampleItem),
}


@st.composite
def requests(draw):
    method = draw(st.sampled_from(sorted(METHODS)))
    request, item = METHODS[method]
    some = draw(
        st.lists(items(item), min_size=0 if draw(st.integers(0, 9)) == 0 else 1, max_size=3)
    )
    return method, request(items=some, priority=draw(st.sampled_from([0, 1, 2, 2, 7])))


def send(server, method: str, request, seen: Counter) -> None:
    """Call, and look at whatever comes."""
    try:
        response = getattr(server.khot, method)(request, timeout=60)
    except grpc.RpcError as error:
        seen["refused calls"] += 1
        if error.code() == grpc.StatusCode.INVALID_ARGUMENT:
            return
        pytest.fail(f"{method} {request} {error}" + "\n".join(server.lines[-20:]))
    assert len(response.results) == len(request.items)
    for item, result in zip(request.items, response.results, strict=True):
        assert result.status.code in (OK, INVALID), (method, item, result.status)
        seen["valid" if result.status.code == OK else "refused"] += 1
        if result.status.code == INVALID:
            assert "; got " in result.status.message and result.status.details, result.status
            continue
        if method.endswith("Vjp"):
            gradient = from_tensor(result.gradients.scores)
            assert gradient.shape == tuple(item.scores.shape)
            assert gradient.dtype == from_tensor(item.scores).dtype
        elif method == "Relax":
            assert np.isfinite(from_tensor(result.soft)).all(), (item, result)


def hammer(server, examples: int) -> None:
    seen: Counter[str] = Counter()

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],  # a server that fell does not fall again while it restarts
        suppress_health_check=list(HealthCheck),
    )
    @given(requests())
    def one(made) -> None:
        method, request = made
        seen["requests"] += 1
        send(server, method, request, seen)

    one()
    assert seen["requests"] >= examples
    assert seen["valid"] > (seen["valid"] + seen["refused"]) / 3, seen
    assert seen["refused"] > seen["valid"] / 20, seen
    server.khot.ListOperators(pb.ListOperatorsRequest(), timeout=30)  # and it still serves


def test_whatever_is_sent_is_answered_or_clearly_refused(server):
    hammer(server, 2000)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_whatever_is_sent_is_answered_or_clearly_refused_for_long(server):
    hammer(server, 20_000)


def test_the_names_are_those_of_the_server(server):
    listed = server.khot.ListOperators(pb.ListOperatorsRequest(), timeout=30).operators
    names = {
        kind: [row.name for row in listed if (row.kind == 1) == kind] for kind in (True, False)
    }
    assert names == {True: list(RELAXATIONS), False: list(DRAWS)}
    assert set(DataType.values()) == set(range(8))
