"""Items: what cannot be meant so is refused with its path, the rest is rows for the batcher."""

import math
from typing import Any

import numpy as np
import pytest
from google.protobuf.struct_pb2 import Struct

from khot_proto import to_tensor
from khot_proto.v1 import khot_service_pb2 as pb
from khot_proto.v1.tensor_pb2 import DataType, Tensor
from khot_proto.wire import cut
from khot_server.api import items as module
from khot_server.api.items import Asked, Reader
from khot_server.errors import InvalidArgument
from khot_server.messages import Call, Layout, OperatorInfo

INPUTS = ("k", "tau", "scores", "cotangent", "losses", "baseline")


def operator(name: str, kind: Any, options: dict[str, Any] | None = None, **of: bool) -> Any:
    flags = {"needs_k": kind != "design", "one_k": False, "ranked": False} | of
    flags = {"needs_loss": False, "relaxed": False} | flags
    return OperatorInfo(name, kind, "", "", {}, options or {}, **flags)


OPERATORS = {
    row.name: row
    for row in (
        operator("sigmoid_topk", "relaxation"),
        operator("sparse_topk", "relaxation", {"p": 2.0}),
        operator(
            "soft_topk", "relaxation", {"steps": 3, "method": "exact", "fitted": True, "p": 2.0}
        ),
        operator("softsub", "relaxation", one_k=True),
        operator("sorted_soft_topk", "relaxation", one_k=True, ranked=True),
        operator("pivotal", "design"),
        operator("pi_st", "estimator"),
        operator("st_topk", "estimator", needs_k=False),
        operator("score_function", "estimator", needs_loss=True),
        operator("gumbel_sigmoid", "estimator", {"hard": False}, relaxed=True),
    )
}
RELAXATIONS = "sigmoid_topk, sparse_topk, soft_topk, softsub, sorted_soft_topk"
DRAWN = "pivotal, pi_st, st_topk, score_function, gumbel_sigmoid"


def tensor(*shape: int, dtype: str = "float32") -> Tensor:
    """Numbers that differ, of this shape."""
    return to_tensor(np.arange(math.prod(shape)).reshape(shape).astype(dtype))


def relax(**fields: Any) -> pb.RelaxItem:
    given = {"operator": "sigmoid_topk", "scores": tensor(2, 5), "k": [2.0]}
    return pb.RelaxItem(**given | fields)


def sample(**fields: Any) -> pb.SampleItem:
    given = {"operator": "pi_st", "scores": tensor(2, 5), "k": [2.0], "seed": 7}
    return pb.SampleItem(**given | fields)


def struct(**values: Any) -> Struct:
    options = Struct()
    options.update(values)
    return options


def losses(*shape: int, **of: Any) -> pb.Losses:
    return pb.Losses(values=tensor(*shape), **of)


def readings(
    item: pb.RelaxItem | pb.SampleItem, value: bool, max_bytes: int
) -> list[Asked | InvalidArgument]:
    """What comes of an item whose message was parsed whole, and of one that was cut."""
    relaxes = isinstance(item, pb.RelaxItem)
    message = pb.RelaxRequest(items=[item]) if relaxes else pb.SampleRequest(items=[item])
    skeleton, views = cut(message.SerializeToString(), message.DESCRIPTOR)
    found: list[Asked | InvalidArgument] = []
    for request, cut_out in ((message, None), (type(message).FromString(skeleton), views)):
        reader = Reader(OPERATORS, cut_out, max_bytes)
        read: Any = reader.relax if relaxes else reader.sample
        try:
            found.append(read("items[0]", request.items[0], value=value))
        except InvalidArgument as error:
            found.append(error)
    return found


def read(
    item: pb.RelaxItem | pb.SampleItem, *, value: bool = True, max_bytes: int = 1 << 20
) -> Asked:
    whole, cut_out = readings(item, value, max_bytes)
    assert isinstance(whole, Asked), whole
    assert cut_out == whole, "cut and uncut give the same"
    item_of = whole.item
    layout = Layout(item_of.call, item_of.rows, 1)
    wanted = {name: item_of.rows * layout[name][1] for name in INPUTS if name in layout}
    assert {name: len(data) for name, data in item_of.arrays.items()} == wanted
    return whole


def numbers(asked: Asked, name: str, dtype: str = "float64") -> list[float]:
    return np.frombuffer(asked.item.arrays[name], dtype).tolist()


FLOATS = "must be float16, float32 or float64"
SHAPES = "must have shape (n) or (rows, n), neither of them 0"
PER_ROW = "must be one number, or one for each of 2 rows"
RANKS = "must be a whole number in [0, 5] for sorted_soft_topk"
NO_GRADIENT = "must be absent for a design, which has no gradient; got 'pivotal'"
FLOAT32 = DataType.DATA_TYPE_FLOAT32


def data(size: int, *shape: int, dtype: Any = FLOAT32) -> Tensor:
    """So many bytes, whatever the shape says."""
    return Tensor(dtype=dtype, shape=shape, data=b"x" * size)


REFUSED_BY_BOTH = [
    ({"scores": tensor(2, 5, dtype="int32")}, "scores", f"{FLOATS}; got int32"),
    ({"scores": None}, "scores", f"{FLOATS}; got none"),
    ({"scores": data(20, 5, dtype=99)}, "scores", f"{FLOATS}; got number 99"),
    ({"scores": tensor()}, "scores", f"{SHAPES}; got ()"),
    ({"scores": tensor(1, 2, 3)}, "scores", f"{SHAPES}; got (1, 2, 3)"),
    ({"scores": tensor(0)}, "scores", f"{SHAPES}; got (0,)"),
    ({"scores": tensor(0, 5)}, "scores", f"{SHAPES}; got (0, 5)"),
    ({"scores": data(40, -2, -5)}, "scores", f"{SHAPES}; got (-2, -5)"),
    (
        {"scores": data(39, 2, 5)},
        "scores",
        "must have 40 bytes of data for float32 of shape (2, 5); got 39",
    ),
    (
        {"scores": data(0, 5, dtype=DataType.DATA_TYPE_FLOAT16)},
        "scores",
        "must have 10 bytes of data for float16 of shape (5,); got 0",
    ),
    (
        {"scores": data(0, 2**62, 2**62)},
        "scores",
        f"must have {4 * 2**124} bytes of data for float32 of shape ({2**62}, {2**62}); got 0",
    ),
    ({"k": []}, "k", f"{PER_ROW}; got 0"),
    ({"k": [1.0] * 3}, "k", f"{PER_ROW}; got 3"),
    ({"tau": [1.0] * 3}, "tau", f"{PER_ROW}; got 3"),
    (
        {"options": struct(p=1)},
        "options.p",
        "must be an option of {operator}, of which there are: none; got another",
    ),
]

BAD_OPTIONS = [
    ({"p": True}, "must be a number; got True"),
    ({"p": "2"}, "must be a number; got '2'"),
    ({"p": None}, "must be a number; got 'null_value'"),
    ({"p": [1]}, "must be a number; got 'list_value'"),
    ({"steps": 2.5}, "must be a whole number; got 2.5"),
    ({"steps": math.inf}, "must be a whole number; got inf"),
    ({"steps": math.nan}, "must be a whole number; got nan"),
    ({"fitted": 1}, "must be true or false; got 1.0"),
    ({"method": 1}, "must be a string; got 1.0"),
    (
        {"q": 1},
        "must be an option of soft_topk, of which there are: steps, method, fitted, p; got another",
    ),
]

REFUSED_BY_RELAX = [
    ({"operator": "topk"}, "operator", f"must be one of {RELAXATIONS}; got 'topk'"),
    ({"operator": ""}, "operator", f"must be one of {RELAXATIONS}; got ''"),
    (
        {"operator": "pi_st"},
        "operator",
        f"must be one of {RELAXATIONS}; got 'pi_st', which is for Sample",
    ),
    (
        {"operator": "softsub", "k": [1.0, 2.0]},
        "k",
        "must be one number for all rows of softsub; got several",
    ),
    *(
        ({"operator": "sorted_soft_topk", "k": [k]}, "k", f"{RANKS}; got {k}")
        for k in (6.0, 1.5, -1.0, math.nan, math.inf)
    ),
    *(
        (
            {"operator": "soft_topk", "options": struct(**given)},
            f"options.{next(iter(given))}",
            must,
        )
        for given, must in BAD_OPTIONS
    ),
    (
        {"cotangent": tensor(2, 5, dtype="float64")},
        "cotangent",
        "must be float32 of shape (2, 5); got float64 of shape (2, 5)",
    ),
    (
        {"cotangent": tensor(10)},
        "cotangent",
        "must be float32 of shape (2, 5); got float32 of shape (10,)",
    ),
    (
        {"cotangent": data(40, 2, 5, dtype=99)},
        "cotangent",
        "must be float32 of shape (2, 5); got number 99 of shape (2, 5)",
    ),
    (
        {"cotangent": data(44, 2, 5)},
        "cotangent",
        "must have 40 bytes of data for float32 of shape (2, 5); got 44",
    ),
    (
        {"operator": "sorted_soft_topk", "cotangent": tensor(2, 5)},
        "cotangent",
        "must be float32 of shape (2, 5, 2); got float32 of shape (2, 5)",
    ),
]

REFUSED_BY_SAMPLE = [
    (
        {"operator": "sigmoid_topk"},
        "operator",
        f"must be one of {DRAWN}; got 'sigmoid_topk', which is for Relax",
    ),
    ({"operator": "x"}, "operator", f"must be one of {DRAWN}; got 'x'"),
    *(
        ({"num_samples": number}, "num_samples", f"must be in [1, {2**32 - 1}]; got {number}")
        for number in (0, -1, 2**32)
    ),
    ({"format": 9}, "format", "must be a MaskFormat; got number 9"),
    (
        {"include_pi": True},
        "include_pi",
        "must be false for an estimator, whose law has probabilities of its own; got true",
    ),
    (
        {"operator": "pivotal", "k": [], "tau": [1.0]},
        "tau",
        "must be absent where the scores are probabilities, as there is no k; got one",
    ),
    ({"operator": "pivotal", "cotangent": tensor(2, 5)}, "cotangent", NO_GRADIENT),
    ({"operator": "pivotal", "losses": losses(2)}, "losses", NO_GRADIENT),
    ({"losses": losses(2)}, "", "must have cotangent alone for pi_st; got losses"),
    (
        {"cotangent": tensor(2, 5), "losses": losses(2)},
        "",
        "must have cotangent alone for pi_st; got cotangent and losses",
    ),
    (
        {"operator": "score_function", "cotangent": tensor(2, 5)},
        "",
        "must have losses alone for score_function; got cotangent",
    ),
    (
        {"cotangent": tensor(2, 5), "num_samples": 3},
        "cotangent",
        "must be float32 of shape (3, 2, 5); got float32 of shape (2, 5)",
    ),
    (
        {"operator": "score_function", "losses": losses(2, 5)},
        "losses.values",
        "must be float32 of shape (2,); got float32 of shape (2, 5)",
    ),
    (
        {"operator": "score_function", "losses": losses(2), "num_samples": 3},
        "losses.values",
        "must be float32 of shape (3, 2); got float32 of shape (2,)",
    ),
    (
        {"operator": "score_function", "losses": losses(2, given=tensor(1))},
        "losses.given",
        "must be float32 of shape (2,); got float32 of shape (1,)",
    ),
    (
        {"operator": "score_function", "losses": pb.Losses(leave_one_out=True)},
        "losses.values",
        "must be float32 of shape (2,); got none of shape ()",
    ),
]

REFUSED = [
    *((relax(**fields), field, must) for fields, field, must in REFUSED_BY_BOTH),
    *((sample(**fields), field, must) for fields, field, must in REFUSED_BY_BOTH),
    *((relax(**fields), field, must) for fields, field, must in REFUSED_BY_RELAX),
    *((sample(**fields), field, must) for fields, field, must in REFUSED_BY_SAMPLE),
]


def check_refused(
    item: pb.RelaxItem | pb.SampleItem, field: str, must: str, value: bool, max_bytes: int = 1 << 20
) -> None:
    path = f"items[0].{field}" if field else "items[0]"
    for error in readings(item, value, max_bytes):
        assert isinstance(error, InvalidArgument), error
        assert (error.field, str(error)) == (path, f"{path}: {must}")


@pytest.mark.parametrize(
    ("item", "field", "must"), REFUSED, ids=[field or "item" for _, field, _ in REFUSED]
)
def test_what_cannot_be_meant_so_is_refused_with_its_path(item, field, must):
    check_refused(item, field, must.format(operator=item.operator), value=True)


@pytest.mark.parametrize(
    ("item", "field", "must"),
    [
        (relax(), "cotangent", "must be given for RelaxVjp; got none"),
        (
            pb.SampleItem(operator="pi_st", scores=tensor(5), k=[2.0], cotangent=tensor(5)),
            "seed",
            "must be the one of the draw, which is made again; got none",
        ),
        (sample(), "", "must have a cotangent for SampleVjp; got none"),
        (sample(operator="score_function"), "", "must have losses for SampleVjp; got none"),
        (
            sample(operator="pivotal"),
            "operator",
            f"must be one of {DRAWN.removeprefix('pivotal, ')}; got 'pivotal', which is for Sample",
        ),
    ],
)
def test_gradients_without_what_they_are_for_are_refused(item, field, must):
    check_refused(item, field, must, value=False)


def test_values_are_the_librarys_to_judge():
    """Whole numbers or not, within n or not, finite or not: they travel as they are."""
    odd = [math.inf, -1.5]
    asked = read(relax(k=odd, tau=[0.0], scores=to_tensor(np.full((2, 5), np.nan, "float32"))))
    assert numbers(asked, "k") == odd and numbers(asked, "tau") == [0.0, 0.0]
    assert read(relax(operator="softsub", k=[2.5])).item.call.k == 2.5


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_scores_are_the_bytes_that_were_sent_in_their_dtype(dtype):
    scores = np.random.default_rng(0).normal(size=(3, 5)).astype(dtype)
    asked = read(relax(scores=to_tensor(scores)))
    assert asked.item.call == Call("sigmoid_topk", "{}", 5, dtype)
    assert (asked.item.rows, asked.shape, asked.seed) == (3, (3, 5), None)
    assert asked.dtype == to_tensor(scores).dtype
    assert asked.item.arrays["scores"] == scores.tobytes()


def test_a_vector_is_one_row():
    asked = read(relax(scores=tensor(5)))
    assert (asked.item.rows, asked.item.call.n, asked.shape) == (1, 5, (5,))


def test_large_data_of_a_cut_message_is_not_copied():
    message = pb.RelaxRequest(items=[relax(scores=tensor(100, 100))])
    raw = message.SerializeToString()
    skeleton, views = cut(raw, message.DESCRIPTOR)
    request = pb.RelaxRequest.FromString(skeleton)
    asked = Reader(OPERATORS, views, 1 << 20).relax("items[0]", request.items[0], value=True)
    scores = asked.item.arrays["scores"]
    assert isinstance(scores, memoryview) and scores.obj is raw


@pytest.mark.parametrize(
    ("k", "tau", "rows_k", "rows_tau"),
    [
        ([2.0], [], [2.0] * 3, [1.0] * 3),
        ([1.0, 2.5, 3.0], [0.5], [1.0, 2.5, 3.0], [0.5] * 3),
        ([1.0], [0.5, 1.5, 2.5], [1.0] * 3, [0.5, 1.5, 2.5]),
    ],
)
def test_one_number_serves_all_rows_or_each_has_its_own(k, tau, rows_k, rows_tau):
    asked = read(relax(scores=tensor(3, 5), k=k, tau=tau))
    assert (numbers(asked, "k"), numbers(asked, "tau")) == (rows_k, rows_tau)
    assert asked.item.call.k == "rows"


def test_the_one_k_of_an_operator_is_part_of_its_call():
    for k in ([2.0], [2.0, 2.0]):
        asked = read(relax(operator="softsub", k=k))
        assert asked.item.call.k == 2.0 and "k" not in asked.item.arrays


@pytest.mark.parametrize("ranks", [0, 2, 5])
@pytest.mark.parametrize("value", [True, False])
def test_a_ranked_relaxation_has_a_column_for_each_rank(ranks, value):
    item = relax(operator="sorted_soft_topk", k=[ranks], cotangent=tensor(2, 5, ranks))
    asked = read(item, value=value)
    assert asked.item.call == Call(
        "sorted_soft_topk",
        "{}",
        5,
        "float32",
        float(ranks),
        ranks=ranks,
        form="soft" if value else None,
        pulled="cotangent",
    )
    assert asked.ranks == (ranks,)


@pytest.mark.parametrize("name", ["pivotal", "st_topk"])
def test_without_k_there_is_none(name):
    asked = read(sample(operator=name, k=[]))
    assert asked.item.call.k is None and "k" not in asked.item.arrays
    assert numbers(asked, "tau") == [1.0, 1.0]
    assert read(sample(operator=name)).item.call.k == "rows"


def test_an_estimator_without_k_may_have_tau():
    assert numbers(read(sample(operator="st_topk", k=[], tau=[0.5])), "tau") == [0.5, 0.5]


def test_options_are_sorted_and_of_the_type_of_their_defaults():
    options = struct(steps=4, p=3, method="fast", fitted=False)
    asked = read(relax(operator="soft_topk", options=options))
    assert asked.item.call.options == '{"fitted": false, "method": "fast", "p": 3.0, "steps": 4}'
    some = read(relax(operator="soft_topk", options=struct(p=3)))
    assert some.item.call.options == '{"p": 3.0}'
    assert read(relax(operator="soft_topk", options=Struct())).item.call.options == "{}"


def test_a_draw_has_its_seed_samples_and_form():
    asked = read(sample(seed=2**64 - 1, num_samples=3, format=pb.MASK_FORMAT_INDICES))
    assert (asked.item.seed, asked.seed, asked.draws) == (2**64 - 1, 2**64 - 1, (3,))
    assert asked.item.call == Call("pi_st", "{}", 5, "float32", samples=3, form="indices")
    assert read(sample()).item.call.samples is None and read(sample()).draws == ()


def test_a_draw_without_a_seed_gets_one_and_says_which(monkeypatch):
    monkeypatch.setattr(module.secrets, "randbits", lambda bits: 2**bits - 5)
    item = sample()
    item.ClearField("seed")
    asked = read(item)
    assert asked.seed == asked.item.seed == 2**64 - 5
    assert read(sample(seed=0)).seed == 0, "0 is a seed like any other"


@pytest.mark.parametrize(
    ("number", "form"),
    [
        (pb.MASK_FORMAT_UNSPECIFIED, "bits"),
        (pb.MASK_FORMAT_BITS, "bits"),
        (pb.MASK_FORMAT_INDICES, "indices"),
        (pb.MASK_FORMAT_DENSE, "dense"),
    ],
)
def test_masks_travel_as_asked_and_relaxed_draws_as_they_are(number, form):
    assert read(sample(format=number)).item.call.form == form
    relaxed = {"operator": "gumbel_sigmoid", "format": number}
    assert read(sample(**relaxed)).item.call.form == "soft"
    assert read(sample(**relaxed, options=struct(hard=True))).item.call.form == form
    assert read(sample(**relaxed, options=struct(hard=False))).item.call.form == "soft"


def test_probabilities_of_a_design_and_diagnostics_are_there_if_asked_for():
    plain = read(sample(operator="pivotal")).item.call
    assert (plain.pi, plain.diagnostics) == (False, False)
    asked = read(sample(operator="pivotal", include_pi=True, diagnostics=True))
    assert asked.item.call == plain._replace(pi=True, diagnostics=True)
    assert read(relax(diagnostics=True)).item.call.diagnostics


@pytest.mark.parametrize("samples", [None, 3])
@pytest.mark.parametrize("value", [True, False])
def test_a_cotangent_is_pulled_back_with_the_value_or_without(samples, value):
    draws = () if samples is None else (samples,)
    cotangent = tensor(*draws, 2, 5)
    asked = read(sample(num_samples=samples, cotangent=cotangent), value=value)
    assert asked.item.call == Call(
        "pi_st",
        "{}",
        5,
        "float32",
        samples=samples,
        form="bits" if value else None,
        pulled="cotangent",
    )
    assert asked.item.arrays["cotangent"] == cotangent.data
    asked = read(relax(cotangent=tensor(2, 5)), value=value)
    assert (asked.item.call.form, asked.item.call.pulled) == (
        "soft" if value else None,
        "cotangent",
    )


@pytest.mark.parametrize("samples", [None, 3])
@pytest.mark.parametrize(
    ("baseline", "wanted"),
    [(None, None), ("given", "given"), (True, "leave_one_out"), (False, None)],
)
def test_losses_come_with_their_baseline(samples, baseline, wanted):
    shape = (2,) if samples is None else (samples, 2)
    values, given = tensor(*shape), to_tensor(np.full(shape, 7, "float32"))
    message = pb.Losses(values=values)
    if baseline == "given":
        message.given.CopyFrom(given)
    elif baseline is not None:
        message.leave_one_out = baseline
    item = sample(operator="score_function", num_samples=samples, losses=message)
    for value in (True, False):
        asked = read(item, value=value)
        assert (asked.item.call.pulled, asked.item.call.baseline) == ("losses", wanted)
        assert asked.item.arrays["losses"] == values.data
        assert asked.item.arrays.get("baseline") == (given.data if baseline == "given" else None)


@pytest.mark.parametrize(
    ("item", "value", "size"),
    [
        (relax(), True, 40),
        (relax(cotangent=tensor(2, 5)), True, 80),
        (relax(cotangent=tensor(2, 5)), False, 40),
        (relax(operator="sorted_soft_topk", k=[3.0]), True, 120),
        (sample(scores=tensor(2, 8)), True, 2),
        (sample(scores=tensor(2, 8), num_samples=100), True, 200),
        (sample(num_samples=3, format=pb.MASK_FORMAT_INDICES), True, 120),
        (sample(num_samples=3, format=pb.MASK_FORMAT_DENSE), True, 120),
        (sample(operator="gumbel_sigmoid", num_samples=3), True, 120),
        (sample(operator="pivotal", scores=tensor(2, 8), include_pi=True), True, 66),
        (sample(scores=tensor(2, 8), cotangent=tensor(2, 8)), True, 66),
        # the draw is made again, so it must be one that could have been asked for
        (
            sample(
                operator="score_function",
                scores=tensor(2, 8),
                num_samples=100,
                losses=losses(100, 2),
            ),
            False,
            264,
        ),
    ],
)
def test_a_result_too_large_to_send_is_refused_before_it_is_computed(item, value, size):
    read(item, value=value, max_bytes=size)
    must = f"must have a result of at most {size - 1} bytes; got one of {size}"
    check_refused(item, "", must, value, max_bytes=size - 1)


def test_a_result_of_any_size_is_refused_without_making_it():
    item = sample(scores=tensor(2, 5), num_samples=2**32 - 1)
    check_refused(
        item,
        "",
        f"must have a result of at most 1048576 bytes; got one of {int(2 * 5 * (2**32 - 1) / 8)}",
        value=True,
    )


def test_the_path_is_that_of_the_item():
    with pytest.raises(InvalidArgument, match=r"^items\[3\]\.k: must be one number") as caught:
        Reader(OPERATORS, None, 1).relax("items[3]", relax(k=[]), value=True)
    assert caught.value.field == "items[3].k"
