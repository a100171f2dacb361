"""The stateless backward: for every relaxation and estimator, bit for bit what autograd gives."""

import pytest
import torch

import khot

OPERATORS = [*khot.operators("relaxation"), *khot.operators("estimator")]
ROWS = pytest.mark.parametrize("row", OPERATORS, ids=lambda row: row.name)
ESTIMATORS = pytest.mark.parametrize("row", khot.operators("estimator"), ids=lambda row: row.name)
RELAXATIONS = pytest.mark.parametrize("row", khot.operators("relaxation"), ids=lambda row: row.name)
pytestmark = pytest.mark.usefixtures("path", "one_thread")


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def arguments(row: khot.Operator, seeds: int = 4) -> dict[str, object]:
    """k, tau and seeds of four rows: tensors with an entry for each where those get a gradient."""
    k = getattr(row, "only_k", None) or 2
    given: dict[str, object] = {"k": k}
    if "k" in row.differentiable_in:
        given["k"] = torch.full((4,), float(k))
    if row.tau_keyword in row.differentiable_in:
        given[row.tau_keyword] = torch.tensor([0.5, 1.0, 2.0, 0.7])
    if row.kind == "estimator":
        given["seeds"] = khot.row_seeds(0, seeds)
    return given


def needed(row: khot.Operator, *shape: int, dim: int = -1) -> dict[str, torch.Tensor]:
    """A cotangent of a value of this shape, or losses."""
    if getattr(row, "needs_loss", False):
        without = [size for i, size in enumerate(shape) if i != dim % len(shape)]
        return {"losses": normal(*without)}
    return {"cotangent": normal(*shape, *((2,) if getattr(row, "ranked", False) else ()))}


def by_autograd(row, scores, given, at=-1, **how) -> khot.Gradients:
    """The value and gradients of a forward whose graph was kept."""
    first, tau = row.positional[0], row.tau_keyword
    given = {first: scores, **given}
    leaves = {
        name: given[name].clone().requires_grad_()
        for name in row.differentiable_in
        if isinstance(given.get(name), torch.Tensor)
    }
    value = z = row.function(**given | leaves)
    if "losses" in how:
        z = khot.with_losses(value, how["losses"], baseline=how.get("baseline"), dim=at)
        how["cotangent"] = torch.ones_like(z)
    found = torch.autograd.grad(z, list(leaves.values()), how["cotangent"].to(z.dtype))
    named = dict(zip(leaves, found, strict=True))
    return khot.Gradients(value.detach(), named[first], named.get("k"), named.get(tau))


def assert_same_bits(got: khot.Gradients, wanted: khot.Gradients) -> None:
    for name in ("value", "scores", "k", "tau"):
        a, b = getattr(got, name), getattr(wanted, name)
        assert (a is None) == (b is None), name
        assert a is None or (a.dtype == b.dtype and torch.equal(a, b)), name
        assert a is None or not a.requires_grad


@ROWS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_it_is_autograd_bit_for_bit(row, dtype):
    scores, given, how = normal(4, 9).to(dtype), arguments(row), needed(row, 4, 9)
    got = khot.vjp(row.name, scores, **given, **how)
    assert_same_bits(got, by_autograd(row, scores, given, **how))
    assert got.scores.shape == scores.shape and bool((got.scores != 0).any())
    assert torch.equal(got.value, row.function(scores, **given))
    assert_same_bits(khot.vjp(row.function, scores, **given, **how), got)


@ROWS
def test_k_and_temperature_of_each_row_have_its_gradient(row):
    given = arguments(row)
    got = khot.vjp(row.name, normal(4, 9), **given, **needed(row, 4, 9))
    for name, argument in (("k", "k"), ("tau", row.tau_keyword)):
        gradient = getattr(got, name)
        assert (gradient is not None) == (argument in row.differentiable_in)
        assert gradient is None or (gradient.shape == (4,) and bool((gradient != 0).any()))


@ESTIMATORS
def test_with_samples_and_another_dimension_of_units(row):
    scores, how = normal(9, 4), needed(row, 3, 9, 4, dim=1)
    if row.needs_loss:
        how |= {"baseline": "leave_one_out"}
    given = arguments(row) | {"num_samples": 3, "dim": 0}
    got = khot.vjp(row.name, scores, **given, **how)
    assert_same_bits(got, by_autograd(row, scores, given, at=1, **how))


@RELAXATIONS
def test_a_relaxation_with_another_dimension_of_units(row):
    scores, given, how = normal(9, 4), arguments(row) | {"dim": 0}, needed(row, 9, 4)
    assert_same_bits(
        khot.vjp(row.name, scores, **given, **how), by_autograd(row, scores, given, **how)
    )


@ROWS
def test_it_leaves_the_callers_graph_alone_and_works_without_grad_mode(row):
    scores, how = normal(4, 9).requires_grad_(), needed(row, 4, 9)
    given = {"k": getattr(row, "only_k", None) or 2}
    if row.kind == "estimator":
        given["seeds"] = khot.row_seeds(0, 4)
    first = khot.vjp(row.name, scores * 1, **given, **how)
    with torch.no_grad():
        second = khot.vjp(row.name, scores, **given, **how)
    assert_same_bits(first, second)
    assert scores.grad is None and first.k is None and first.tau is None


@pytest.mark.parametrize("flavour", ["simple", "f", "b"])
def test_options_are_passed_on(flavour):
    logits, g, seeds = normal(4, 9), normal(4, 9, seed=1), khot.row_seeds(0, 4)
    got = khot.vjp("simple", logits, 3, seeds, cotangent=g, flavour=flavour)
    x = logits.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(khot.simple(x, 3, flavour=flavour, seeds=seeds), x, g)
    assert torch.equal(got.scores, wanted)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_fitted_law_too_is_autograd_bit_for_bit(dtype):
    row = khot.operator("score_function")
    logits, losses = normal(4, 9).to(dtype), normal(3, 4)
    given = arguments(row) | {"fitted": True, "num_samples": 3}
    got = khot.vjp(row.name, logits, losses=losses, **given)
    assert_same_bits(got, by_autograd(row, logits, given, losses=losses))
    assert bool((got.scores != 0).any())


def test_an_estimator_may_do_without_k():
    logits, g, seeds = normal(4, 9).requires_grad_(), normal(4, 9), khot.row_seeds(0, 4)
    got = khot.vjp("pi_st_implicit", logits, None, seeds, cotangent=g)
    (wanted,) = torch.autograd.grad(khot.pi_st_implicit(logits, None, seeds=seeds), logits, g)
    assert torch.equal(got.scores, wanted) and got.k is None
    one = khot.vjp("reinmax", logits, None, seeds, cotangent=g)
    assert_same_bits(one, khot.vjp("reinmax", logits, 1, seeds, cotangent=g))


@ROWS
def test_where_there_is_nothing_to_choose_the_gradient_is_zero(row):
    """Also of arguments that the value then does not depend on."""
    if getattr(row, "only_k", None):
        return
    given = arguments(row) | {"k": torch.zeros(4) if "k" in row.differentiable_in else 0}
    how = needed(row, 4, 9)
    if getattr(row, "ranked", False):
        how = {"cotangent": torch.ones(4, 9, 0)}
    got = khot.vjp(row.name, normal(4, 9), **given, **how)
    assert bool((got.value == 0).all()) and bool((got.scores == 0).all())
    assert got.tau is None or bool((got.tau == 0).all())


def test_a_gradient_beyond_the_dtype_is_infinite_and_none_is_nan():
    x, g = torch.zeros(1, 4, dtype=torch.float16), torch.tensor([[1.0, 0.0, 0.0, -1.0]])
    tau = torch.tensor([1e-6], dtype=torch.float64)
    got = khot.vjp("sigmoid_topk", x, 2, cotangent=g, tau=tau)
    assert got.scores.tolist() == [[torch.inf, 0.0, 0.0, -torch.inf]]
    with pytest.raises(ValueError, match="^vjp: scores and temperature must be such that the grad"):
        khot.vjp(
            "sequential_softmax_topk", torch.zeros(1, 9), 8, cotangent=normal(1, 9), tau=1e-100
        )


def test_losses_that_are_no_tensor_are_refused():
    with pytest.raises(TypeError, match="^with_losses: losses must be a torch.Tensor; got list"):
        khot.vjp("score_function", torch.zeros(1, 4), 2, torch.tensor([1]), losses=[1.0])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", ["cotangent", "losses", "baseline"])
def test_what_is_not_finite_is_refused(name, bad):
    values = torch.tensor([1.0, bad])
    how = {"losses": torch.ones(2), name: values}
    operator = "score_function"
    if name == "cotangent":
        operator, how = "imle", {name: values.unsqueeze(-1).expand(2, 4)}
    with pytest.raises(ValueError, match=f"^vjp: {name} must hold finite numbers of float32; got"):
        khot.vjp(operator, torch.zeros(2, 4), 2, khot.row_seeds(0, 2), **how)


@ROWS
@pytest.mark.parametrize("given", ["neither", "cotangent and losses", "the other"])
def test_what_the_operator_does_not_need_is_refused(row, given):
    both = {"cotangent": torch.ones(2, 4), "losses": torch.ones(2)}
    wanted, other = "cotangent", "losses"
    if getattr(row, "needs_loss", False):
        wanted, other = other, wanted
    how = {"neither": {}, "the other": {other: both[other]}}.get(given, both)
    said = other if given == "the other" else given
    match = f"^vjp: {row.name} must get {wanted} and no {other}; got {said}$"
    seeds = khot.row_seeds(0, 2) if row.kind == "estimator" else None
    with pytest.raises(ValueError, match=match):
        khot.vjp(row.name, torch.zeros(2, 4), 1, seeds, **how)


G = torch.ones(4)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"operator": "pist"}, ValueError, "operator must be one of sigmoid_topk.*; got 'pist'"),
        ({"operator": "pivotal"}, ValueError, "operator must be one of .*; got 'pivotal'"),
        ({"operator": khot.pivotal}, ValueError, "operator must be .*; got 'pivotal'"),
        ({"operator": 1}, ValueError, "operator must be one of sigmoid_topk.*; got int"),
        ({"operator": "softmax_topk"}, ValueError, "seeds must be None, as softmax_topk draws no"),
        ({"cotangent": torch.ones(3)}, ValueError, r"cotangent must have .*\(4,\); got shape"),
        ({"cotangent": [1.0]}, TypeError, "cotangent must be a torch.Tensor; got list"),
        ({"cotangent": G * 1j}, TypeError, "cotangent must be real; got complex64"),
        ({"seeds": None}, TypeError, "seeds must be a torch.Tensor; got NoneType"),
        ({"baseline": G}, ValueError, "baseline must be None, as simple needs no losses"),
        ({"flavor": "f"}, TypeError, "options must be keywords of simple; got flavor"),
        ({"generator": None}, TypeError, "options must be keywords of simple; got generator"),
    ],
)
def test_refusals(changed, error, message):
    good = {"operator": "simple", "scores": torch.zeros(4), "k": 2, "seeds": torch.tensor(1)}
    with pytest.raises(error, match=f"^vjp: {message}"):
        khot.vjp(**good | {"cotangent": G} | changed)
