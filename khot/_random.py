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

_MASK = 0xFFFFFFFF
_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_GOLDEN = 0x9E3779B97F4A7C15
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
    start = _mix(torch.tensor([_signed(seed)]))
    index = torch.arange(rows) + _signed(first + 1)
    return _mix(start + index * _signed(_GOLDEN))


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
    check_fits(who, "seeds", seeds, rows)
    return seeds.to(device).expand(rows).reshape(-1)


def uniforms(seeds: Tensor, count: int, *, sample: int = 0, block: int = 0) -> Tensor:
    """Return numbers in (0, 1), shape (R, count), from the counters of `block` on.

    float64 with 53 bits; float32 on a device that has no float64.
    """
    high, low = words(seeds, 2 * count, sample=sample, block=block).unflatten(1, (-1, 2)).unbind(-1)
    odd: Tensor = (high << 21) | (low >> 11) | 1
    return odd.to(work_dtype(seeds)) * 2.0**-53


def permutations(seeds: Tensor, n: int, *, sample: int = 0) -> Tensor:
    """Return a random order of 0, ..., n - 1 for each seed, int64 of shape (R, n).

    Random words are sorted with their index in the lower bits: keys differ, so
    every sort gives the same order. Uses the blocks 0 to ceil(n / 4) - 1.
    """
    index = torch.arange(n, device=seeds.device)
    keys = (words(seeds, n, sample=sample) << 31) | index
    return keys.sort(-1).values & (2**31 - 1)


def words(seeds: Tensor, count: int, *, sample: int = 0, block: int = 0) -> Tensor:
    """Return random 32-bit words, int64 of shape (R, count), from `block` on."""
    key = seeds.unsqueeze(-1)
    counter = torch.arange(block, block + -(-count // 4), device=seeds.device)
    zero = torch.zeros_like(counter)
    drawn = philox((counter, zero + sample, zero, zero), (key & _MASK, (key >> 32) & _MASK))
    return torch.stack(drawn, -1).flatten(1)[:, :count]


def philox(counter: Words, key: tuple[Tensor, Tensor]) -> Words:
    """Return Philox4x32-10 of words that broadcast against each other."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        p0, p1 = c0 * _M0, c2 * _M1
        c0, c1 = ((p1 >> 32) & _MASK) ^ c1 ^ k0, p1 & _MASK
        c2, c3 = ((p0 >> 32) & _MASK) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    return c0, c1, c2, c3


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
