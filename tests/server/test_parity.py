"""Every operator over the wire is the library, bit for bit: alone, among strangers, in chunks.

The test walks the registry, so that an operator that is added is served as it is, or fails here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from processes import Server, stopped_engine, wait_until

import khot
from khot.sampling import precise
from khot_client.packing import unpack
from khot_proto import from_tensor, to_tensor
from khot_proto.v1 import khot_service_pb2 as pb

pytestmark = pytest.mark.usefixtures("one_thread")

N = 24
BATCH_ELEMENTS = 20 * N
ROWS = 50  # three chunks
STRANGERS = 50
OPERATORS = khot.operators()
DIFFERENTIABLE = [row for row in OPERATORS if row.kind != "design"]
DTYPES = ("float32", "float64", "float16")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose batches are so small that a test's items need several."""
    flags = ("--max-batch-elements", str(BATCH_ELEMENTS), "--engine-silence-s", "100")
    running = Server(tmp_path_factory.mktemp("state"), *flags).wait_until_serving()
    try:
        yield running
        assert running.stop() == 0
    finally:
        running.end()


@dataclass(frozen=True)
class Case:
    """One item, of which the library is asked, and the service."""

    row: khot.Operator
    x: torch.Tensor
    k: torch.Tensor | int
    tau: torch.Tensor
    seed: int = 11
    samples: int | None = None
    format: int = pb.MASK_FORMAT_BITS
    options: dict = field(default_factory=dict)

    @property
    def relaxed(self) -> bool:
        hard = self.options.get("hard", getattr(self.row, "hard", True))
        return self.row.kind == "estimator" and not hard

    @property
    def drawn(self) -> dict:
        if self.row.kind == "relaxation":
            return {}
        seeds = khot.row_seeds(self.seed, len(self.x))
        return {"num_samples": self.samples, "seeds": seeds}

    @property
    def keywords(self) -> dict:
        name = getattr(self.row, "tau_keyword", "tau")
        return {name: self.tau, **self.options}

    def value(self) -> torch.Tensor:
        if self.row.kind == "design":
            pi = khot.sigmoid_topk(precise(self.x), self.k, tau=self.tau)
            return self.row.function(pi, **self.drawn, **self.options)
        return self.row.function(self.x, self.k, **self.keywords, **self.drawn)

    def cotangent(self) -> torch.Tensor:
        shape = self.value().shape
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randn(shape, generator=generator).to(self.x.dtype)

    def gradients(self, **pulled) -> khot.Gradients:
        drawn = self.drawn
        seeds = drawn.pop("seeds", None)
        return khot.vjp(self.row.name, self.x, self.k, seeds, **pulled, **drawn, **self.keywords)

    def item(self, **fields) -> pb.RelaxItem | pb.SampleItem:
        k = [float(self.k)] if isinstance(self.k, int) else self.k.tolist()
        common = {"operator": self.row.name, "scores": to_tensor(self.x.numpy()), "k": k}
        common |= {"tau": self.tau.tolist(), **fields}
        if self.row.kind == "relaxation":
            item = pb.RelaxItem(**common)
        else:
            common |= {"seed": self.seed, "format": self.format}
            item = pb.SampleItem(num_samples=self.samples, **common)
        if self.options:
            item.options.update(self.options)
        return item


def case(row: khot.Operator, seed: int, rows: int, dtype: str = "float32", **fields) -> Case:
    generator = torch.Generator().manual_seed(seed)
    x = (3 * torch.randn(rows, N, generator=generator)).to(getattr(torch, dtype))
    x[0, 3] = -torch.inf
    if row.one_k:
        k = 3
    elif getattr(row, "only_k", None):
        k = torch.ones(rows, dtype=torch.float64)
    else:
        k = torch.randint(1, N - 1, (rows,), generator=generator).double()
    tau = 0.5 + torch.rand(rows, generator=generator, dtype=torch.float64)
    return Case(row, x, k, tau, seed, **fields)


def call(server: Server, item, *, vjp: bool = False):
    """The future of one item's answer."""
    if isinstance(item, pb.RelaxItem):
        if vjp:
            return server.khot.RelaxVjp.future(pb.RelaxVjpRequest(items=[item]), timeout=60)
        return server.khot.Relax.future(pb.RelaxRequest(items=[item]), timeout=60)
    if vjp:
        return server.khot.SampleVjp.future(pb.SampleVjpRequest(items=[item]), timeout=60)
    return server.khot.Sample.future(pb.SampleRequest(items=[item]), timeout=60)


def only(future):
    (result,) = future.result().results
    assert result.status.code == 0, result.status.message
    return result


def mask(result: pb.SampleResult) -> np.ndarray:
    shape = tuple(result.mask.shape)
    match result.mask.WhichOneof("form"):
        case "bits":
            return unpack(shape, result.mask.bits)
        case "dense":
            return from_tensor(result.mask.dense)
        case "indices":
            dense = np.zeros(shape, bool).reshape(-1, shape[-1])
            counts = np.array(result.mask.indices.counts)
            rows = np.repeat(np.arange(len(dense)), counts)
            dense[rows, from_tensor(result.mask.indices.units)] = True
            return dense.reshape(shape)
    raise AssertionError("no mask")


def same(got: np.ndarray, expected: torch.Tensor) -> None:
    """Bit for bit; NaN would be a fault of its own."""
    wanted = expected.detach().numpy()
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    np.testing.assert_array_equal(got, wanted)
    assert got.tobytes() == wanted.tobytes()


def check_value(result, asked: Case) -> None:
    expected = asked.value()
    if isinstance(result, pb.RelaxResult):
        same(from_tensor(result.soft), expected)
    elif asked.relaxed:
        same(from_tensor(result.relaxed), expected)
    else:
        got = mask(result)
        assert result.seed == asked.seed and got.shape == tuple(expected.shape)
        np.testing.assert_array_equal(got.astype(bool), expected.numpy() != 0)


def check_gradients(result, gradients: khot.Gradients, rows: int) -> None:
    same(from_tensor(result.gradients.scores), gradients.scores)
    for got, expected in (
        (result.gradients.k, gradients.k),
        (result.gradients.tau, gradients.tau),
    ):
        assert len(got) == (0 if expected is None else rows)
        if expected is not None:
            assert list(got) == expected.tolist()


def pulled(asked: Case) -> tuple[dict, dict]:
    """What to pull back, for the library and for the service."""
    if getattr(asked.row, "needs_loss", False):
        losses = asked.cotangent().sum(-1)
        return {"losses": losses}, {"losses": pb.Losses(values=to_tensor(losses.numpy()))}
    g = asked.cotangent()
    return {"cotangent": g}, {"cotangent": to_tensor(g.numpy())}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row", OPERATORS, ids=lambda row: row.name)
def test_values_alone_and_in_chunks(server, row, dtype):
    for seed, rows in ((1, 3), (2, ROWS)):
        asked = case(row, seed, rows, dtype)
        result = only(call(server, asked.item()))
        check_value(result, asked)
        assert result.timing.batch_rows <= BATCH_ELEMENTS // N
        assert result.algorithm


@pytest.mark.parametrize("row", OPERATORS, ids=lambda row: row.name)
def test_values_among_strangers(server, row):
    cases = [case(row, seed, 1 + seed % 4) for seed in range(1, STRANGERS + 2)]
    with stopped_engine(server):
        futures = [call(server, asked.item()) for asked in cases]
        method = "Relax" if row.kind == "relaxation" else "Sample"
        wait_until(lambda: server.in_flight(method) == len(cases), "them to meet")
    results = [only(future) for future in futures]
    for result, asked in zip(results, cases, strict=True):
        check_value(result, asked)
    assert max(result.timing.batch_rows for result in results) > 4


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=lambda row: row.name)
def test_gradients_alone_and_in_chunks(server, row, dtype):
    for seed, rows in ((1, 3), (2, ROWS)):
        asked = case(row, seed, rows, dtype)
        here, there = pulled(asked)
        gradients = asked.gradients(**here)
        only_gradients = only(call(server, asked.item(**there), vjp=True))
        check_gradients(only_gradients, gradients, rows)
        assert not only_gradients.HasField("soft" if row.kind == "relaxation" else "mask")
        both = only(call(server, asked.item(**there)))
        check_gradients(both, gradients, rows)
        check_value(both, asked)


@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=lambda row: row.name)
def test_gradients_among_strangers(server, row):
    cases = [case(row, seed, 1 + seed % 4) for seed in range(1, STRANGERS + 2)]
    given = [pulled(asked) for asked in cases]
    futures = [
        call(server, asked.item(**there), vjp=True)
        for asked, (_, there) in zip(cases, given, strict=True)
    ]
    for future, asked, (here, _) in zip(futures, cases, given, strict=True):
        check_gradients(only(future), asked.gradients(**here), len(asked.x))


@pytest.mark.parametrize("row", khot.operators("design"), ids=lambda row: row.name)
@pytest.mark.parametrize("form", pb.MaskFormat.keys())
def test_several_draws_in_every_format(server, row, form):
    for rows in (2, ROWS):
        asked = case(row, 5, rows, samples=3, format=pb.MaskFormat.Value(form))
        check_value(only(call(server, asked.item())), asked)


@pytest.mark.parametrize("row", khot.operators("estimator"), ids=lambda row: row.name)
def test_several_draws_and_their_gradients(server, row):
    for rows in (2, ROWS):
        asked = case(row, 6, rows, samples=3)
        here, there = pulled(asked)
        result = only(call(server, asked.item(**there)))
        check_value(result, asked)
        check_gradients(result, asked.gradients(**here), rows)


OTHERS = {
    "method": "sinkhorn",
    "flavour": "f",
    "noise": "gumbel",
    "form": "dynamic_programme",
    "p": 4 / 3,
}


def other(name: str, default: bool | float | str) -> bool | float | str:
    """Another value than the default."""
    if isinstance(default, bool):
        return not default
    return OTHERS[name] if name in OTHERS else default + 1


@pytest.mark.parametrize(
    ("row", "name"),
    [pytest.param(row, name, id=f"{row.name}-{name}") for row in OPERATORS for name in row.options],
)
def test_options_reach_the_operator(server, row, name):
    asked = case(row, 7, 3, options={name: other(name, row.options[name])})
    check_value(only(call(server, asked.item())), asked)


@pytest.mark.parametrize("baseline", ["given", "leave_one_out"])
def test_baselines(server, baseline):
    for rows in (2, ROWS):
        asked = case(khot.operator("score_function"), 8, rows, samples=3)
        losses = asked.cotangent().sum(-1)
        given = losses.mean(-1, keepdim=True).expand_as(losses).contiguous()
        here = given if baseline == "given" else baseline
        there = {"given": to_tensor(given.numpy())} if baseline == "given" else {baseline: True}
        sent = pb.Losses(values=to_tensor(losses.numpy()), **there)
        result = only(call(server, asked.item(losses=sent), vjp=True))
        check_gradients(result, asked.gradients(losses=losses, baseline=here), rows)


def test_one_row_without_a_dimension(server):
    asked = case(khot.operator("pi_st"), 9, 1)
    x, k, tau = asked.x[0].contiguous(), asked.k[0], asked.tau[0]
    item = replace(asked, x=x, k=asked.k, tau=asked.tau).item()
    result = only(call(server, item))
    seeds = khot.row_seeds(asked.seed, 1)[0]
    expected = khot.pi_st(x, k, tau=tau, seeds=seeds)
    assert tuple(result.mask.shape) == (N,)
    np.testing.assert_array_equal(mask(result), expected.numpy() != 0)


@pytest.mark.parametrize("rows", [2, ROWS])
def test_pi_and_diagnostics(server, rows):
    asked = case(khot.operator("pivotal"), 10, rows)
    result = only(call(server, asked.item(include_pi=True, diagnostics=True)))
    pi, diagnostics = khot.sigmoid_topk_with_diagnostics(asked.x, asked.k, tau=asked.tau)
    same(from_tensor(result.pi), pi)
    assert list(result.diagnostics.iterations) == diagnostics.iterations.tolist()
    assert list(result.diagnostics.residual) == diagnostics.residual.tolist()


@pytest.mark.parametrize("samples", [None, 3])
def test_diagnostics_of_relaxed_samples_are_of_the_hardest_of_each_row(server, samples):
    asked = case(khot.operator("gumbel_sigmoid"), 11, ROWS, samples=samples)
    result = only(call(server, asked.item(diagnostics=True)))
    _, diagnostics = khot.gumbel_sigmoid_with_diagnostics(
        asked.x, asked.k, tau=asked.tau, **asked.drawn
    )
    wanted = diagnostics if samples is None else diagnostics.hardest()
    assert list(result.diagnostics.iterations) == wanted.iterations.tolist()
    assert list(result.diagnostics.residual) == wanted.residual.tolist()


def test_scores_that_are_probabilities(server):
    pi = khot.sigmoid_topk(torch.randn(3, N, generator=torch.Generator().manual_seed(0)), 4)
    item = pb.SampleItem(operator="pivotal", scores=to_tensor(pi.numpy()), seed=3)
    expected = khot.pivotal(pi, seeds=khot.row_seeds(3, 3))
    np.testing.assert_array_equal(mask(only(call(server, item))), expected.numpy() != 0)


def test_a_k_that_is_learned(server):
    x = torch.randn(3, N, generator=torch.Generator().manual_seed(0))
    item = pb.SampleItem(operator="pi_st_implicit", scores=to_tensor(x.numpy()), seed=3)
    expected = khot.pi_st_implicit(x, seeds=khot.row_seeds(3, 3))
    np.testing.assert_array_equal(mask(only(call(server, item))), expected.numpy() != 0)


def test_a_stream_gives_the_same(server):
    cases = [case(row, 12, 2) for row in OPERATORS]
    requests = []
    for number, asked in enumerate(cases):
        item = asked.item()
        kind = "relax" if isinstance(item, pb.RelaxItem) else "sample"
        message = pb.RelaxRequest if kind == "relax" else pb.SampleRequest
        requests.append(pb.StreamRequest(id=number, **{kind: message(items=[item])}))
    answers = {answer.id: answer for answer in server.khot.Stream(iter(requests), timeout=60)}
    assert sorted(answers) == list(range(len(cases)))
    for number, asked in enumerate(cases):
        answer = answers[number]
        (result,) = getattr(answer, answer.WhichOneof("answer")).results
        check_value(result, asked)
