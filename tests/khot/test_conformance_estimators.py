"""Every estimator of the registry keeps every promise of its row, on both paths."""

import pytest
import torch

import khot

ROWS = pytest.mark.parametrize("row", khot.operators("estimator"), ids=lambda row: row.name)
pytestmark = [ROWS, pytest.mark.usefixtures("path")]


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_value_is_hard_where_promised(row, dtype):
    z = row.function(normal(100, 30).to(dtype), 4, seeds=khot.row_seeds(0, 100))
    assert z.dtype == dtype and z.shape == (100, 30)
    if row.hard:
        assert bool(((z == 0) | (z == 1)).all()) and bool((z.double().sum(-1) == 4).all())


def test_it_draws_by_its_law(row):
    logits, seeds = normal(100, 30).double(), khot.row_seeds(0, 100)
    if row.hard and khot.operator(row.law).exact:
        pi = khot.sigmoid_topk(logits, 4)
        wanted = khot.operator(row.law).function(pi, seeds=seeds)
        assert torch.equal(row.function(logits, 4, seeds=seeds), wanted)


def test_gradients_reach_the_promised_arguments_and_no_others(row):
    given = {"logits": normal(6).double(), "k": torch.tensor(2.0).double()}
    given |= {
        name: torch.tensor(0.7).double() for name in row.differentiable_in if name not in given
    }
    values = {name: value.requires_grad_() for name, value in given.items()}
    options = {name: value for name, value in values.items() if name not in ("logits", "k")}
    seeds = khot.row_seeds(0, 1)[0]
    z = row.function(values["logits"], values["k"], seeds=seeds, **options)
    (z * normal(6, seed=1)).sum().backward()
    reached = {name for name, value in values.items() if value.grad is not None}
    assert reached == set(row.differentiable_in)
    assert all(bool((values[name].grad != 0).any()) for name in reached)


def test_masked_units_are_never_drawn_and_get_no_gradient(row):
    logits = normal(200, 12)
    logits[:, ::2] = -torch.inf
    logits.requires_grad_()
    z = row.function(logits, 3, seeds=khot.row_seeds(0, 200))
    (z * normal(200, 12, seed=1)).sum().backward()
    assert bool((z[:, ::2] == 0).all()) and bool((logits.grad[:, ::2] == 0).all())
    assert bool((logits.grad[:, 1::2] != 0).all())


def test_seeds_make_draws_repeatable_and_rows_independent_of_their_batch(row, path):
    logits, seeds = normal(8, 784), khot.row_seeds(3, 8)
    whole = row.function(logits, 50, seeds=seeds)
    assert torch.equal(row.function(logits, 50, seeds=seeds), whole)
    if path == "native":  # where pi itself is the same to the last bit
        for b in range(8):
            assert torch.equal(row.function(logits[b], 50, seeds=seeds[b]), whole[b])


def test_a_generator_makes_draws_repeatable(row, generator):
    first = row.function(normal(8, 30), 5, generator=generator)
    again = row.function(normal(8, 30), 5, generator=generator.manual_seed(0))
    assert torch.equal(first, again)


def test_dim_is_the_one_of_the_units(row):
    logits, seeds = normal(3, 4, 6).double(), khot.row_seeds(0, 12).reshape(3, 4)
    moved = row.function(logits.movedim(-1, 0), 2, dim=0, seeds=seeds)
    assert torch.equal(moved.movedim(0, -1), row.function(logits, 2, seeds=seeds))


REFUSALS = {
    "a list": ([1.0, 2.0], 1, {}, TypeError, "logits must be a torch.Tensor; got list"),
    "integers": (torch.arange(3), 1, {}, TypeError, "logits must be one of .*; got int64"),
    "no units": (torch.empty(2, 0), 0, {}, ValueError, "at least one entry along dim"),
    "no such dim": (torch.ones(3), 1, {"dim": 1}, ValueError, r"dim must be in \[-1, 0\]"),
    "NaN": (torch.tensor([1, torch.nan]), 1, {}, ValueError, "must hold finite numbers or -inf"),
    "k > n": (torch.ones(3), 4, {}, ValueError, r"k must be in \[0, n\].*; got k = 4 for n = 3"),
    "k < 0": (torch.ones(3), -1, {}, ValueError, r"k must be in \[0, n\]"),
    "tau = 0": (torch.ones(3), 1, {"tau": 0.0}, ValueError, "tau must be finite and above 0"),
    "a seed": (torch.ones(3), 1, {"seeds": 1}, TypeError, "seeds must be a torch.Tensor"),
    "both": (
        torch.ones(3),
        1,
        {"seeds": torch.tensor(1), "generator": torch.Generator()},
        ValueError,
        "randomness must come from generator or from seeds; got both",
    ),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
def test_refusals(row, case):
    """Each by whoever it is that refuses: the estimator, its relaxation or its law."""
    logits, k, options, error, message = case
    with pytest.raises(error, match=f"^({row.name}|sigmoid_topk|{row.law}): .*{message}"):
        row.function(logits, k, **options)
