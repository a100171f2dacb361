"""Every operator gives a row the same bits alone, in a batch and in a chunk: value and gradients.

Of both paths, in every dtype, with samples and without, and for each choice of the operator's
options, at one thread of torch; the kernels may have more.
"""

from dataclasses import dataclass
from typing import Any

import pytest
import torch

import khot

CHOICES: dict[str, tuple[Any, ...]] = {
    "method": ("exact", "sinkhorn"),
    "p": (2.0, 4 / 3),
    "hard": (False, True),
    "flavour": ("simple", "f", "b"),
    "noise": ("sum_of_gamma", "gumbel"),
    "form": ("dft", "dynamic_programme"),
    "fitted": (False, True),
    "strength": (1.0, 10.0),
}


@dataclass(frozen=True)
class Case:
    """An operator, and one option that is not its default."""

    row: khot.Operator
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return "-".join(
            (
                self.row.name,
                *(
                    f"{name}={value:.4}" if isinstance(value, float) else f"{name}={value}"
                    for name, value in self.options
                ),
            )
        )


CASES = [
    Case(row, options)
    for row in khot.operators()
    if row.kind != "design"
    for options in (
        (),
        *(
            ((name, choice),)
            for name, default in row.options.items()
            for choice in CHOICES[name]
            if choice != default
        ),
    )
]


@pytest.fixture
def kernel_threads():
    khot.set_kernel_threads(3)
    yield
    khot.set_kernel_threads(None)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@dataclass(frozen=True)
class Call:
    """A call of `vjp`, of which some rows can be made alone."""

    case: Case
    scores: torch.Tensor
    k: Any
    tau: torch.Tensor
    samples: int | None
    how: dict[str, torch.Tensor]

    def of(self, rows: slice) -> khot.Gradients:
        row = self.case.row
        given = dict(self.case.options) | {row.tau_keyword: self.tau[rows]}
        if row.kind == "estimator":
            given |= {"seeds": khot.row_seeds(3, len(self.scores))[rows]}
            given |= {} if self.samples is None else {"num_samples": self.samples}
        k = self.k if row.one_k else self.k[rows]
        how = {name: value[self.drawn(rows)] for name, value in self.how.items()}
        return khot.vjp(row.name, self.scores[rows], k, **given, **how)

    def drawn(self, rows: slice) -> Any:
        """The index of these rows in what begins with the samples."""
        return rows if self.samples is None else (slice(None), rows)


def made(case: Case, rows: int, n: int, dtype: torch.dtype, samples: int | None) -> Call:
    k = getattr(case.row, "only_k", None) or n // 5
    x = normal(rows, n) * torch.linspace(0.5, 20, rows, dtype=torch.float64).unsqueeze(-1)
    x[1::2, ::3] = -torch.inf
    first = (rows,) if samples is None else (samples, rows)
    how = {"cotangent": normal(*first, n, *((k,) if getattr(case.row, "ranked", False) else ()))}
    if getattr(case.row, "needs_loss", False):
        how = {"losses": normal(*first)}
    how = {name: value.to(dtype) for name, value in how.items()}
    ks = k if case.row.one_k else torch.full((rows,), float(k), dtype=torch.float64)
    return Call(case, x.to(dtype), ks, torch.linspace(0.5, 2, rows).double(), samples, how)


def assert_rows_are_the_same_alone(call: Call, cuts: list[slice]) -> None:
    whole = call.of(slice(None))
    for cut in cuts:
        part = call.of(cut)
        for name, index in (("value", call.drawn(cut)), ("scores", cut), ("k", cut), ("tau", cut)):
            got, wanted = getattr(part, name), getattr(whole, name)
            assert got is None or torch.equal(got, wanted[index]), (name, cut)


F16, F32, F64 = torch.float16, torch.float32, torch.float64
# in each dtype, and an estimator drawing once and three times; an option in those of the kernels
KINDS = {
    ("relaxation", False): ((F16, None), (F32, None), (F64, None)),
    ("relaxation", True): ((F32, None), (F64, None)),
    ("estimator", False): ((F16, None), (F32, None), (F32, 3), (F64, 3)),
    ("estimator", True): ((F32, None), (F64, 3)),
}
# a relaxation without a kernel goes one way, the usual one
USUAL = "native" if khot.native_info().in_use else "torch"
CALLS = [
    pytest.param(case, dtype, samples, path, id=f"{case}-{str(dtype)[6:]}-{samples}-{path}")
    for case in CASES
    for dtype, samples in KINDS[case.row.kind, bool(case.options)]
    for path in ("native", "torch")
    if path == USUAL or case.row.native or case.row.kind == "estimator"
]


@pytest.mark.usefixtures("path", "one_thread", "kernel_threads")
@pytest.mark.parametrize(("case", "dtype", "samples", "path"), CALLS, indirect=["path"])
def test_a_row_has_the_same_bits_alone_in_a_batch_and_in_a_chunk(case, dtype, samples):
    cuts = [slice(0, 1), slice(3, 4), slice(1, 7)]
    for n in (5, 67):
        assert_rows_are_the_same_alone(made(case, 7, n, dtype, samples), cuts)


@pytest.mark.usefixtures("one_thread", "kernel_threads")
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.row.native and not case.options], ids=str
)
def test_so_have_rows_that_the_kernels_share_out_over_threads(case):
    if not khot.native_info().in_use:
        pytest.skip(f"needs the C kernels: {khot.native_info().reason}")
    call = made(case, 41, 1001, torch.float32, None)
    assert_rows_are_the_same_alone(call, [slice(0, 1), slice(20, 21), slice(13, 41)])
