"""Counter-based random numbers: the published answers, and what a row depends on."""

import pytest
import torch

import khot
from khot import _random
from khot._native import library
from khot._random import Source


def tensors(*words: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.tensor([word]) for word in words)


# Random123, kat_vectors, philox4x32 10
KNOWN = [
    ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "wanted"), KNOWN)
def test_philox_gives_the_known_answers(counter, key, wanted):
    assert tuple(map(int, _random.philox(tensors(*counter), tensors(*key)))) == wanted


def test_the_seed_is_the_key_and_block_and_sample_the_counter():
    seed = torch.tensor([-0x0123456789ABCDEF])
    low, high = int(seed) & 0xFFFFFFFF, (int(seed) >> 32) & 0xFFFFFFFF
    wanted = _random.philox(tensors(5, 7, 0, 0), tensors(low, high))
    got = _random.words(seed, 6, sample=7, block=4)
    assert got[0, 4:].tolist() == [int(word) for word in wanted][:2]


def test_row_seeds_are_splitmix64_from_a_mixed_seed():
    mask = 2**64 - 1

    def mix(z: int) -> int:
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    assert mix(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF  # splitmix64's first, seed 0
    for seed in (0, 7, -1, 2**63, 2**64 - 1):
        wanted = [mix((mix(seed & mask) + (i + 1) * 0x9E3779B97F4A7C15) & mask) for i in range(4)]
        assert [s & mask for s in khot.row_seeds(seed, 4).tolist()] == wanted


def test_chunks_have_the_seeds_of_the_whole():
    whole = khot.row_seeds(3, 100)
    chunks = [khot.row_seeds(3, 30, first=first) for first in (0, 30, 60)]
    assert torch.equal(torch.cat([*chunks, khot.row_seeds(3, 10, first=90)]), whole)
    assert khot.row_seeds(3, 0).shape == (0,)


def test_seeds_of_rows_and_of_items_differ():
    seeds = torch.cat([khot.row_seeds(seed, 10_000) for seed in range(10)])
    assert len(seeds.unique()) == 100_000


def test_a_seed_may_be_signed_or_not():
    assert torch.equal(khot.row_seeds(-1, 3), khot.row_seeds(2**64 - 1, 3))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0.5, 3), TypeError, "seed must be an integer; got float"),
        ((True, 3), TypeError, "seed must be an integer; got bool"),
        ((2**64, 3), ValueError, "seed must be in .*; got 18446744073709551616"),
        ((0, -1), ValueError, "rows must be in .*; got -1"),
    ],
)
def test_refusals(arguments, error, message):
    with pytest.raises(error, match=f"^row_seeds: {message}"):
        khot.row_seeds(*arguments)
    with pytest.raises(ValueError, match="^row_seeds: first must be in .*; got -1"):
        khot.row_seeds(0, 1, first=-1)


@pytest.mark.usefixtures("path")
def test_seeds_of_items_are_their_row_seeds_one_after_the_other():
    seeds = torch.cat((khot.row_seeds(0, 20), torch.tensor([0, -1, 2**63 - 1, -(2**63)])))
    rows, first = torch.arange(24) % 5, torch.arange(24) * 10**17
    wanted = [khot.row_seeds(int(s), int(r)) for s, r in zip(seeds, rows, strict=True)]
    assert torch.equal(khot.seeds_of_items(seeds, rows), torch.cat(wanted))
    items = zip(seeds, rows, first, strict=True)
    wanted = [khot.row_seeds(int(s), int(r), first=int(f)) for s, r, f in items]
    assert torch.equal(khot.seeds_of_items(seeds, rows, first), torch.cat(wanted))
    every = slice(None, None, 3)
    wanted = [
        khot.row_seeds(int(s), int(r)) for s, r in zip(seeds[every], rows[every], strict=True)
    ]
    assert torch.equal(khot.seeds_of_items(seeds[every], rows[every]), torch.cat(wanted))
    none = torch.empty(0, dtype=torch.int64)
    assert khot.seeds_of_items(none, none).shape == (0,)


def test_kernels_give_the_row_seeds_of_torch(monkeypatch):
    given = (khot.row_seeds(1, 9), torch.arange(9), torch.arange(9) * 7)
    here = khot.seeds_of_items(*given)
    monkeypatch.setattr(library._library, "object", None)
    assert torch.equal(khot.seeds_of_items(*given), here)


ONES = torch.ones(2, dtype=torch.int64)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([1, 2], ONES), TypeError, "seeds must be a torch.Tensor; got list"),
        ((ONES, None), TypeError, "rows must be a torch.Tensor; got NoneType"),
        ((ONES, ONES.float()), TypeError, "rows must be int64; got float32"),
        ((ONES, ONES[:1]), ValueError, r"rows must be one for each item, .*; got \(1,\)"),
        ((ONES[0], ONES[0]), ValueError, r"seeds must be one for each item, .*; got \(\)"),
        ((ONES, ONES, ONES[:1]), ValueError, "first must be one for each item"),
        ((ONES, -ONES), ValueError, "rows must be at least 0; got -1"),
        ((ONES, ONES, -ONES), ValueError, "first must be at least 0; got -1"),
    ],
)
def test_refusals_of_seeds_of_items(arguments, error, message):
    with pytest.raises(error, match=f"^seeds_of_items: {message}"):
        khot.seeds_of_items(*arguments)


def test_uniforms_are_odd_multiples_of_two_to_the_minus_53():
    u = _random.uniforms(khot.row_seeds(0, 100), 101)
    assert u.dtype == torch.float64 and u.shape == (100, 101)
    multiples = (u * 2.0**53).long()
    assert bool((multiples % 2 == 1).all()) and bool(((u > 0) & (u < 1)).all())


def test_uniforms_are_uniform():
    u = _random.uniforms(khot.row_seeds(1, 1000), 1000)
    counts = torch.histc(u, 100, 0, 1)
    chi_square = float(((counts - 10_000) ** 2 / 10_000).sum())
    assert abs(chi_square - 99) < 5 * (2 * 99) ** 0.5
    ends = torch.histc((u * 2.0**26) % 1, 100, 0, 1)  # the lower half of the bits
    assert abs(float(((ends - 10_000) ** 2 / 10_000).sum()) - 99) < 5 * (2 * 99) ** 0.5


@pytest.mark.parametrize("seeds", [khot.row_seeds(0, 200), torch.arange(200)])
def test_rows_draws_and_samples_are_uncorrelated(seeds):
    u = torch.cat([_random.uniforms(seeds, 2000, sample=sample) for sample in (0, 1)]) - 0.5
    correlations = 12 * (u @ u.T) / 2000
    off = correlations[~torch.eye(400, dtype=torch.bool)]
    assert float(off.abs().max()) < 6 / 2000**0.5  # the greatest of 80,000
    lagged = 12 * (u[:, 1:] * u[:, :-1]).mean()
    assert abs(float(lagged)) < 5 / u.numel() ** 0.5


def test_a_row_depends_on_its_seed_only():
    seeds = khot.row_seeds(0, 33)
    for draw in (Source.words, Source.uniforms, Source.permutations, Source.shuffles):
        whole = draw(Source(seeds, 3), 77)
        assert whole.shape == (3, 33, 77)
        assert torch.equal(whole[:, 5:6], draw(Source(seeds[5:6], 3), 77))
        assert torch.equal(whole[:1], draw(Source(seeds), 77))
        assert torch.equal(whole[:, 4:9], draw(Source(seeds, 3)[slice(4, 9)], 77))
    assert torch.equal(_random.uniforms(seeds, 9), _random.uniforms(seeds, 77)[:, :9])


@pytest.mark.parametrize(("count", "block"), [(1, 0), (5, 3), (784, 196), (1025, 2**31), (3000, 7)])
def test_kernels_give_the_numbers_of_torch(count, block):
    if not khot.native_info().in_use:
        pytest.skip(f"needs the C kernels: {khot.native_info().reason}")
    source = Source(torch.cat((khot.row_seeds(0, 5), torch.tensor([0, -1]))), 3)
    for sample in range(3):
        options = {"sample": sample, "block": block}
        wanted = _random.words(source.seeds, count, **options)
        assert torch.equal(source.words(count, block=block)[sample], wanted)
        wanted = _random.uniforms(source.seeds, count, **options)
        assert torch.equal(source.uniforms(count, block=block)[sample], wanted)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 77, 300])
def test_shuffles_are_those_of_fisher_and_yates(n):
    source = Source(khot.row_seeds(n, 20))
    for row, words in zip(source.shuffles(n)[0].tolist(), source.words(n)[0].tolist(), strict=True):
        order = [0] * n
        for i, word in enumerate(words):
            j = (word * (i + 1)) >> 32
            order[i], order[j] = order[j], i
        assert row == order


@pytest.mark.parametrize("draw", [Source.permutations, Source.shuffles])
def test_orders_are_permutations_and_all_are_as_likely(draw):
    drawn = draw(Source(khot.row_seeds(0, 24_000)), 4)[0]
    assert torch.equal(drawn.sort(-1).values, torch.arange(4).expand(24_000, 4))
    counts = drawn.unique(dim=0, return_counts=True)[1]
    assert len(counts) == 24
    assert float(((counts - 1000) ** 2 / 1000).sum()) < 23 + 5 * 46**0.5
    assert draw(Source(khot.row_seeds(0, 2)), 1).tolist() == [[[0], [0]]]
