"""What travels between API and engine keeps its meaning, and arrays do not overlap."""

import random
from itertools import pairwise

import numpy as np
import pytest

from khot_server.messages import (
    ITEM_BYTES,
    BatchRequest,
    BatchResult,
    Call,
    Hello,
    Layout,
    OperatorInfo,
    unit_dtype,
)

CALLS = [
    Call("sigmoid_topk", "{}", 784, "float32"),
    Call("softsub", '{"p": 2.0}', 5, "float64", 3.0),
    Call("pivotal", "{}", 5, "float16", None, 4, form="indices", pi=True),
    Call("sorted_soft_topk", "{}", 5, "float32", 2.0, ranks=2, form=None, pulled="cotangent"),
    Call(
        "score_function",
        '{"name": "caf\\u00e9"}',
        5,
        "float32",
        samples=3,
        form="bits",
        pulled="losses",
        baseline="leave_one_out",
    ),
]
RESULTS = [
    BatchResult(3, 250),
    BatchResult(
        2**40, 1, 7, 2, "sigmoid_topk (C, avx2)", True, ("k", "tau"), {0: "no", 12: "é; got"}
    ),
    BatchResult(4, 5, failure="RuntimeError: out of memory"),
]
OPERATORS = (
    OperatorInfo(
        "a",
        "design",
        "b",
        "c",
        {"exact": "true"},
        {"p": 2.0, "hard": True, "method": "x", "m": 3},
        needs_k=True,
        one_k=False,
        ranked=False,
        needs_loss=False,
        relaxed=True,
        roots=True,
        design="a",
    ),
)


@pytest.mark.parametrize(
    "message",
    [
        *(BatchRequest(7, 1, 2000, 30, call) for call in CALLS),
        *RESULTS,
        Hello(OPERATORS, "cuda:0", 123),
        Hello((), "cpu", 1),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_frame_is_its_length_and_its_message(message):
    frame = message.encode()
    assert int.from_bytes(frame[:4], "little") == len(frame) - 4
    back = type(message).decode(frame[4:])
    assert back == message
    assert back.encode() == frame


def test_options_keep_their_types_on_the_way():
    (row,) = Hello.decode(Hello(OPERATORS, "cpu", 1).encode()[4:]).operators
    assert {name: type(value) for name, value in row.options.items()} == {
        "p": float,
        "hard": bool,
        "method": str,
        "m": int,
    }


def test_a_k_that_is_no_number_arrives_and_is_the_librarys_to_refuse():
    for k in (float("nan"), float("inf")):
        request = BatchRequest(1, 0, 1, 1, CALLS[1]._replace(k=k))
        assert repr(BatchRequest.decode(request.encode()[4:]).call.k) == repr(k)


def random_call(chance: random.Random) -> Call:
    pulled = chance.choice([None, "cotangent", "losses"])
    samples = chance.choice([None, 1, 5])
    forms = [None, "soft"] if samples is None else [None, "soft", "bits", "indices", "dense"]
    return Call(
        "operator",
        "{}",
        chance.choice([1, 7, 8, 9, 784, 65536, 65537]),
        chance.choice(["float16", "float32", "float64"]),
        chance.choice(["rows", 3.0, None]),
        samples,
        chance.choice([None, 0, 3]) if samples is None else None,
        chance.choice(forms),
        chance.choice([False, True]),
        pulled,
        chance.choice([None, "given", "leave_one_out"]) if pulled == "losses" else None,
        chance.choice([False, True]),
    )


def sizes(call: Call) -> dict[str, int]:
    """Bytes of a row of each array, from their shapes in the docstring of `Layout`."""
    like, draws, n = np.dtype(call.dtype).itemsize, call.samples or 1, call.n
    value = like * draws * n * (1 if call.ranks is None else call.ranks)
    found = {"tau": 8, "scores": like * n, "iterations": 4, "residual": 8}
    if call.k == "rows":
        found["k"] = 8
    if call.pulled is not None:
        found |= {"gradient": like * n, "gradient_k": 8, "gradient_tau": 8}
    if call.pulled == "cotangent":
        found["cotangent"] = value
    if call.pulled == "losses":
        found["losses"] = like * draws
    if call.baseline == "given":
        found["baseline"] = like * draws
    if call.pi:
        found["pi"] = like * n
    match call.form:
        case "soft" | "dense":
            found[call.form] = value
        case "bits":
            found["bits"] = (n + 7) // 8 * draws
        case "indices":
            found |= {"counts": 4 * draws, "units": (2 if n <= 65536 else 4) * n * draws}
    return {name: size for name, size in found.items() if size}


NAMES = (
    *("k", "tau", "scores", "cotangent", "losses", "baseline"),
    *("soft", "bits", "counts", "units", "dense", "pi"),
    *("gradient", "gradient_k", "gradient_tau", "iterations", "residual"),
)


@pytest.mark.parametrize("seed", range(200))
def test_the_arrays_of_a_batch_are_those_of_its_call_aligned_and_apart(seed):
    chance = random.Random(seed)
    call, rows = random_call(chance), chance.choice([1, 3, 64])
    items = chance.randint(1, rows)
    layout = Layout(call, rows, items)
    assert {name: layout[name][1] for name in NAMES if name in layout} == sizes(call)
    spans = [(0, ITEM_BYTES * items)]
    spans += sorted((layout[name][0], rows * layout[name][1]) for name in NAMES if name in layout)
    spans.append((layout.size, 0))
    assert all(at % 64 == 0 for at, _ in spans)
    for (at, size), (following, _) in pairwise(spans):
        assert at + size <= following < at + size + 64


def test_both_sides_compute_the_same_layout():
    request = BatchRequest(1, 0, 10, 3, CALLS[2])
    theirs = BatchRequest.decode(request.encode()[4:]).layout
    for name in ("scores", "counts", "units", "pi"):
        assert theirs[name] == request.layout[name]
    assert theirs.size == request.layout.size


@pytest.mark.parametrize("n", [1, 65536, 65537])
def test_every_unit_has_a_number(n):
    assert np.iinfo(unit_dtype(n)).max >= n - 1
    assert unit_dtype(n).itemsize == (2 if n <= 65536 else 4)


def test_elements_are_scores_of_all_samples_and_ranks():
    assert [call.elements for call in CALLS] == [784, 5, 20, 10, 15]
    assert CALLS[3]._replace(k=0.0, ranks=0).elements == 5
