"""The four operations by both clients: what comes back is the library's, bit for bit."""

import inspect

import numpy as np
import pytest
import torch

import khot
from khot_client import (
    AsyncClient,
    AsyncGroup,
    AsyncJob,
    AsyncStream,
    Client,
    Gradients,
    Group,
    InvalidRequest,
    Job,
    RelaxItem,
    SampleItem,
    Stream,
)
from khot_client.channel import SAFE_TO_REPEAT
from khot_proto.v1 import job_service_pb2, khot_service_pb2

X = np.random.default_rng(0).normal(size=(5, 24)).astype(np.float32)
G = np.random.default_rng(1).normal(size=X.shape).astype(np.float32)
K = np.array([1.0, 2.0, 3.5, 4.0, 5.0])
TAU = np.array([0.5, 1.0, 1.5, 2.0, 0.25])
SEED = 11

pytestmark = pytest.mark.usefixtures("one_thread")


def torches(*arrays):
    return [torch.from_numpy(np.array(array)) for array in arrays]


def library(dtype: str = "float32") -> khot.Gradients:
    x, g, k, tau = torches(X.astype(dtype), G.astype(dtype), K, TAU)
    return khot.vjp("sigmoid_topk", x, k, cotangent=g, tau=tau)


def same(got: np.ndarray, expected: torch.Tensor) -> None:
    assert got.tobytes() == expected.numpy().tobytes() and not got.flags.writeable


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_values_and_gradients_in_one_call_are_those_of_the_library(face, dtype):
    expected = library(dtype)
    got = face.relax(X.astype(dtype), K, tau=TAU, g=G)
    same(got.p, expected.value)
    same(got.gradients.x, expected.scores)
    same(got.gradients.k, expected.k)
    same(got.gradients.tau, expected.tau)
    assert got.diagnostics is None and got.algorithm


def test_gradients_alone_are_those_of_the_library(face):
    got, expected = face.relax_vjp(X, K, G, tau=TAU), library()
    assert isinstance(got, Gradients)
    same(got.x, expected.scores)
    same(got.k, expected.k)


def test_one_k_for_all_rows_has_one_gradient(face):
    rows = face.relax_vjp(X, np.full(5, 3.0), G)
    one = face.relax_vjp(X, 3, G)
    assert one.k.shape == () and one.k == pytest.approx(rows.k.sum())
    assert one.tau.shape == () and rows.tau.shape == ()
    assert face.relax_vjp(X[0], [3], G[0]).k.shape == (1,)


def test_diagnostics_come_if_asked_for(face):
    found = face.relax(X, K, diagnostics=True).diagnostics
    assert found.iterations.shape == found.residual.shape == (5,) and found.residual.max() < 1e-5


def test_options_are_the_operator_s_own(face):
    plain = face.relax(X, 3, operator="sparse_topk")
    other = face.relax(X, 3, operator="sparse_topk", options={"p": 4 / 3})
    assert not np.array_equal(plain.p, other.p)
    with pytest.raises(InvalidRequest, match="must be an option of sparse_topk"):
        face.relax(X, 3, operator="sparse_topk", options={"q": 2})


@pytest.mark.parametrize("form", [None, "bits", "indices", "dense"])
@pytest.mark.parametrize("samples", [None, 3])
def test_masks_are_the_same_however_they_travel(face, form, samples):
    k = np.arange(1.0, 6.0)
    got = face.sample(X, k, seed=SEED, num_samples=samples, format=form)
    x, k = torches(X, k)
    pi = khot.sigmoid_topk(x.double(), k)
    drawn = khot.pivotal(pi, num_samples=samples, seeds=khot.row_seeds(SEED, 5))
    assert got.z.dtype == np.bool_ and np.array_equal(got.z, drawn.numpy() != 0)
    assert got.seed == SEED and got.pi is None


def test_few_of_many_travel_as_indices_by_themselves(face):
    few, bits = (face.sample(np.zeros((3, 4000)), 2, seed=SEED, format=f) for f in (None, "bits"))
    assert np.array_equal(few.z, bits.z) and few.z.sum() == 6


def test_inclusion_probabilities_come_if_asked_for(face):
    drawn = face.sample(X, 3, include_pi=True)
    assert np.array_equal(drawn.pi, face.relax(X, 3).p)


def test_an_estimator_draws_and_pulls_back(face):
    x, g, k, tau = torches(X, G, np.full(5, 3.0), np.ones(5))  # one a row, as the service has them
    expected = khot.vjp("pi_st", x, k, khot.row_seeds(SEED, 5), cotangent=g, tau=tau)
    drawn = face.sample(X, 3, operator="pi_st", seed=SEED, g=G)
    assert np.array_equal(drawn.z, expected.value.numpy() != 0)
    same(drawn.gradients.x, expected.scores)
    same(face.sample_vjp(X, 3, G, seed=SEED).x, expected.scores)


def test_an_estimator_that_needs_losses_takes_them(face):
    losses = np.random.default_rng(2).normal(size=(4, 5)).astype(np.float32)
    x, values, k, tau = torches(X, losses, np.full(5, 3.0), np.ones(5))
    more = {"num_samples": 4, "baseline": "leave_one_out"}
    seeds = khot.row_seeds(SEED, 5)
    expected = khot.vjp("score_function", x, k, seeds, losses=values, tau=tau, **more)
    got = face.sample_vjp(X, 3, operator="score_function", seed=SEED, losses=losses, **more)
    same(got.x, expected.scores)
    given = face.sample_vjp(
        X, 3, operator="score_function", seed=SEED, losses=losses, num_samples=4, baseline=0.0
    )
    assert not np.array_equal(given.x, got.x)


def test_a_relaxed_draw_is_soft(face):
    drawn = face.sample(X, 3, operator="gumbel_sigmoid", seed=SEED)
    assert drawn.z.dtype == np.float32 and ((drawn.z > 0) & (drawn.z < 1)).any()


def test_many_go_in_one_call_and_a_bad_one_fails_alone(face):
    good = RelaxItem(X, K, TAU, g=G)
    values, bad, unsendable = face.relax_many([good, RelaxItem(X, 99), RelaxItem("no", 1)])
    same(values.p, library().value)
    assert isinstance(bad, InvalidRequest) and bad.field.startswith("items[1]")
    assert isinstance(unsendable, InvalidRequest) and unsendable.field == "x"
    (pulled,) = face.relax_vjp_many([good])
    same(pulled.x, library().scores)
    drawn, refused = face.sample_many([SampleItem(X, 3, seed=1), SampleItem(X, 3, tau=-1)])
    assert drawn.z.sum() == 15 and isinstance(refused, InvalidRequest)
    (pulled,) = face.sample_vjp_many([SampleItem(X, 3, operator="pi_st", seed=SEED, g=G)])
    assert np.array_equal(pulled.x, face.sample_vjp(X, 3, G, seed=SEED).x)
    assert face.relax_many([]) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"priority": "urgent"}, "priority: must be one of interactive, bulk; got 'urgent'"),
        ({"format": "zip"}, "format: must be one of bits, indices, dense; got 'zip'"),
        ({"losses": [1.0], "baseline": "mean"}, "baseline: must be 'leave_one_out', or an array"),
        ({"seed": -1}, r"seed: must be a whole number in \[0, 2\*\*64\); got -1"),
        ({"num_samples": 1.5}, "num_samples: must be a whole number; got 1.5"),
        ({"operator": None}, "operator: must be a name; got None"),
        ({"num_samples": 0}, r"num_samples: must be in \[1, "),
        ({"options": {"a": object()}}, "SampleItem: fields must be of the types"),
        ({"g": G}, "must be absent for a design"),
    ],
)
def test_bad_arguments_are_refused(face, arguments, message):
    with pytest.raises(InvalidRequest, match=message):
        face.sample(X, 3, **arguments)


def test_bulk_calls_are_answered_too(face):
    same(face.relax(X, K, tau=TAU, priority="bulk").p, library().value)


def test_operators_come_with_their_options(face):
    rows = {row.name: row for row in face.list_operators()}
    assert {row.kind for row in rows.values()} == {"relaxation", "design", "estimator"}
    assert "p" in rows["sparse_topk"].options


PAIRS = [(Client, AsyncClient), (Job, AsyncJob), (Group, AsyncGroup), (Stream, AsyncStream)]


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


@pytest.mark.parametrize(("blocking", "awaited"), PAIRS, ids=lambda cls: cls.__name__)
def test_both_clients_have_the_same_methods_and_arguments(blocking, awaited):
    assert public(blocking) - public(awaited) <= {"cancel"} and public(awaited) <= public(blocking)
    for name in ({"__init__"} | public(awaited)) - {"address"}:
        ours, theirs = (inspect.signature(getattr(cls, name)) for cls in (blocking, awaited))
        for one, other in zip(ours.parameters.values(), theirs.parameters.values(), strict=True):
            assert (one.name, one.kind, one.default) == (other.name, other.kind, other.default)
            if name != "__init__" and not name.endswith(("_stream", "outcomes")):
                assert one.annotation == other.annotation, (name, one.name)
        assert getattr(awaited, name).__doc__ or name == "__init__"


def test_only_what_may_be_done_twice_is_repeated():
    services = {
        service.full_name: {method.name for method in service.methods}
        for file in (khot_service_pb2, job_service_pb2)
        for service in file.DESCRIPTOR.services_by_name.values()
    }
    left = {
        method
        for name, methods in services.items()
        for method in methods - set(SAFE_TO_REPEAT[name])
    }
    assert left == {"Stream", "WatchJob", "RetryJob", "DeleteJob"}
