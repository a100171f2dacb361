"""The stateless backward: for every estimator, bit for bit what autograd gives."""

import pytest
import torch

import khot

ROWS = pytest.mark.parametrize("row", khot.operators("estimator"), ids=lambda row: row.name)
pytestmark = pytest.mark.usefixtures("path", "one_thread")


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def arguments(row: khot.Estimator) -> dict[str, torch.Tensor]:
    """k and tau as tensors, one for each of four rows, where they get a gradient."""
    k = torch.full((4,), float(row.only_k or 2))
    made = {"k": k, "tau": torch.tensor([0.5, 1.0, 2.0, 0.7])}
    return {name: value for name, value in made.items() if name in row.differentiable_in}


def by_autograd(row, logits, options, at=-1, **how) -> khot.Gradients:
    """The gradients of a forward whose graph was kept, of the sum of losses or along g."""
    leaves = {"logits": logits} | arguments(row)
    leaves = {name: value.clone().requires_grad_() for name, value in leaves.items()}
    z = row.function(**{"k": row.only_k or 2} | leaves | options)
    if row.needs_loss:
        z = khot.with_losses(z, how["losses"], baseline=how.get("baseline"), dim=at)
        how["cotangent"] = torch.ones_like(z)
    found = torch.autograd.grad(z, list(leaves.values()), how["cotangent"])
    return khot.Gradients(**dict(zip(leaves, found, strict=True)))


def assert_same_bits(got: khot.Gradients, wanted: khot.Gradients) -> None:
    for name in ("logits", "k", "tau"):
        a, b = getattr(got, name), getattr(wanted, name)
        assert (a is None) == (b is None), name
        assert a is None or (a.dtype == b.dtype and torch.equal(a, b)), name
        assert a is None or not a.requires_grad


@ROWS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_it_is_autograd_bit_for_bit(row, dtype):
    logits, seeds = normal(4, 9).to(dtype), khot.row_seeds(0, 4)
    how = {"losses": normal(4)} if row.needs_loss else {"cotangent": normal(4, 9).to(dtype)}
    given = {"k": row.only_k or 2} | arguments(row)
    got = khot.vjp(row.name, logits, seeds=seeds, **given, **how)
    assert_same_bits(got, by_autograd(row, logits, {"seeds": seeds}, **how))
    assert got.logits.shape == logits.shape and bool((got.logits != 0).any())
    assert_same_bits(khot.vjp(row.function, logits, seeds=seeds, **given, **how), got)


@ROWS
def test_with_samples_and_another_dimension_of_units(row):
    logits, seeds = normal(9, 4), khot.row_seeds(0, 4)
    how = {"losses": normal(3, 4), "baseline": "leave_one_out"}
    how = how if row.needs_loss else {"cotangent": normal(3, 9, 4)}
    options = {"num_samples": 3, "dim": 0, "seeds": seeds}
    got = khot.vjp(row.name, logits, **{"k": row.only_k or 2} | arguments(row) | options, **how)
    assert_same_bits(got, by_autograd(row, logits, options, at=1, **how))


@ROWS
def test_it_leaves_the_callers_graph_alone_and_works_without_grad_mode(row):
    logits = normal(4, 9).requires_grad_()
    how = {"losses": normal(4)} if row.needs_loss else {"cotangent": normal(4, 9)}
    seeds, k = khot.row_seeds(0, 4), row.only_k or 2
    first = khot.vjp(row.name, logits * 1, k, seeds, **how)
    with torch.no_grad():
        second = khot.vjp(row.name, logits, k, seeds, **how)
    assert_same_bits(first, second)
    assert logits.grad is None and first.k is None and first.tau is None


@pytest.mark.parametrize("flavour", ["simple", "f", "b"])
def test_options_are_passed_on(flavour):
    logits, g, seeds = normal(4, 9), normal(4, 9, seed=1), khot.row_seeds(0, 4)
    got = khot.vjp("simple", logits, 3, seeds, cotangent=g, flavour=flavour)
    x = logits.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(khot.simple(x, 3, flavour=flavour, seeds=seeds), x, g)
    assert torch.equal(got.logits, wanted)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_fitted_law_too_is_autograd_bit_for_bit(dtype):
    row = khot.operator("score_function")
    logits, losses, seeds = normal(4, 9).to(dtype), normal(3, 4), khot.row_seeds(0, 4)
    options = {"fitted": True, "num_samples": 3, "seeds": seeds}
    got = khot.vjp(row.name, logits, 2, losses=losses, **arguments(row), **options)
    assert_same_bits(got, by_autograd(row, logits, options, losses=losses))
    assert bool((got.logits != 0).any())


def test_a_row_of_the_fitted_law_has_the_gradient_alone_that_it_has_in_a_batch(path):
    if path == "torch":
        return  # where the last bit may differ
    logits, losses, seeds = normal(6, 100), normal(6), khot.row_seeds(0, 6)
    whole = khot.vjp("score_function", logits, 20, seeds, losses=losses, fitted=True).logits
    for b in range(6):
        how = {"losses": losses[b], "fitted": True}
        alone = khot.vjp("score_function", logits[b], 20, seeds[b], **how).logits
        assert torch.equal(alone, whole[b])


@pytest.mark.parametrize("name", ["simple", "imle", "score_function"])
def test_a_row_has_the_gradient_alone_that_it_has_in_a_batch(name, path):
    if path == "torch":
        return  # where the last bit may differ
    logits, seeds = normal(6, 100), khot.row_seeds(0, 6)
    key, values = "cotangent", normal(3, 6, 100, seed=1)
    if khot.operator(name).needs_loss:
        key, values = "losses", normal(3, 6)
    whole = khot.vjp(name, logits, 20, seeds, num_samples=3, **{key: values}).logits
    for b in range(6):
        how = {"num_samples": 3, key: values[:, b]}
        assert torch.equal(khot.vjp(name, logits[b], 20, seeds[b], **how).logits, whole[b])


def test_an_estimator_may_do_without_k():
    logits, g, seeds = normal(4, 9).requires_grad_(), normal(4, 9), khot.row_seeds(0, 4)
    got = khot.vjp("pi_st_implicit", logits, None, seeds, cotangent=g)
    (wanted,) = torch.autograd.grad(khot.pi_st_implicit(logits, None, seeds=seeds), logits, g)
    assert torch.equal(got.logits, wanted) and got.k is None


def test_losses_that_are_no_tensor_are_refused():
    with pytest.raises(TypeError, match="^with_losses: losses must be a torch.Tensor; got list"):
        khot.vjp("score_function", torch.zeros(1, 4), 2, torch.tensor([1]), losses=[1.0])


@ROWS
@pytest.mark.parametrize("given", ["neither", "cotangent and losses", "the other"])
def test_what_the_estimator_does_not_need_is_refused(row, given):
    both = {"cotangent": torch.ones(2, 4), "losses": torch.ones(2)}
    wanted, other = ("losses", "cotangent") if row.needs_loss else ("cotangent", "losses")
    how = {"neither": {}, "the other": {other: both[other]}}.get(given, both)
    said = other if given == "the other" else given
    match = f"^vjp: {row.name} must get {wanted} and no {other}; got {said}$"
    with pytest.raises(ValueError, match=match):
        khot.vjp(row.name, torch.zeros(2, 4), row.only_k or 2, khot.row_seeds(0, 2), **how)


G = torch.ones(4)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"estimator": "pist"}, ValueError, "estimator must be one of pi_st.*; got 'pist'"),
        ({"estimator": "sigmoid_topk"}, ValueError, "estimator must be one of .*'sigmoid_topk'"),
        ({"estimator": khot.sigmoid_topk}, ValueError, "estimator must be .*'sigmoid_topk'"),
        ({"estimator": 1}, ValueError, "estimator must be one of pi_st.*; got int"),
        ({"cotangent": torch.ones(3)}, ValueError, r"cotangent must have .*\(4,\); got shape"),
        ({"cotangent": [1.0]}, TypeError, "cotangent must be a torch.Tensor; got list"),
        ({"seeds": None}, TypeError, "seeds must be a torch.Tensor; got NoneType"),
        ({"baseline": G}, ValueError, "baseline must be None, as simple needs no losses"),
        ({"flavor": "f"}, TypeError, "options must be keywords of simple; got flavor"),
        ({"generator": None}, TypeError, "options must be keywords of simple; got generator"),
    ],
)
def test_refusals(changed, error, message):
    good = {"estimator": "simple", "logits": torch.zeros(4), "k": 2, "seeds": torch.tensor(1)}
    with pytest.raises(error, match=f"^vjp: {message}"):
        khot.vjp(**good | {"cotangent": G} | changed)
