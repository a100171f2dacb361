"""What travels between API and engine keeps its meaning, and batches do not overlap."""

from itertools import pairwise

import pytest

from khot_server.messages import (
    BatchRequest,
    BatchResult,
    Hello,
    Layout,
    OperatorInfo,
    decode,
    encode,
)

MESSAGES = [
    BatchRequest(3, 1, "design", "tournament_pivotal", 5, 10, "float32", [2, 3], 1),
    BatchResult(3, 0.25, {"1": "no"}, {"2": 4}, 1),
    Hello([OperatorInfo("a", "design", "b", "c", {"exact": "true"})], "cpu", 7),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_frame_is_its_length_and_its_message(message):
    frame = encode(message)
    assert int.from_bytes(frame[:4], "little") == len(frame) - 4
    assert decode(frame[4:]) == message


@pytest.mark.parametrize("kind", ["relaxation", "design"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(("rows", "n"), [(1, 1), (3, 7), (64, 784), (1, 1_000_000)])
def test_arrays_of_a_batch_do_not_overlap(kind, dtype, rows, n):
    layout = Layout(kind, rows, n, dtype)
    size = {"float16": 2, "float32": 4, "float64": 8}[dtype]
    parts = [
        (layout.k, 8 * rows),
        (layout.tau, 8 * rows),
        (layout.seeds, 8 * rows),
        (layout.scores, size * rows * n),
        (layout.result, layout.result_row * rows),
        (layout.size, 0),
    ]
    assert parts[0][0] == 0 and all(at % 64 == 0 for at, _ in parts)
    for (at, length), (following, _) in pairwise(parts):
        assert at + length <= following
    assert layout.result_row == ((n + 7) // 8 if kind == "design" else n * size)


def test_items_are_slices_of_the_rows():
    assert MESSAGES[0].slices == [slice(0, 2), slice(2, 5)]
