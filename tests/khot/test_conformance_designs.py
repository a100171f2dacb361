"""Every design of the registry keeps every promise of its row, on both paths."""

import pytest
import torch

import khot
from khot import testing

ROWS = pytest.mark.parametrize("row", khot.operators("design"), ids=lambda row: row.name)
pytestmark = [ROWS, pytest.mark.usefixtures("path")]


def probabilities(*shape: int, k: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return khot.sigmoid_topk(torch.randn(shape, generator=generator).double() * 2, k)


CASES = {
    "n = 8": probabilities(8, k=3),
    "n = 5, mostly drawn": probabilities(5, k=4),
    "certain units": torch.tensor([0.0, 1.0, 0.2, 0.8, 0.5, 0.5, 0.0, 1.0]).double(),
    "rare units": torch.tensor([1e-6, 1e-3, 0.499, 0.5 - 1e-6, 1.0]).double(),
}


@pytest.mark.parametrize("pi", CASES.values(), ids=CASES)
def test_inclusion_probabilities_are_pi_where_promised(row, pi):
    if row.exact:
        testing.check_inclusion(row.function, pi)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("n", "k"), [(1, 0), (1, 1), (2, 1), (9, 9), (50, 7), (784, 50)])
def test_size_is_fixed_where_promised(row, n, k, dtype):
    if row.fixed_size:
        pi = probabilities(n, k=k).to(dtype)
        testing.check_fixed_size(row.function, pi, draws=100)


@pytest.mark.parametrize("n", [5, 77, 784])
def test_a_row_depends_on_its_seed_and_pi_alone(row, n):
    pi, seeds = probabilities(8, n, k=3).float(), khot.row_seeds(5, 8)
    whole = row.function(pi, seeds=seeds)
    assert torch.equal(row.function(pi, seeds=seeds), whole)
    for b in range(8):
        assert torch.equal(row.function(pi[b], seeds=seeds[b]), whole[b])
    chunks = [row.function(pi[i : i + 3], seeds=seeds[i : i + 3]) for i in (0, 3, 6)]
    assert torch.equal(torch.cat(chunks), whole)


def test_one_seed_serves_all_rows_and_two_seeds_differ(row):
    pi = probabilities(50, k=20).expand(4, -1)
    same = row.function(pi, seeds=torch.tensor(3))
    assert torch.equal(same, same[:1].expand(4, -1))
    assert len(row.function(pi, seeds=khot.row_seeds(0, 4)).unique(dim=0)) == 4


def test_dim_is_the_one_of_the_units(row):
    pi, seeds = probabilities(3, 4, 6, k=2), khot.row_seeds(0, 12).reshape(3, 4)
    moved = row.function(pi.movedim(-1, 1), dim=1, seeds=seeds)
    assert torch.equal(moved.movedim(1, -1), row.function(pi, seeds=seeds))


def test_a_generator_makes_draws_repeatable(row, generator):
    pi = probabilities(6, 30, k=9)
    first = row.function(pi, generator=generator)
    assert torch.equal(first, row.function(pi, generator=generator.manual_seed(0)))


def test_input_is_left_alone_and_may_lie_anywhere(row):
    pi, seeds = probabilities(6, 8, k=3), khot.row_seeds(0, 3)
    before = pi.clone()
    strided = row.function(pi.T.contiguous().T[::2], seeds=seeds)
    assert torch.equal(strided, row.function(pi[::2].contiguous(), seeds=seeds))
    assert torch.equal(pi, before)


def test_no_rows_give_no_rows(row):
    assert row.function(torch.empty(3, 0, 5)).shape == (3, 0, 5)


HALF = torch.tensor([0.5, 0.5])
REFUSALS = {
    "a list": ([0.5, 0.5], {}, TypeError, "pi must be a torch.Tensor; got list"),
    "integers": (torch.ones(3).long(), {}, TypeError, "pi must be one of .*; got int64"),
    "a scalar": (torch.tensor(1.0), {}, ValueError, "pi must have at least one dimension"),
    "no units": (torch.empty(2, 0), {}, ValueError, "at least one entry along dim"),
    "no such dim": (HALF, {"dim": 1}, ValueError, r"dim must be in \[-1, 0\]"),
    "NaN": (torch.tensor([1, torch.nan]), {}, ValueError, r"pi must be in \[0, 1\]; got"),
    "-inf": (torch.tensor([1, -torch.inf]), {}, ValueError, r"pi must be in \[0, 1\]; got"),
    "below 0": (torch.tensor([1.1, -0.1]), {}, ValueError, "another value in 1 of 1 rows"),
    "above 1": (torch.tensor([[1.5, 0.5], [1, 0]]), {}, ValueError, "in 1 of 2 rows"),
    "both": (HALF, {"seeds": torch.tensor(1), "generator": torch.Generator()}, ValueError, "both"),
    "a seed": (HALF, {"seeds": 1}, TypeError, "seeds must be a torch.Tensor; got int"),
    "float seeds": (HALF, {"seeds": torch.ones(())}, TypeError, "seeds must be int64; got float32"),
    "more seeds": (HALF, {"seeds": torch.arange(2)}, ValueError, r"shape \(\); got shape \(2,\)"),
}
FRACTIONS = {
    "one row": (
        torch.tensor([0.5, 0.7]),
        "a whole sum in each row; got 1.2, off by 0.2",
    ),
    "one of two": (torch.tensor([[0.5, 0.7], [0.5, 0.5]]), "got another in 1 of 2"),
    "nearly": (torch.tensor([0.5, 0.5 + 1e-4]), "whole sum in each row"),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
def test_refusals(row, case):
    pi, options, error, message = case
    with pytest.raises(error, match=f"^{row.name}: .*{message}"):
        row.function(pi, **options)


@pytest.mark.parametrize("case", FRACTIONS.values(), ids=FRACTIONS)
def test_a_sum_that_is_not_whole_is_refused_where_promised(row, case):
    if row.whole_k:
        with pytest.raises(ValueError, match=f"^{row.name}: .*{case[1]}"):
            row.function(case[0])
