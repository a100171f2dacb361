"""One table of what is refused, for every operator of the registry and in every mode.

A case replaces one argument of a good call, and goes to every operator with that argument.
`{scores}` and `{tau}` in a message are what the operator calls its scores and temperature.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch

import khot

pytestmark = pytest.mark.usefixtures("path")

INF, NAN = torch.inf, torch.nan
SOFT = ("relaxation", "estimator")
HARD = ("design", "estimator")
ALL = ("relaxation", "design", "estimator")


@dataclass(frozen=True)
class Case:
    """A bad value of one argument, and what is said of it.

    Attributes:
        argument: scores, tau, or the name of a keyword.
        only_values: nothing but the values shows it, so torch.compile cannot.
    """

    argument: str
    value: Any
    error: type[Exception]
    message: str
    kinds: tuple[str, ...] = ALL
    only_values: bool = False


NOT_FINITE = r"{scores} must hold finite numbers or -inf; got NaN or \+inf in 1 of 1 rows"
OUTSIDE = r"pi must be in \[0, 1\]; got another value in 1 of 1 rows"
MASKED = "k = 2 for n = 1"
BAD_TAU = "{tau} must be finite and above 0; got "
NO_ROWS = r"must broadcast to the rows, shape \(\); got shape \(2,\)"


def values(scores: list[float]) -> torch.Tensor:
    return torch.tensor(scores)


TABLE = {
    "a list": Case("scores", [1.0, 2.0], TypeError, "{scores} must be a torch.Tensor; got list"),
    "integers": Case("scores", torch.arange(3), TypeError, "{scores} must be one of .*; got int64"),
    "a scalar": Case("scores", torch.tensor(1.0), ValueError, "at least one dimension; got a"),
    "no units": Case("scores", torch.empty(2, 0), ValueError, "at least one entry along dim; got"),
    "NaN": Case("scores", values([1, 0, NAN]), ValueError, NOT_FINITE, SOFT, True),
    "+inf": Case("scores", values([1, 0, INF]), ValueError, NOT_FINITE, SOFT, True),
    "masked": Case("scores", values([1, -INF, -INF]), ValueError, MASKED, SOFT, True),
    "pi NaN": Case("scores", values([1, 0, NAN]), ValueError, OUTSIDE, ("design",)),
    "pi -inf": Case("scores", values([1, 0, -INF]), ValueError, OUTSIDE, ("design",)),
    "pi below 0": Case("scores", values([1, 0.1, -0.1]), ValueError, OUTSIDE, ("design",)),
    "pi above 1": Case("scores", values([1.5, 0.5, 0]), ValueError, OUTSIDE, ("design",)),
    "no such dim": Case("dim", 1, ValueError, r"dim must be in \[-1, 0\] for 1 dimensions; got 1"),
    "a dim that is no number": Case("dim", "1", TypeError, "dim must be an integer; got str"),
    "k < 0": Case("k", -1, ValueError, r"k must be in \[0, n\].*; got k = -1 for n = 3", ALL, True),
    "k > n": Case("k", 4, ValueError, r"k must be in \[0, n\].*; got k = 4 for n = 3", ALL, True),
    "k NaN": Case("k", NAN, ValueError, "k must be .*; got .*nan"),
    "k no float": Case("k", 10**400, ValueError, "k must be within the range of a float; got an"),
    "k a bool": Case("k", True, TypeError, "k must be .*; got bool"),
    "k a string": Case("k", "2", TypeError, "k must be .*; got str"),
    "k complex": Case("k", torch.tensor(1j), TypeError, "k must be .*; got (complex64|Tensor)"),
    "k of more rows": Case("k", torch.ones(2), (ValueError, TypeError), f"{NO_ROWS}|got Tensor"),
    "tau = 0": Case("tau", 0, ValueError, BAD_TAU + "0", SOFT, True),
    "tau < 0": Case("tau", -1.0, ValueError, BAD_TAU + "-1", SOFT, True),
    "tau inf": Case("tau", INF, ValueError, BAD_TAU + "inf", SOFT, True),
    "tau NaN": Case("tau", NAN, ValueError, BAD_TAU + "nan", SOFT, True),
    "tau no float": Case("tau", 10**400, ValueError, "{tau} must be within the range of a float"),
    "tau a string": Case("tau", "1", TypeError, "{tau} must be a number or a tensor; got str"),
    "tau a bool": Case("tau", True, TypeError, "{tau} must be a number or a tensor; got bool"),
    "tau of more rows": Case("tau", torch.ones(2), ValueError, "{tau} " + NO_ROWS),
    "a seed": Case("seeds", 1, TypeError, "seeds must be a torch.Tensor; got int"),
    "float seeds": Case("seeds", torch.ones(()), TypeError, "seeds must be int64; got float32"),
    "more seeds": Case("seeds", torch.arange(2), ValueError, "seeds " + NO_ROWS),
    "samples < 0": Case("num_samples", -1, ValueError, "num_samples must be .*; got -1"),
    "samples a float": Case("num_samples", 1.5, TypeError, "num_samples must be .*; got float"),
}


def call(row: khot.Operator, case: Case) -> tuple[Callable[..., Any], torch.Tensor] | None:
    """The operator with all but its scores given, and the scores; None if the case is not its."""
    tau = getattr(row, "tau_keyword", "tau")
    name = {"tau": tau}.get(case.argument, case.argument)
    if row.kind not in case.kinds or name not in {
        "scores",
        *inspect.signature(row.function).parameters,
    }:
        return None
    scores = torch.tensor([2.0, 1.0, 0.5])
    if row.kind == "design":
        scores = scores if case.argument == "k" else torch.tensor([0.5, 0.5, 1.0])
    only = getattr(row, "only_k", None)
    if only and case.message == MASKED:
        return None  # one unit is left, which is enough
    given = {} if row.kind == "design" else {"k": only or 2}
    if name == "scores":
        return partial(row.function, **given), case.value
    return partial(row.function, **given | {name: case.value}), scores


def message(row: khot.Operator, case: Case) -> str:
    scores = {"relaxation": "x", "estimator": "logits", "design": "pi"}[row.kind]
    tau = getattr(row, "tau_keyword", "tau")
    said = case.message.replace("{scores}", scores).replace("{tau}", tau)
    if case.argument == "k" and (only := getattr(row, "only_k", None)):
        said = f"k must be {only}; got|{said}"
    return f"^{row.name}: .*({said})"


# an operator without a kernel goes one way, the usual one
USUAL = "native" if khot.native_info().in_use else "torch"
PAIRS = [
    pytest.param(row, case, path, id=f"{row.name}-{name}-{path}")
    for row in khot.operators()
    for name, case in TABLE.items()
    if call(row, case) is not None
    for path in (("native", "torch") if row.native else (USUAL,))
]
RELAXATIONS = pytest.mark.parametrize("row", khot.operators("relaxation"), ids=lambda row: row.name)
OF_VALUES = {name: case for name, case in TABLE.items() if case.only_values}


@pytest.mark.parametrize(("row", "case", "path"), PAIRS, indirect=["path"])
def test_refused(row, case):
    function, scores = call(row, case)
    with pytest.raises(case.error, match=message(row, case)):
        function(scores)


@RELAXATIONS
def test_values_are_refused_when_compiled_and_mapped(row, path):
    """Those of tensors, which one graph serves; k is one where the rows may have their own."""
    if path != USUAL:
        return  # what is compiled does not depend on the path

    def function(x, k, tau):
        return row.function(x, k, **{row.tau_keyword: tau})

    torch._dynamo.reset()  # one code object for all rows
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=False)
    for name, case in OF_VALUES.items():
        if row.one_k and name == "k < 0":
            continue  # each number is a graph of its own: k > n will do
        given = {"scores": values([2.0, 1.0, 0.5]), "k": 2, "tau": 1.0}
        x, k, tau = (given | {case.argument: case.value}).values()
        k, tau = k if row.one_k else torch.tensor(float(k)), torch.tensor(float(tau))
        with pytest.raises(case.error, match=message(row, case)):
            compiled(x, k, tau)
        with pytest.raises(case.error, match=f"^{row.name}: "):
            torch.func.vmap(function, in_dims=(0, None, None))(torch.stack([x, x]), k, tau)


@pytest.mark.parametrize("case", ["k > n", "tau < 0"])
def test_numbers_are_refused_when_compiled(case, path):
    if path != USUAL:
        return  # what is compiled does not depend on the path
    row = khot.operator("sigmoid_topk")
    function, scores = call(row, TABLE[case])
    torch._dynamo.reset()
    with pytest.raises(ValueError, match=message(row, TABLE[case])):
        torch.compile(function, fullgraph=True, backend="aot_eager")(scores)


SHAPES = {name: TABLE[name] for name in ("integers", "no such dim", "k of more rows")}


@RELAXATIONS
@pytest.mark.parametrize("case", SHAPES.values(), ids=SHAPES)
def test_types_and_shapes_are_refused_when_compiled_and_mapped(row, case, path):
    """torch.compile puts what is raised while it traces into an error of its own."""
    if path != USUAL:
        return  # what is compiled does not depend on the path
    function, scores = call(row, case)
    torch._dynamo.reset()
    with pytest.raises(RuntimeError, match=message(row, case).removeprefix("^")):
        torch.compile(function, fullgraph=True, backend="aot_eager")(scores)
    with pytest.raises(case.error, match=message(row, case)):
        torch.func.vmap(function)(torch.stack([scores, scores]))


@RELAXATIONS
def test_one_bad_row_is_counted(row):
    x = torch.ones(3, 4)
    x[1, 0] = torch.nan
    with pytest.raises(ValueError, match=f"^{row.name}: x must .*NaN or .* in 1 of 3 rows"):
        row.function(x, 2)
    if row.fractional_k:
        with pytest.raises(ValueError, match=f"^{row.name}: k must .* in 1 of 2 rows"):
            row.function(torch.ones(2, 3), torch.tensor([1, 4]))


@pytest.mark.parametrize("row", khot.operators(), ids=lambda row: row.name)
def test_seeds_and_generator_exclude_each_other(row):
    if row.kind == "relaxation":
        return
    scores = (torch.tensor([0.5, 0.5]),) if row.kind == "design" else (torch.ones(2), 1)
    with pytest.raises(ValueError, match=f"^{row.name}: .*generator or from seeds; got both"):
        row.function(*scores, seeds=torch.tensor(1), generator=torch.Generator())


@pytest.mark.parametrize("row", khot.operators("design"), ids=lambda row: row.name)
def test_logits_of_a_design_are_called_so(row):
    for logits, k, said in (
        (torch.tensor([1.0, torch.nan]), 1, r"logits must hold finite numbers or -inf; got NaN"),
        (torch.tensor([1.0, -torch.inf]), 2, r"k must be in \[0, n\].*; got k = 2 for n = 1"),
        (torch.arange(3), 1, "logits must be one of .*; got int64"),
    ):
        with pytest.raises((ValueError, TypeError), match=f"^{row.name}: {said}"):
            row.function(logits, k)
