"""Messages cut and spliced are the messages that protobuf would have read and written."""

import random

import numpy as np
import pytest
from google.protobuf.message import DecodeError

from khot_proto import from_tensor, to_tensor
from khot_proto.v1 import khot_service_pb2 as pb
from khot_proto.v1.tensor_pb2 import Tensor
from khot_proto.wire import DATA, cut, field, varint


def sample_request() -> pb.SampleRequest:
    items = [
        pb.SampleItem(
            operator="score_function",
            scores=to_tensor(np.arange(rows * 5.0).reshape(rows, 5)),
            k=[1.0, 2.0],
            seed=2**64 - 1,
            cotangent=to_tensor(np.ones(3, "float32")),
            losses=pb.Losses(values=to_tensor(np.ones(rows)), given=to_tensor(np.zeros(rows))),
        )
        for rows in (2, 1000, 1)
    ]
    items[1].options["form"] = "dft"
    return pb.SampleRequest(items=items, priority=pb.PRIORITY_BULK)


def restored(message, views: list[memoryview]) -> None:
    """Put the bytes back where their indices are."""
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            continue
        for inner in [value] if hasattr(value, "DESCRIPTOR") else value:
            if isinstance(inner, Tensor):
                inner.data = bytes(views[int.from_bytes(inner.data, "little")])
            elif inner.DESCRIPTOR.file.package == "khot.v1":
                restored(inner, views)


@pytest.mark.parametrize("wrapped", [False, True], ids=["request", "stream"])
def test_a_message_is_its_skeleton_with_the_bytes_put_back(wrapped):
    request = sample_request()
    message = pb.StreamRequest(id=300, sample=request) if wrapped else request
    raw = message.SerializeToString()
    skeleton, views = cut(raw, message.DESCRIPTOR)
    assert len(views) == 12
    assert len(skeleton) < 1000 < len(raw)
    back = type(message).FromString(skeleton)
    assert back != message
    restored(back, views)
    assert back == message
    assert all(view.obj is raw for view in views)  # none was copied


def test_what_comes_twice_is_merged_as_protobuf_does():
    raw = pb.RelaxItem(scores=to_tensor(np.zeros(4))).SerializeToString() * 2
    skeleton, views = cut(raw, pb.RelaxItem.DESCRIPTOR)
    item = pb.RelaxItem.FromString(skeleton)
    assert list(item.scores.shape) == [4, 4]
    assert int.from_bytes(item.scores.data, "little") == len(views) - 1 == 1


def test_bytes_that_are_no_message_are_refused_or_read_as_protobuf_reads_them():
    draw = random.Random(0)
    raw = sample_request().SerializeToString()[-300:]
    refused = 0
    for _ in range(3000):
        bad = bytearray(raw)
        for _ in range(draw.randrange(1, 4)):
            bad[draw.randrange(len(bad))] = draw.randrange(256)
        bad = bytes(bad[: draw.randrange(len(bad) + 1)])
        try:
            skeleton, views = cut(bad, pb.SampleRequest.DESCRIPTOR)
            back = pb.SampleRequest.FromString(skeleton)
        except DecodeError:
            refused += 1
            continue
        assert sum(map(len, views)) <= len(bad)
        assert back.ByteSize() <= len(bad) + 8 * len(views)
    assert 100 < refused < 3000


def test_parts_joined_are_the_message_that_protobuf_writes():
    array = np.random.default_rng(0).normal(size=(70, 9))
    whole = pb.SampleResult(
        mask=pb.Mask(shape=[70, 9], bits=b"\x01" * 140),
        gradients=pb.Gradients(scores=to_tensor(array)),
    )
    tensor = to_tensor(array)
    tensor.ClearField("data")
    data = field(DATA, [memoryview(array).cast("B")])
    scores = field(1, [tensor.SerializeToString(), *data])
    mask = [pb.Mask(shape=[70, 9]).SerializeToString(), *field(2, [b"\x01" * 140])]
    one = field(1, [*field(2, mask), *field(7, scores)])
    raw = b"".join([*one, *one])
    assert pb.SampleResponse.FromString(raw) == pb.SampleResponse(results=[whole, whole])


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**14, 2**32, 2**63])
def test_a_varint_is_protobufs(value):
    encoded = pb.SampleItem(seed=value).SerializeToString()
    assert encoded == b"\x28" + varint(value)


def test_cut_agrees_with_from_tensor():
    array = np.random.default_rng(1).normal(size=(33, 7)).astype("float16")
    raw = pb.RelaxItem(scores=to_tensor(array), operator="x").SerializeToString()
    skeleton, views = cut(raw, pb.RelaxItem.DESCRIPTOR)
    scores = pb.RelaxItem.FromString(skeleton).scores
    np.testing.assert_array_equal(from_tensor(scores, views[0]), array)
