"""KHotService over the wire: the library's results, and a clear refusal of everything else."""

import grpc
import numpy as np
import pytest
import torch
from google.rpc import error_details_pb2, status_pb2
from processes import stopped_engine, wait_until

import khot
from khot_proto import from_tensor, to_tensor
from khot_proto.v1 import khot_service_pb2 as pb
from khot_proto.v1.khot_service_pb2_grpc import KHotServiceStub
from khot_proto.v1.tensor_pb2 import Tensor

# An engine that a test stops for a while is not taken for hung.
PATIENT = ("--engine-silence-s", "100")
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


def test_a_row_that_torch_sums_does_not_depend_on_its_company(server):
    x = scores(3, 100_001)  # long enough for torch to share out, given threads
    together = from_tensor(relax(server, item(x, operator="renorm_sigmoid_topk"))[0].soft)
    for row, wanted in zip(x, together, strict=True):
        (alone,) = relax(server, item(row, operator="renorm_sigmoid_topk"))
        assert np.array_equal(from_tensor(alone.soft), wanted)


def test_k_and_tau_may_differ_by_row(server):
    x, k, tau = scores(4, 20), [1.0, 2.5, 0.0, 20.0], [0.5, 1.0, 2.0, 3.0]
    (result,) = relax(server, item(x, k, tau=tau))
    wanted = khot.sigmoid_topk(torch.from_numpy(x), torch.tensor(k), tau=torch.tensor(tau))
    assert np.array_equal(from_tensor(result.soft), wanted.numpy())


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


def test_operators_are_the_registry(server):
    response = server.khot.ListOperators(pb.ListOperatorsRequest(), timeout=30)
    rows = khot.operators()
    assert [row.name for row in response.operators] == [row.name for row in rows]
    for listed, row in zip(response.operators, rows, strict=True):
        kind = pb.OperatorKind.Name(listed.kind).removeprefix("OPERATOR_KIND_").lower()
        assert kind == row.kind and listed.summary == row.summary
        assert dict(listed.options) == row.options and listed.reference and listed.properties
    assert list(response.devices) == ["cpu"]
    for field, value in response.limits.ListFields():
        assert value > 0, field.name
    assert len(response.limits.ListFields()) == len(pb.Limits.DESCRIPTOR.fields)


def test_times_are_told(server):
    (result,) = relax(server, item(scores(64, 784)))
    timing = result.timing
    assert min(timing.queue_ns, timing.batch_ns, timing.compute_ns) > 0
    assert result.algorithm.startswith("sigmoid_topk (C") or result.algorithm == "torch"


# bad input

BAD = {
    "an unknown operator": (
        {"operator": "softmax"},
        "items[0].operator",
        "must be one of sigmoid_topk, soft_topk, sorted_soft_topk, sparse_topk, "
        "renorm_sigmoid_topk, sequential_softmax_topk, softmax_topk; got 'softmax'",
    ),
    "a design to relax with": (
        {"operator": "tournament_pivotal"},
        "items[0].operator",
        "softmax_topk; got 'tournament_pivotal', which is for Sample",
    ),
    "no dtype": ({"scores": Tensor(shape=[1], data=b"1234")}, "items[0].scores", "got none"),
    "integers": (
        {"scores": to_tensor(np.arange(4, dtype=np.int32))},
        "items[0].scores",
        "must be float16, float32 or float64; got int32",
    ),
    "bytes that do not fit the shape": (
        {"scores": Tensor(dtype="DATA_TYPE_FLOAT32", shape=[2], data=b"1234")},
        "items[0].scores",
        "must have 8 bytes of data for float32 of shape (2,); got 4",
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


def test_a_request_that_could_never_wait_is_refused(start):
    small = start("--max-queue-elements", "10000").wait_until_serving()
    with pytest.raises(grpc.RpcError, match="at most 10000 scores may be under way") as caught:
        relax(small, *[item(scores(1, 5000))] * 3)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert relax(small, item(scores(4)))[0].status.code == 0


def test_a_full_queue_is_said_at_once(start):
    small = start("--max-queue-elements", "15000", *PATIENT).wait_until_serving()
    request = pb.RelaxRequest(items=[item(scores(1, 5000))])
    with stopped_engine(small):
        # one with the engine, two that wait
        futures = [small.khot.Relax.future(request, timeout=30) for _ in range(3)]
        wait_until(lambda: small.metric("khot_queue_items") == 2, "two to wait")
        with pytest.raises(grpc.RpcError, match="15000 under way and 5000 more") as caught:
            small.khot.Relax(request, timeout=30)
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    retry = error_details_pb2.RetryInfo()
    assert any(detail.Unpack(retry) for detail in rich(caught.value).details)
    assert retry.retry_delay.ToMilliseconds() == 100
    assert [future.result().results[0].status.code for future in futures] == [0, 0, 0]


def test_a_thousand_cancelled_calls_leave_an_empty_queue(start):
    server = start("--max-caller-calls", "2000", *PATIENT).wait_until_serving()
    request = pb.RelaxRequest(items=[item(scores(2, 10))])  # small: none is sent ahead
    with stopped_engine(server):
        futures = [server.khot.Relax.future(request, timeout=60) for _ in range(1000)]
        wait_until(lambda: server.in_flight("Relax") == 1000, "them to arrive")
        assert server.metric("khot_queue_items") > 0
        for future in futures:
            future.cancel()
        wait_until(lambda: server.metric("khot_queue_items") == 0, "an empty queue")
    assert relax(server, item(scores(4)))[0].status.code == 0
    assert server.metric("khot_queue_scores") == 0, "and the engine has none of them left"


def test_work_whose_deadline_passed_in_the_queue_is_never_computed(start):
    server = start(*PATIENT).wait_until_serving()
    request = pb.RelaxRequest(items=[item(scores(2, 100))])
    before = server.metric("khot_batch_rows_sum")
    with stopped_engine(server):
        first = server.khot.Relax.future(request, timeout=60)  # with the engine
        wait_until(lambda: server.in_flight("Relax") == 1, "it")
        late = [server.khot.Relax.future(request, timeout=0.2) for _ in range(20)]
        codes = {future.exception().code() for future in late}
        assert codes == {grpc.StatusCode.DEADLINE_EXCEEDED}
    first.result()
    assert relax(server, item(scores(4)))[0].status.code == 0
    assert server.metric("khot_batch_rows_sum") == before + 3


def test_one_caller_may_have_so_many_calls_under_way(start):
    server = start("--max-caller-calls", "3", *PATIENT).wait_until_serving()
    request = pb.RelaxRequest(items=[item(scores(2, 100))])
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(server.address, options) as other:
        with stopped_engine(server):
            futures = [server.khot.Relax.future(request, timeout=60) for _ in range(3)]
            wait_until(lambda: server.in_flight("Relax") == 3, "them")
            with pytest.raises(grpc.RpcError, match="at most 3 calls may be under way") as caught:
                server.khot.Relax(request, timeout=30)
            futures.append(KHotServiceStub(other).Relax.future(request, timeout=60))
            wait_until(lambda: server.in_flight("Relax") == 4, "another caller's")
        assert [future.result().results[0].status.code for future in futures] == [0] * 4
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert any(d.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for d in rich(caught.value).details)


# streams


def on_stream(number: int, **fields) -> pb.StreamRequest:
    return pb.StreamRequest(id=number, relax=pb.RelaxRequest(items=[item(scores(2, 50), **fields)]))


def test_a_stream_answers_each_and_a_bad_one_alone(server):
    requests = [on_stream(number) for number in range(200)]
    requests[7] = pb.StreamRequest(id=7)
    requests[9] = pb.StreamRequest(id=9, relax=pb.RelaxRequest())
    requests[11] = on_stream(11, k=99.0)
    answers = {a.id: a for a in server.khot.Stream(iter(requests), timeout=60)}
    assert sorted(answers) == list(range(200))
    assert answers[7].error.code == answers[9].error.code == INVALID
    assert "must be relax, relax_vjp, sample or sample_vjp" in answers[7].error.message
    assert answers[11].relax.results[0].status.code == INVALID
    good = [a for number, a in answers.items() if number not in (7, 9, 11)]
    wanted = relax(server, item(scores(2, 50)))[0].soft
    assert all(a.relax.results[0].soft == wanted for a in good)


def test_a_stream_answers_as_they_finish(server):
    slow = pb.SampleItem(operator="brewer", scores=to_tensor(scores(50, 600)), k=[300], seed=1)
    requests = [pb.StreamRequest(id=1, sample=pb.SampleRequest(items=[slow])), on_stream(2, k=99.0)]
    answers = [answer.id for answer in server.khot.Stream(iter(requests), timeout=60)]
    assert sorted(answers) == [1, 2]


def test_rubbish_on_a_stream_ends_it_and_nothing_else(server):
    stream = server.channel.stream_stream("/khot.v1.KHotService/Stream")
    with pytest.raises(grpc.RpcError, match="must be a message of the method") as caught:
        list(stream(iter([b"\xff rubbish"]), timeout=30))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert relax(server, item(scores(4)))[0].status.code == 0


def test_a_slow_reader_on_a_stream_is_not_read_from(server):
    """What he does not read is not computed, and others are served meanwhile."""
    sent = 0
    big = pb.RelaxRequest(items=[item(scores(40, 5000))])

    def requests():
        nonlocal sent
        while sent < 3000:
            sent += 1
            yield pb.StreamRequest(id=sent, relax=big)

    call = server.khot.Stream(requests(), timeout=120)
    next(call)
    seen = -1
    while seen != sent:  # until it stands still
        seen = sent
        for _ in range(20):
            assert relax(server, item(scores(4)))[0].status.code == 0
    assert sent < 3000
    call.cancel()
    wait_until(lambda: server.metric("khot_queue_items") == 0, "an empty queue")


def test_a_client_that_disconnects_mid_batch_harms_nobody(start):
    server = start(*PATIENT).wait_until_serving()
    ours = server.khot.Relax
    request = pb.RelaxRequest(items=[item(scores(64, 10_000))])
    with stopped_engine(server):
        channel = grpc.insecure_channel(server.address, [("grpc.use_local_subchannel_pool", 1)])
        theirs = KHotServiceStub(channel).Relax
        left = [theirs.future(request, timeout=60) for _ in range(4)]
        kept = [ours.future(request, timeout=60) for _ in range(4)]
        wait_until(lambda: server.in_flight("Relax") == 8, "eight calls")
        channel.close()
        wait_until(lambda: server.in_flight("Relax") == 4, "four of them")
    assert [future.result().results[0].status.code for future in kept] == [0] * 4
    assert {future.code() for future in left} == {grpc.StatusCode.CANCELLED}
    assert server.metric("khot_queue_items") == 0
