"""KHotService over the wire: the library's results, and a clear refusal of everything else."""

import concurrent.futures

import grpc
import numpy as np
import pytest
import torch
from google.rpc import error_details_pb2, status_pb2

import khot
from khot_proto import from_tensor, to_tensor
from khot_proto.v1 import khot_service_pb2 as pb
from khot_proto.v1.tensor_pb2 import Tensor

INVALID = grpc.StatusCode.INVALID_ARGUMENT.value[0]


def scores(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def relax(server, *items: pb.RelaxItem) -> list[pb.RelaxResult]:
    return list(server.khot.Relax(pb.RelaxRequest(items=items), timeout=30).results)


def sample(server, *items: pb.SampleItem) -> list[pb.SampleResult]:
    return list(server.khot.Sample(pb.SampleRequest(items=items), timeout=30).results)


def item(x: np.ndarray, k: float | list[float] = 3.0, **fields) -> pb.RelaxItem:
    ks = k if isinstance(k, list) else [k]
    return pb.RelaxItem(**{"operator": "sigmoid_topk", "scores": to_tensor(x), "k": ks} | fields)


def draw(x: np.ndarray, k: float = 3.0, **fields) -> pb.SampleItem:
    given = {"operator": "pivotal", "scores": to_tensor(x), "k": [k]}
    return pb.SampleItem(**given | fields)


def unpacked(mask: pb.Mask) -> np.ndarray:
    *rows, n = mask.shape
    bits = np.frombuffer(mask.bits, np.uint8).reshape(*rows, -1)
    return np.unpackbits(bits, axis=-1, count=n, bitorder="little").astype(bool)


# results are the library's


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(10,), (1, 1), (7, 33)])
def test_relax_is_the_library_call(server, shape, dtype):
    x = scores(*shape, dtype=dtype)
    k = 0.5 if shape[-1] == 1 else 3.0
    (result,) = relax(server, item(x, k, tau=[0.7]))
    wanted = khot.sigmoid_topk(torch.from_numpy(x), k, tau=0.7).numpy()
    assert np.array_equal(from_tensor(result.soft), wanted)
    assert result.status.code == 0 and result.timing.batch_rows >= 1
    assert result.timing.compute.ToNanoseconds() > 0


@pytest.mark.parametrize("name", ["soft_topk", "sparse_topk", "renorm_sigmoid_topk"])
def test_every_relaxation_with_a_k_for_each_row_is_served(server, name):
    x, k, tau = scores(4, 20), [1.0, 2.5, 0.0, 20.0], [0.5, 1.0, 2.0, 3.0]
    (result,) = relax(server, item(x, k, tau=tau, operator=name))
    row = khot.operator(name)
    temperature = {row.tau_keyword: torch.tensor(tau)}
    wanted = row.function(torch.from_numpy(x), torch.tensor(k), **temperature)
    assert np.array_equal(from_tensor(result.soft), wanted.numpy())


def test_a_row_that_torch_sums_does_not_depend_on_its_company(server):
    x = scores(3, 100_001)  # long enough for torch to share out, given threads
    together = from_tensor(relax(server, item(x, operator="renorm_sigmoid_topk"))[0].soft)
    for row, wanted in zip(x, together, strict=True):
        (alone,) = relax(server, item(row, operator="renorm_sigmoid_topk"))
        assert np.array_equal(from_tensor(alone.soft), wanted)


@pytest.mark.parametrize("row", khot.operators("design"), ids=lambda row: row.name)
def test_every_design_is_served(server, row):
    x = scores(4, 20)
    (result,) = sample(server, draw(x, seed=5, operator=row.name))
    pi = khot.sigmoid_topk(torch.from_numpy(x), 3)
    wanted = row.function(pi, seeds=khot.row_seeds(5, 4)).numpy()
    assert np.array_equal(unpacked(result.mask), wanted != 0)


def test_k_and_tau_may_differ_by_row(server):
    x, k, tau = scores(4, 20), [1.0, 2.5, 0.0, 20.0], [0.5, 1.0, 2.0, 3.0]
    (result,) = relax(server, item(x, k, tau=tau))
    wanted = khot.sigmoid_topk(torch.from_numpy(x), torch.tensor(k), tau=torch.tensor(tau))
    assert np.array_equal(from_tensor(result.soft), wanted.numpy())


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(5, 30), (30,), (64, 784)])
def test_sample_is_the_library_call(server, shape, dtype):
    x = scores(*shape, dtype=dtype)
    (result,) = sample(server, draw(x, seed=42, tau=[0.7]))
    seeds = khot.row_seeds(42, 1 if len(shape) == 1 else shape[0])
    rows = torch.from_numpy(x).reshape(-1, shape[-1])
    rows = rows.float() if dtype == "float16" else rows  # whose sums stay whole
    pi = khot.sigmoid_topk(rows, 3, tau=0.7)
    wanted = khot.pivotal(pi, seeds=seeds).numpy().reshape(shape)
    assert result.seed == 42
    assert np.array_equal(unpacked(result.mask), wanted != 0)


def test_sample_without_a_seed_says_which_it_took(server):
    x = scores(3, 30)
    (first,) = sample(server, draw(x))
    (again,) = sample(server, draw(x, seed=first.seed))
    assert again.mask == first.mask
    (other,) = sample(server, draw(x))
    assert other.seed != first.seed


def test_seeds_cover_64_bits(server):
    results = sample(server, draw(scores(9), seed=0), draw(scores(9), seed=2**64 - 1))
    assert [int(unpacked(result.mask).sum()) for result in results] == [3, 3]


def test_an_item_does_not_depend_on_its_company(server):
    x = scores(3, 50)
    (alone,) = sample(server, draw(x, seed=7))
    (soft,) = relax(server, item(x))

    def stranger(seed: int) -> None:
        relax(server, item(scores(2, 50, seed=seed)), item(scores(4, 20, seed=seed)))
        sample(server, draw(scores(2, 50, seed=seed)))

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        strangers = [pool.submit(stranger, seed) for seed in range(50)]
        ours = [pool.submit(sample, server, draw(x, seed=7)) for _ in range(10)]
        softs = [pool.submit(relax, server, item(x)) for _ in range(10)]
        for future in strangers:
            future.result()
    assert all(future.result()[0].mask == alone.mask for future in ours)
    assert all(future.result()[0].soft == soft.soft for future in softs)


def test_operators_are_the_registry(server):
    listed = server.khot.ListOperators(pb.ListOperatorsRequest(), timeout=30).operators
    relaxations = [r for r in khot.operators("relaxation") if r.fractional_k and not r.ranked]
    served = [*relaxations, *khot.operators("design")]
    assert [row.name for row in listed] == [row.name for row in served]
    kinds = {pb.OPERATOR_KIND_RELAXATION: "relaxation", pb.OPERATOR_KIND_DESIGN: "design"}
    assert [kinds[row.kind] for row in listed] == [row.kind for row in served]
    assert all(row.summary and row.reference and row.properties for row in listed)


# bad input

BAD = {
    "an unknown operator": (
        {"operator": "softmax"},
        "items[0].operator",
        "must be one of sigmoid_topk, soft_topk, sparse_topk, renorm_sigmoid_topk, "
        "softmax_topk; got 'softmax'",
    ),
    "a design to relax with": (
        {"operator": "tournament_pivotal"},
        "items[0].operator",
        "softmax_topk; got 'tournament_pivotal', which is for Sample",
    ),
    "no dtype": ({"scores": Tensor(shape=[1], data=b"1234")}, "items[0].scores", "got number 0"),
    "integers": (
        {"scores": to_tensor(np.arange(4, dtype=np.int32))},
        "items[0].scores",
        "must be float16, float32 or float64; got int32",
    ),
    "bytes that do not fit the shape": (
        {"scores": Tensor(dtype="DATA_TYPE_FLOAT32", shape=[2], data=b"1234")},
        "items[0].scores",
        "must have 8 bytes for float32 of shape (2,); got 4",
    ),
    "an empty tensor": (
        {"scores": to_tensor(np.zeros((0, 4), np.float32))},
        "items[0].scores",
        "neither of them 0; got (0, 4)",
    ),
    "three dimensions": (
        {"scores": to_tensor(scores(2, 2, 2))},
        "items[0].scores",
        "must have shape (n) or (rows, n)",
    ),
    "a scalar": ({"scores": to_tensor(np.float32(1.0))}, "items[0].scores", "must have shape"),
    "NaN": (
        {"scores": to_tensor(np.array([1.0, np.nan, 2.0, 3.0]))},
        "items[0]",
        "x must hold finite numbers or -inf; got NaN or +inf in 1 of 1 rows",
    ),
    "k < 0": ({"k": [-1.0]}, "items[0]", "k must be in [0, n]"),
    "k > n": ({"k": [5.0]}, "items[0]", "k must be in [0, n]"),
    "k NaN": ({"k": [float("nan")]}, "items[0]", "k must be in [0, n]"),
    "no k": ({"k": []}, "items[0].k", "must be one number, or one for each of 1 rows; got 0"),
    "too many k": ({"k": [1, 2, 3]}, "items[0].k", "one for each of 1 rows; got 3"),
    "tau = 0": ({"tau": [0.0]}, "items[0]", "tau must be finite and above 0"),
}


@pytest.mark.parametrize(("fields", "field", "message"), BAD.values(), ids=BAD)
def test_a_bad_item_fails_alone_with_the_reason(server, fields, field, message):
    good = item(scores(4, seed=1))
    bad = pb.RelaxItem(
        **{"operator": "sigmoid_topk", "scores": to_tensor(scores(4)), "k": [2]} | fields
    )
    refused, served = relax(server, bad, good)
    assert refused.status.code == INVALID and not refused.HasField("soft")
    assert message in refused.status.message
    assert {"reason": "INVALID_ARGUMENT", "field": field} == decoded(refused.status)
    assert served.status.code == 0 and from_tensor(served.soft).sum() == pytest.approx(3, rel=1e-6)


def test_a_bad_item_of_the_same_batch_fails_alone(server):
    x = scores(2, 4)
    bad = x.copy()
    bad[1, 2] = np.nan
    results = relax(server, item(x), item(bad), item(x, 9.0), item(x))
    assert [result.status.code for result in results] == [0, INVALID, INVALID, 0]
    assert results[0].soft == results[3].soft


def test_a_fractional_k_is_refused_by_a_design_that_needs_a_whole_one(server):
    refused, drawn = sample(server, draw(scores(5), 2.5, operator="topk"), draw(scores(5), 2.5))
    assert refused.status.code == INVALID and "whole" in refused.status.message
    assert drawn.status.code == 0 and unpacked(drawn.mask).sum() in (2, 3)


def decoded(status: pb.ItemStatus) -> dict[str, str]:
    found = {}
    for detail in status.details:
        info, request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        if detail.Unpack(info):
            assert info.domain == "khot"
            found["reason"] = info.reason
        if detail.Unpack(request):
            found["field"] = request.field_violations[0].field
    return found


def rich(error: grpc.RpcError) -> status_pb2.Status:
    trailing = dict(error.trailing_metadata())
    return status_pb2.Status.FromString(trailing["grpc-status-details-bin"])


def test_no_items_are_refused_as_a_call(server):
    with pytest.raises(grpc.RpcError, match="must hold at least one item") as caught:
        relax(server)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert rich(caught.value).code == INVALID


def test_an_oversized_message_is_refused_and_the_server_goes_on(server):
    huge = np.zeros((1, (64 << 20) // 4), np.float32)
    with pytest.raises(grpc.RpcError, match="larger than max") as caught:
        relax(server, item(huge))
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert relax(server, item(scores(4)))[0].status.code == 0


def test_rubbish_is_refused_and_the_server_goes_on(server):
    call = server.channel.unary_unary("/khot.v1.KHotService/Relax")
    with pytest.raises(grpc.RpcError, match="must be a message of the method; got 15") as caught:
        call(b"\xff not a message", timeout=10)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    watch = server.channel.unary_stream("/khot.v1.JobService/WatchJob")
    with pytest.raises(grpc.RpcError, match="must be a message of the method"):
        next(watch(b"\xff", timeout=10))
    unknown = server.channel.unary_unary("/khot.v1.KHotService/Nonsense")
    with pytest.raises(grpc.RpcError) as caught:
        unknown(b"", timeout=10)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert relax(server, item(scores(4)))[0].status.code == 0


def test_a_cancelled_call_harms_nobody(server):
    futures = [
        server.khot.Relax.future(pb.RelaxRequest(items=[item(scores(64, 10_000))]), timeout=30)
        for _ in range(8)
    ]
    for future in futures[::2]:
        future.cancel()
    for future in futures[1::2]:
        assert future.result().results[0].status.code == 0


def test_a_deadline_is_a_deadline(server):
    with pytest.raises(grpc.RpcError) as caught:
        server.khot.Relax(pb.RelaxRequest(items=[item(scores(128, 10_000))] * 4), timeout=0.001)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert relax(server, item(scores(4)))[0].status.code == 0


def test_a_full_queue_is_said_at_once(start):
    small = start("--max-queue-elements", "10000", "--max-batch-elements", "1000")
    small.wait_until_serving()
    request = pb.RelaxRequest(items=[item(scores(1, 5000))] * 12)
    with pytest.raises(grpc.RpcError, match="at most 10000 scores may wait") as caught:
        small.khot.Relax(request, timeout=30)
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    retry = error_details_pb2.RetryInfo()
    assert any(detail.Unpack(retry) for detail in rich(caught.value).details)
    assert retry.retry_delay.ToMilliseconds() == 100
    assert relax(small, item(scores(4)))[0].status.code == 0
