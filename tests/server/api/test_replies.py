"""Replies: what an engine left in memory is what the parsed message holds, in chunks or whole."""

from typing import Any

import numpy as np
import pytest
from google.rpc import code_pb2, error_details_pb2

from khot_proto import to_tensor
from khot_proto.v1 import khot_service_pb2 as pb
from khot_server.api.items import Asked
from khot_server.api.replies import ItemReply, RefusedReply
from khot_server.batching.work import Entry, Item
from khot_server.errors import EngineDied, InvalidArgument
from khot_server.messages import Call, Layout, unit_dtype

ROWS, N = 5, 11
DRAWN = ("soft", "bits", "counts", "units", "dense")
WHOLE = ((0, ROWS),)
FIRST, SECOND, THIRD = (0, 2), (2, 2), (4, 1)
ORDERS = [WHOLE, (FIRST, SECOND, THIRD), (THIRD, SECOND, FIRST), (SECOND, THIRD, FIRST)]


def ignore(entry: Entry, outcome: object) -> None:
    del entry, outcome


class Outcome:
    """Some rows of a result, in memory that is used again."""

    def __init__(self, result: "Result", first: int, rows: int, refusal: str | None = None) -> None:
        self.refusal = refusal
        self.algorithm, self.roots, self.gradients = "torch", result.roots, result.gradients
        self.queue_ns, self.batch_ns = 100 + first, 20 + first
        self.compute_ns, self.batch_rows = 3 + first, 50 - first
        self.memory = {name: bytearray(result.of_rows(name, first, rows)) for name in result.arrays}

    def read(self, name: str) -> memoryview:
        return memoryview(self.memory[name])

    def forget(self) -> None:
        for data in self.memory.values():
            data[:] = b"\xff" * len(data)


class Result:
    """The whole result of a call for some rows: numbers that differ, and masks with any k.

    Attributes:
        arrays: as in the item, (samples, rows, ...) or (rows, ...).
        roots: whether there are iterations and residuals.
        gradients: which of k and tau have one.
    """

    def __init__(
        self,
        call: Call,
        rows: int = ROWS,
        roots: bool = False,
        gradients: tuple[str, ...] = (),
    ) -> None:
        self.call, self.rows, self.roots, self.gradients = call, rows, roots, gradients
        draw = np.random.default_rng(0)
        draws = () if call.samples is None else (call.samples,)
        ranks = () if call.ranks is None else (call.ranks,)
        like = {
            name: draw.normal(size=(rows, call.n)).astype(call.dtype) for name in ("pi", "gradient")
        }
        self.mask = draw.random((*draws, rows, call.n)) < draw.random((*draws, rows, 1))
        everything = {
            "soft": draw.normal(size=(*draws, rows, call.n, *ranks)).astype(call.dtype),
            "bits": np.packbits(self.mask, axis=-1, bitorder="little"),
            "counts": self.mask.sum(-1, dtype="int32"),
            "dense": self.mask.astype(call.dtype),
            "units": self.mask,  # only `of_rows` knows how they lie
            **like,
            "gradient_k": draw.normal(size=rows),
            "gradient_tau": draw.normal(size=rows),
            "iterations": draw.integers(0, 9, rows, "int32"),
            "residual": draw.normal(size=rows),
        }
        layout = Layout(call, rows, 1)
        self.arrays = {name: array for name, array in everything.items() if name in layout}

    def of_rows(self, name: str, first: int, rows: int) -> bytes:
        """These rows of an array as the engine writes them."""
        array, of_rows = self.arrays[name], slice(first, first + rows)
        drawn = name in DRAWN and self.call.samples is not None
        part = array[:, of_rows] if drawn else array[of_rows]
        if name != "units":
            return part.tobytes()
        dtype = unit_dtype(self.call.n)
        units = part.nonzero()[-1].astype(dtype)
        unused = np.full(part.size - units.size, 9, dtype)
        return units.tobytes() + unused.tobytes()

    def asked(self) -> Asked:
        call = self.call
        return Asked(
            Item(call, self.rows, {}),
            to_tensor(np.empty(0, call.dtype)).dtype,
            (self.rows, call.n),
            () if call.samples is None else (call.samples,),
            () if call.ranks is None else (call.ranks,),
            None if call.operator == "relaxation" else 77,
        )

    def message(self, **timing: int) -> Any:
        """The result as protobuf itself would write it."""
        call, arrays = self.call, self.arrays
        relaxes = call.operator == "relaxation"
        expected: Any = pb.RelaxResult() if relaxes else pb.SampleResult(seed=77)
        expected.algorithm = "torch"
        expected.timing.CopyFrom(pb.Timing(**timing))
        if call.form == "soft":
            soft = expected.soft if relaxes else expected.relaxed
            soft.CopyFrom(
                to_tensor(arrays.get("soft", np.empty((self.rows, call.n, 0), call.dtype)))
            )
        elif call.form is not None:
            expected.mask.shape.extend(self.mask.shape)
        if call.form == "bits":
            expected.mask.bits = arrays["bits"].tobytes()
        elif call.form == "dense":
            expected.mask.dense.CopyFrom(to_tensor(arrays["dense"]))
        elif call.form == "indices":
            indices = expected.mask.indices
            indices.counts.extend(arrays["counts"].ravel().tolist())
            units = self.mask.nonzero()[-1].astype(unit_dtype(call.n))
            indices.units.CopyFrom(to_tensor(units))
        if call.pi:
            expected.pi.CopyFrom(to_tensor(arrays["pi"]))
        if call.pulled:
            expected.gradients.scores.CopyFrom(to_tensor(arrays["gradient"]))
            for name in self.gradients:
                getattr(expected.gradients, name).extend(arrays[f"gradient_{name}"].tolist())
        if call.diagnostics and self.roots:
            expected.diagnostics.iterations.extend(arrays["iterations"].tolist())
            expected.diagnostics.residual.extend(arrays["residual"].tolist())
        return expected


def reply(result: Result, order: Any, **refusals: str) -> list[Any]:
    """The parts of the reply, when chunks come back in this order."""
    asked = result.asked()
    item = ItemReply("items[3]", asked, len(order))
    for number, (first, rows) in enumerate(order, start=1):
        outcome = Outcome(result, first, rows, refusals.get(f"at_{first}"))
        last = item.add(Entry(asked.item, ignore, first=first, rows=rows), outcome)
        assert last == (number == len(order))
        if len(order) > 1:
            outcome.forget()
    return item.parts()


def check(result: Result, order: Any) -> None:
    expected = result.message(
        queue_ns=100,
        batch_ns=sum(20 + first for first, _ in order),
        compute_ns=sum(3 + first for first, _ in order),
        batch_rows=50,
    )
    assert type(expected).FromString(b"".join(reply(result, order))) == expected


ids = {"ids": lambda order: " ".join(str(first) for first, _ in order)}


@pytest.mark.parametrize("order", ORDERS, **ids)
@pytest.mark.parametrize("ranks", [None, 0, 1, 3])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_soft_rows_come_back(order, ranks, dtype):
    check(Result(Call("relaxation", "{}", N, dtype, ranks=ranks)), order)


@pytest.mark.parametrize("order", ORDERS, **ids)
@pytest.mark.parametrize("samples", [None, 1, 4])
@pytest.mark.parametrize("form", ["bits", "indices", "dense", "soft"])
def test_draws_come_back_draw_by_draw(order, samples, form):
    check(Result(Call("design", "{}", N, "float32", samples=samples, form=form)), order)


@pytest.mark.parametrize("order", [((0, 2),), ((0, 1), (1, 1)), ((1, 1), (0, 1))], **ids)
def test_many_units_have_wider_numbers(order):
    call = Call("design", "{}", 65537, "float32", samples=2, form="indices")
    rows = sum(count for _, count in order)
    check(Result(call, rows), order)


@pytest.mark.parametrize("order", ORDERS, **ids)
@pytest.mark.parametrize("gradients", [(), ("k",), ("tau",), ("k", "tau")], ids=str)
@pytest.mark.parametrize(
    "call",
    [
        Call("relaxation", "{}", N, "float32", pulled="cotangent"),
        Call("relaxation", "{}", N, "float64", form=None, pulled="cotangent"),
        Call("estimator", "{}", N, "float32", samples=3, form="bits", pulled="cotangent"),
        Call("estimator", "{}", N, "float32", samples=3, form=None, pulled="losses"),
    ],
    ids=["relax", "relax_vjp", "sample", "sample_vjp"],
)
def test_gradients_come_with_the_value_or_alone(order, gradients, call):
    check(Result(call, gradients=gradients), order)


@pytest.mark.parametrize("order", ORDERS, **ids)
@pytest.mark.parametrize("samples", [None, 4])
def test_probabilities_are_of_rows_and_not_of_draws(order, samples):
    call = Call("design", "{}", N, "float32", samples=samples, form="indices", pi=True)
    check(Result(call), order)


@pytest.mark.parametrize("order", ORDERS, **ids)
@pytest.mark.parametrize("asked", [False, True], ids=["not asked for", "asked for"])
@pytest.mark.parametrize("roots", [False, True], ids=["no roots", "roots"])
def test_diagnostics_are_there_if_asked_for_and_found(order, asked, roots):
    check(Result(Call("relaxation", "{}", N, "float32", diagnostics=asked), roots=roots), order)
    call = Call("design", "{}", N, "float32", samples=2, form="bits", diagnostics=asked)
    check(Result(call, roots=roots), order)


def test_a_vector_comes_back_as_one():
    result = Result(Call("relaxation", "{}", N, "float32"), rows=1)
    asked = Asked(Item(result.call, 1, {}), result.asked().dtype, (N,))
    item = ItemReply("items[0]", asked, 1)
    item.add(Entry(asked.item, ignore), Outcome(result, 0, 1))
    parsed = pb.RelaxResult.FromString(b"".join(item.parts()))
    assert list(parsed.soft.shape) == [N]
    assert parsed.soft.data == result.arrays["soft"].tobytes()


def test_the_memory_of_the_slot_is_itself_a_part_where_there_is_one_chunk():
    result = Result(Call("relaxation", "{}", N, "float32"))
    asked, outcome = result.asked(), Outcome(result, 0, ROWS)
    item = ItemReply("items[0]", asked, 1)
    item.add(Entry(asked.item, ignore), outcome)
    last = item.parts()[-1]
    assert isinstance(last, memoryview) and last.obj is outcome.memory["soft"]


@pytest.mark.parametrize("order", ORDERS, **ids)
@pytest.mark.parametrize("kind", ["relaxation", "design"])
def test_a_refused_chunk_refuses_the_item(order, kind):
    result = Result(Call(kind, "{}", N, "float32", samples=2 if kind == "design" else None))
    refused = order[len(order) // 2][0]
    raw = b"".join(reply(result, order, **{f"at_{refused}": "x must be finite; got NaN"}))
    message: Any = pb.RelaxResult if kind == "relaxation" else pb.SampleResult
    parsed = message.FromString(raw)
    assert [field.name for field, _ in parsed.ListFields()] == ["status"]
    check_status(parsed.status, "items[3]", "items[3]: x must be finite; got NaN")


def check_status(status: pb.ItemStatus, field: str, text: str) -> None:
    assert (status.code, status.message) == (code_pb2.INVALID_ARGUMENT, text)
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    assert status.details[0].Unpack(info) and info.reason == "INVALID_ARGUMENT"
    assert status.details[1].Unpack(bad)
    (violation,) = bad.field_violations
    assert (violation.field, violation.description) == (field, text)


def test_an_item_refused_before_it_was_queued_has_a_status_alone():
    error = InvalidArgument("items[0].k", "items[0].k: must be one number; got 3")
    raw = b"".join(RefusedReply(error).parts())
    for message in (pb.RelaxResult, pb.SampleResult):
        parsed = message.FromString(raw)
        assert [field.name for field, _ in parsed.ListFields()] == ["status"]
        check_status(parsed.status, "items[0].k", str(error))
    other = pb.RelaxResult.FromString(b"".join(RefusedReply(EngineDied("engine: died")).parts()))
    assert other.status.code == code_pb2.UNAVAILABLE
