r"""Counter-based random numbers: a draw is a function of its row's seed, and of nothing else.

**Philox4x32-10** (Salmon et al. 2011, Random123) maps a counter of four 32-bit
words to four random words under a key of two, by ten rounds

    (c0, c1, c2, c3) -> (hi(M1 c2) ^ c1 ^ k0, lo(M1 c2), hi(M0 c0) ^ c3 ^ k1, lo(M0 c0))

with the key increased by (W0, W1) between rounds. The key is the row's 64-bit
seed (low word first), the counter (block, sample, 0, 0). There is no state, so a
row's numbers do not depend on the batch, the chunk, the thread or the device it
is drawn in, and a kernel in C gives the same ones.

Words are kept in int64, the one integer type that every device multiplies: the
low 64 bits of a product are the same signed and unsigned, and `>>`, which copies
the sign, is masked. Uniform numbers take two words, the high one first, as the
odd multiples of 2^-53: symmetric about 1/2 and never 0 or 1.

**Row seeds** are those of splitmix64 started at a mixed seed: mix(mix(seed) +
(i + 1) G). mix permutes the 64-bit words and G is odd, so the rows of one seed
differ in their seeds.
"""

import torch
from torch import Tensor

from khot._checks import check_fits, refuse, work_dtype
from khot._native import philox as native
from khot._native import splitmix

_MASK = 0xFFFFFFFF
_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_GOLDEN = 0x9E3779B97F4A7C15
_ONE = 0x3FF0000000000000  # the bits of 1.0
_MIX1, _MIX2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

Words = tuple[Tensor, Tensor, Tensor, Tensor]


def row_seeds(seed: int, rows: int, *, first: int = 0) -> Tensor:
    """Return the seeds of the rows first, ..., first + rows - 1 of the item `seed`.

    Rows in chunks have the seeds they have together, so nothing drawn from them
    depends on how a batch was cut.

    Args:
        seed: any integer of 64 bits, signed or not.
        rows: how many, at least 0.
        first: the index of the first, at least 0.

    Returns:
        int64 of shape (rows,), for the `seeds=` of a design or an estimator.

    Raises:
        TypeError: an argument is not an integer.
        ValueError: an argument is out of range.

    Example:
        >>> import khot
        >>> bool((khot.row_seeds(7, 5)[2:] == khot.row_seeds(7, 3, first=2)).all())
        True
    """
    for name, value, least, most in (
        ("seed", seed, -(2**63), 2**64 - 1),
        ("rows", rows, 0, 2**63 - 1),
        ("first", first, 0, 2**63 - 1),
    ):
        if isinstance(value, bool) or not isinstance(value, int):
            refuse("row_seeds", f"{name} must be an integer", type(value).__name__, TypeError)
        if not least <= value <= most:
            refuse("row_seeds", f"{name} must be in [{least}, {most}]", str(value))
    item, count, index = torch.tensor([[_signed(seed)], [rows], [first]])
    return _seeds_of(item, count, index, rows)


def seeds_of_items(seeds: Tensor, rows: Tensor, first: Tensor | None = None) -> Tensor:
    """Return the seeds of the rows of many items, one item after the other.

    `torch.cat([row_seeds(seed, r) for seed, r in zip(seeds, rows)])`, at once.

    Args:
        seeds: of the items, int64 of shape (I,): any 64 bits.
        rows: how many each has, int64 of shape (I,), at least 0.
        first: the index of each item's first row, likewise; 0 if None.

    Returns:
        int64 of shape (sum of rows,), on the CPU.

    Raises:
        TypeError: an argument is no tensor, or not int64.
        ValueError: a shape does not fit, or a number is negative.

    Example:
        >>> import torch, khot
        >>> several = khot.seeds_of_items(torch.tensor([7, 8]), torch.tensor([2, 3]))
        >>> bool((several == torch.cat([khot.row_seeds(7, 2), khot.row_seeds(8, 3)])).all())
        True
    """
    who, given = "seeds_of_items", {"seeds": seeds, "rows": rows, "first": first}
    for name, value in given.items():
        if value is None and name == "first":
            continue
        if not isinstance(value, Tensor):
            refuse(who, f"{name} must be a torch.Tensor", type(value).__name__, TypeError)
        if value.dtype != torch.int64:
            refuse(who, f"{name} must be int64", str(value.dtype).removeprefix("torch."), TypeError)
        if value.ndim != 1 or value.shape != seeds.shape:
            refuse(who, f"{name} must be one for each item, shape (I,)", f"{tuple(value.shape)}")
        if name != "seeds" and len(value) and int(value.min()) < 0:
            refuse(who, f"{name} must be at least 0", str(int(value.min())))
    seeds, rows = seeds.cpu(), rows.cpu()
    return _seeds_of(seeds, rows, None if first is None else first.cpu(), int(rows.sum()))


def _seeds_of(seeds: Tensor, rows: Tensor, first: Tensor | None, total: int) -> Tensor:
    if splitmix.accepts(seeds, rows):
        return splitmix.row_seeds(seeds, rows, first, total)
    before = rows.cumsum(0) - rows  # the rows of other items
    offset = 1 - before if first is None else first + 1 - before
    start, index = _mix(seeds), torch.arange(total)
    start, offset = (part.repeat_interleave(rows) for part in (start, offset))
    return _mix(start + (index + offset) * _signed(_GOLDEN))


def seeds_for(
    who: str,
    seeds: Tensor | None,
    generator: torch.Generator | None,
    rows: torch.Size,
    device: torch.device,
) -> Tensor:
    """Return one seed for each row, flat: those given, or new ones from the generator."""
    if seeds is None:
        source = generator.device if generator is not None else device
        return torch.randint(
            -(2**63), 2**63 - 1, (rows.numel(),), generator=generator, device=source
        ).to(device)
    if generator is not None:
        refuse(who, "randomness must come from generator or from seeds", "both")
    if not isinstance(seeds, Tensor):
        refuse(who, "seeds must be a torch.Tensor", type(seeds).__name__, TypeError)
    if seeds.dtype != torch.int64:
        refuse(who, "seeds must be int64", str(seeds.dtype).removeprefix("torch."), TypeError)
    if seeds.shape != rows:
        check_fits(who, "seeds", seeds, rows)
        seeds = seeds.expand(rows)
    return seeds.to(device).reshape(-1)


class Source:
    """The random numbers of S samples of R rows: row r of sample s has the counters (., s).

    So the first sample is what the rows draw without others. Shapes begin with (S, R).
    """

    def __init__(self, seeds: Tensor, samples: int = 1) -> None:
        self.seeds, self.samples = seeds, samples

    def __getitem__(self, rows: Tensor | slice) -> "Source":
        """The source of some of the rows, by index or mask."""
        return Source(self.seeds[rows], self.samples)

    def words(self, count: int, *, block: int = 0) -> Tensor:
        """Random 32-bit words, int64 of shape (S, R, count), from the counters of `block` on."""
        if native.accepts(self.seeds):
            return native.fill(self.seeds, self.samples, count, block, torch.int64)
        return words(self.seeds, count, sample=self._sample, block=block)

    def uniforms(self, count: int, *, block: int = 0) -> Tensor:
        """Numbers in (0, 1), shape (S, R, count), from the counters of `block` on.

        float64 with 53 bits; float32 on a device that has no float64.
        """
        if native.accepts(self.seeds):
            return native.fill(self.seeds, self.samples, count, block, torch.float64)
        return uniforms(self.seeds, count, sample=self._sample, block=block)

    def permutations(self, n: int) -> Tensor:
        """A random order of 0, ..., n - 1 for each sample and row, int64 of shape (S, R, n).

        Uses the blocks 0 to ceil(n / 4) - 1.
        """
        return _sorted(self.words(n))

    def shuffles(self, n: int) -> Tensor:
        """Another random order, of the same shape and blocks.

        It is what Fisher and Yates leave in `order`, inside out, with j_i =
        floor((i + 1) w_i / 2^32) of the words w:

            for i in range(n): order[i], order[j_i] = order[j_i], i

        which is one quick pass in C. Here all steps are taken at once: step i finds in
        place j_i the last step before it with the same j, if there is one; if not, what
        step j_i found when it filled that place. Those chains are followed by doubling.
        """
        i = torch.arange(n, device=self.seeds.device)
        j = (self.words(n) * (i + 1)) >> 32
        keys = ((j << 31) | i).sort(-1).values
        place, step = keys >> 31, keys & (2**31 - 1)
        follows = place[..., 1:] == place[..., :-1]
        missing = torch.full_like(j, -1)
        before = missing.scatter(-1, step[..., 1:], torch.where(follows, step[..., :-1], -1))
        last = missing.scatter_reduce(-1, j, i.expand(j.shape), "amax")
        chain = torch.where((before >= 0) | (j == i), i, j)
        for _ in range((n - 1).bit_length()):
            chain = chain.gather(-1, chain)
        found = torch.where(before >= 0, before, i).gather(-1, chain)
        return torch.where(last >= 0, last, found)

    @property
    def _sample(self) -> Tensor:
        return torch.arange(self.samples, device=self.seeds.device).unsqueeze(-1)


def uniforms(seeds: Tensor, count: int, *, sample: int | Tensor = 0, block: int = 0) -> Tensor:
    """Return numbers in (0, 1), shape (R, count), from the counters of `block` on.

    float64 with 53 bits; float32 on a device that has no float64.
    """
    c0, c1, c2, c3 = _blocks(seeds, 2 * count, sample=sample, block=block)
    pairs = torch.stack((_uniform(c0, c1), _uniform(c2, c3)), -1)
    return pairs.flatten(-2)[..., :count]


def _uniform(high: Tensor, low: Tensor) -> Tensor:
    """The odd multiples of 2^-53 from the upper 52 bits of two words, which it overwrites.

    Those bits m make 1 + m 2^-52, which has them as they are; what is subtracted leaves
    m 2^-52 + 2^-53, exactly. It is much quicker than a conversion from int64.
    """
    bits = high.bitwise_left_shift_(20).bitwise_or_(low.bitwise_right_shift_(12))
    if work_dtype(bits) is torch.float64:
        return bits.bitwise_or_(_ONE).view(torch.float64) - (1 - 2.0**-53)
    return (2 * bits + 1).to(work_dtype(bits)) * 2.0**-53


def _sorted(keys: Tensor) -> Tensor:
    """The indices in the order of the words.

    Those are sorted with their index in the lower bits: keys differ, so every sort gives
    the same order.
    """
    index = torch.arange(keys.shape[-1], device=keys.device)
    return ((keys << 31) | index).sort(-1).values & (2**31 - 1)


def words(seeds: Tensor, count: int, *, sample: int | Tensor = 0, block: int = 0) -> Tensor:
    """Return random 32-bit words, int64 of shape (R, count), from `block` on.

    `sample` may be a tensor; then the result begins with what it and seeds broadcast to.
    """
    drawn = _blocks(seeds, count, sample=sample, block=block)
    return torch.stack(drawn, -1).flatten(-2)[..., :count]


def _blocks(seeds: Tensor, count: int, *, sample: int | Tensor, block: int) -> Words:
    """As many blocks of four words as hold `count`, each word (R, blocks)."""
    key = seeds.unsqueeze(-1)
    counter = torch.arange(block, block + -(-count // 4), device=seeds.device)
    zero = torch.zeros_like(counter)
    second = zero + sample if isinstance(sample, int) else sample.unsqueeze(-1)
    return philox((counter, second, zero, zero), (key & _MASK, (key >> 32) & _MASK))


def philox(counter: Words, key: tuple[Tensor, Tensor]) -> Words:
    """Return Philox4x32-10 of words that broadcast against each other.

    In place in one piece of memory, which is twice as quick as new tensors, but for the
    first round, before which no word need be as large as the result. What a word has
    above its lower half is masked away once it has been put where it goes.
    """
    (c0, c1, c2, c3), (k0, k1) = counter, key
    p0, p1 = c0 * _M0, c2 * _M1
    first = ((p1 >> 32) ^ c1 ^ k0) & _MASK, p1, ((p0 >> 32) ^ c3 ^ k1) & _MASK, p0
    shape = torch.broadcast_shapes(*(word.shape for word in (*counter, *key)))
    c0, c1, c2, c3, high = k0.new_empty(5, *shape)
    for word, value in zip((c0, c1, c2, c3), first, strict=True):
        word.copy_(value)
    for _ in range(9):
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
        p0, p1 = c0.mul_(_M0), c2.mul_(_M1)
        torch.bitwise_right_shift(p1, 32, out=high)
        c0 = c1.bitwise_xor_(k0).bitwise_xor_(high).bitwise_and_(_MASK)
        torch.bitwise_right_shift(p0, 32, out=high)
        c2 = c3.bitwise_xor_(k1).bitwise_xor_(high).bitwise_and_(_MASK)
        c1, c3 = p1, p0
    return c0, c1.bitwise_and_(_MASK), c2, c3.bitwise_and_(_MASK)


def _mix(z: Tensor) -> Tensor:
    """splitmix64's permutation of the 64-bit words."""
    z = (z ^ _shifted(z, 30)) * _signed(_MIX1)
    z = (z ^ _shifted(z, 27)) * _signed(_MIX2)
    return z ^ _shifted(z, 31)


def _shifted(z: Tensor, bits: int) -> Tensor:
    """z >> bits, as for an unsigned word."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _signed(word: int) -> int:
    """The int64 with the bits of a 64-bit word."""
    word &= 2**64 - 1
    return word - (word >> 63 << 64)
