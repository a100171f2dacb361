"""Every design of the registry keeps every promise of its row, on both paths."""

import pytest
import torch

import khot
from khot import testing

# a design without a kernel of its own goes one way, the usual one
USUAL = "native" if khot.native_info().in_use else "torch"
# on the other path, which is ten times as slow, a gross error is enough to be seen
DRAWS = {"native": 30_000, "torch": 30_000 if USUAL == "torch" else 5_000}
CASES_OF_ROWS = [
    pytest.param(row, path, id=f"{row.name}-{path}" if row.native else row.name)
    for row in khot.operators("design")
    for path in (("native", "torch") if row.native else (USUAL,))
]
pytestmark = [
    pytest.mark.parametrize(("row", "path"), CASES_OF_ROWS, indirect=["path"]),
    pytest.mark.usefixtures("path"),
]


def probabilities(*shape: int, k: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return khot.sigmoid_topk(torch.randn(shape, generator=generator).double() * 2, k)


CASES = {
    "n = 8": probabilities(8, k=3),
    "n = 5, mostly drawn": probabilities(5, k=4),
    "certain units": torch.tensor([0.0, 1.0, 0.2, 0.8, 0.5, 0.5, 0.0, 1.0]).double(),
    "rare units": torch.tensor([1e-6, 1e-3, 0.499, 0.5 - 1e-6, 1.0]).double(),
}


def many(row):
    """The design as `testing` calls it, with samples of one row for its rows: tables serve all."""

    def design(pi: torch.Tensor, *, seeds: torch.Tensor) -> torch.Tensor:
        return row.function(pi[0], num_samples=len(pi), seeds=seeds[0])

    return design


@pytest.mark.parametrize("pi", CASES.values(), ids=CASES)
def test_inclusion_probabilities_are_pi_where_promised(row, path, pi):
    if row.exact:
        testing.check_inclusion(many(row), pi, draws=DRAWS[path])


@pytest.mark.parametrize(("n", "k"), [(1, 0), (1, 1), (2, 1), (9, 9), (50, 7), (784, 50)])
def test_size_is_fixed_where_promised(row, n, k):
    if row.fixed_size:
        for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
            testing.check_fixed_size(many(row), probabilities(n, k=k).to(dtype), draws=100)


@pytest.mark.parametrize("off", [-9e-7, -3e-9, 3e-9, 9e-7])
def test_size_is_fixed_when_the_sum_is_off_by_rounding(row, off):
    rows = ([0.5 + off, 0.5], [1.0, off + 0.3, 0.7, 0.0], [0.1] * 9 + [0.1 + off], [1.0, 1 - 9e-7])
    if row.fixed_size:
        for pi in rows:
            testing.check_fixed_size(many(row), torch.tensor(pi).double())


@pytest.mark.parametrize(
    ("pi", "wanted"),
    [
        ([0.0], [0]),
        ([1.0], [1]),
        ([0.0] * 7, [0] * 7),
        ([1.0] * 7, [1] * 7),
        ([1.0, 0.0, 1.0, 0.0, 1.0], [1, 0, 1, 0, 1]),
        ([5e-324, 0.0, 1.0], [0, 0, 1]),
    ],
)
def test_no_choice_is_left(row, pi, wanted):
    z = row.function(torch.tensor(pi).double(), num_samples=1000, seeds=torch.tensor(0))
    assert torch.equal(z, torch.tensor(wanted).double().expand(1000, -1))


@pytest.mark.parametrize("n", [5, 77, 391])
def test_a_row_depends_on_its_seed_and_pi_alone(row, n):
    pi, seeds = probabilities(8, n, k=3).float(), khot.row_seeds(5, 8)
    if not row.whole_k:
        pi[::3, 0] *= 0.5  # these need a phantom unit, the others do not
    whole = row.function(pi, seeds=seeds)
    assert torch.equal(row.function(pi[0], seeds=seeds[0]), whole[0])
    assert torch.equal(row.function(pi[1:], seeds=seeds[1:]), whole[1:])


def test_a_row_is_the_same_anywhere_in_a_large_batch_at_any_number_of_threads(row):
    n, rows = 67, 541  # more than torch gives one thread; those and vectors end in mid-row
    pi, seeds = probabilities(rows, n, k=20), khot.row_seeds(1, rows)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = row.function(pi, seeds=seeds)
        assert torch.equal(row.function(pi[1:], seeds=seeds[1:]), one[1:])
        torch.set_num_threads(3)
        assert torch.equal(row.function(pi, seeds=seeds), one)
    finally:
        torch.set_num_threads(before)


@pytest.mark.gpu
def test_a_row_is_the_same_on_another_device(row):
    pi, seeds = probabilities(50, 67, k=20), khot.row_seeds(1, 50)
    there = row.function(pi.cuda(), num_samples=3, seeds=seeds.cuda())
    assert torch.equal(there.cpu(), row.function(pi, num_samples=3, seeds=seeds))


def test_samples_are_a_first_dimension_and_the_first_is_the_draw_without_them(row):
    pi, seeds = probabilities(3, 4, 30, k=7), khot.row_seeds(0, 12).reshape(3, 4)
    z = row.function(pi, num_samples=5, seeds=seeds)
    assert z.shape == (5, 3, 4, 30)
    assert torch.equal(z[0], row.function(pi, seeds=seeds))
    assert torch.equal(z[:3], row.function(pi, num_samples=3, seeds=seeds))
    assert len(z.flatten(1).unique(dim=0)) == (5 if row.random else 1)
    assert row.function(pi, num_samples=0, seeds=seeds).shape == (0, 3, 4, 30)
    moved = row.function(pi.movedim(-1, 1), num_samples=5, dim=1, seeds=seeds)
    assert torch.equal(moved.movedim(2, -1), z)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_logits_and_k_draw_what_their_probabilities_draw(row, dtype):
    logits = torch.randn(6, 40, generator=torch.Generator().manual_seed(0)).to(dtype)
    k, seeds = torch.tensor([0.0, 1, 7, 20, 39, 40], dtype=dtype), khot.row_seeds(0, 6)
    if not row.whole_k:
        k[3] = 20.25  # at which a sum is not judged by its rounding
    pi = khot.sigmoid_topk(logits, k)
    wanted = row.function(pi.double() if dtype == torch.float64 else pi, seeds=seeds)
    got = row.function(logits, k, seeds=seeds)
    assert got.dtype == dtype
    whole = k == k.round()
    assert torch.equal(got[whole], wanted[whole])
    if row.fixed_size:
        assert torch.equal(got.sum(-1)[whole], k[whole])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_logits_of_half_precision_keep_k(row, dtype):
    logits = torch.randn(20, 784, generator=torch.Generator().manual_seed(0)).to(dtype)
    logits[:, ::3] = -torch.inf
    z = row.function(logits, 50, seeds=khot.row_seeds(0, 20))
    assert z.dtype == dtype and bool((z[:, ::3] == 0).all())
    if row.fixed_size:
        assert bool((z.float().sum(-1) == 50).all())


@pytest.mark.parametrize("k", [0.25, 2.5, 4.999, 7.75])
def test_a_fractional_k_has_the_sizes_and_the_inclusion_probabilities_promised(row, path, k):
    if not row.exact:
        return
    draws, floor = DRAWS[path], int(k)
    logits = torch.linspace(-2, 2, 8).double()
    pi = khot.sigmoid_topk(logits, k)
    for z in (
        row.function(pi, num_samples=draws, seeds=torch.tensor(0)),
        row.function(logits, k, num_samples=draws, seeds=torch.tensor(1)),
    ):
        more = z.sum(-1) - floor
        assert bool(((more == 0) | (more == 1)).all())
        # corrected Equation 15: one more than the floor with probability k - floor
        chance = k - floor
        assert abs(float(more.mean()) - chance) <= 5 * (chance * (1 - chance) / draws) ** 0.5
        errors = (pi * (1 - pi) / draws).sqrt()
        assert bool(((z.mean(0) - pi).abs() <= 5 * errors).all())


def test_one_seed_serves_all_rows_and_two_seeds_differ(row):
    pi = probabilities(50, k=20).expand(4, -1)
    same = row.function(pi, seeds=torch.tensor(3))
    assert torch.equal(same, same[:1].expand(4, -1))
    drawn = row.function(pi, seeds=khot.row_seeds(0, 4)).unique(dim=0)
    assert len(drawn) == (4 if row.random else 1)


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
    assert row.function(torch.empty(3, 0, 5), 2, num_samples=4).shape == (4, 3, 0, 5)


def test_there_is_no_gradient(row):
    pi = torch.full((4,), 0.5, requires_grad=True)
    assert not row.function(pi).requires_grad
    assert not row.function(pi, torch.tensor(2.0, requires_grad=True)).requires_grad


HALF = torch.tensor([0.5, 0.5])
# beside those of test_refusals
REFUSALS = {
    "one of two rows": (torch.tensor([[1.5, 0.5], [1, 0]]), {}, ValueError, "in 1 of 2 rows"),
    "logits in a list": ([0.5], {"k": 1}, TypeError, "logits must be a torch.Tensor; got list"),
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
        with pytest.raises(ValueError, match=f"^{row.name}: k must be whole; got 1.5, off by 0.5"):
            row.function(HALF, 1.5)
    else:
        assert row.function(case[0]).shape == case[0].shape
