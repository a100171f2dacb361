"""Oracles and checks, for our operators and for yours.

Each `check_*` takes an operator as `function(x, k, **options)`, tries it where
soft top-k maps usually break, and raises AssertionError that says where it broke::

    from khot.testing import check_relaxation
    check_relaxation(my_topk)

The oracles compute the same things in another way: bisection in exact rational
steps for the root, and plain enumeration for anything over k-subsets.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, permutations

import torch
from torch import Tensor

from khot._random import row_seeds

Map = Callable[..., Tensor]


def subsets(n: int, k: int) -> Tensor:
    """Return all k-hot vectors of length n, shape (n choose k, n), float64."""
    chosen = torch.tensor(list(combinations(range(n), k)), dtype=torch.int64)
    rows = torch.zeros(len(chosen), n, dtype=torch.float64)
    return rows.scatter_(1, chosen, 1.0) if k else rows


def bisected_topk(x: Tensor, k: float, tau: float = 1.0) -> Tensor:
    """Return sigmoid top-k of one row by plain bisection in float64, to the last bit of c."""
    s = x.double() / tau
    lo, hi = -float(s.max()) - 800.0, -float(s[s > -torch.inf].min()) + 800.0
    while lo < (middle := (lo + hi) / 2) < hi:
        if float(torch.sigmoid(s + middle).sum()) < k:
            lo = middle
        else:
            hi = middle
    return torch.sigmoid(s + hi)


def transport_plan(cost: Tensor, wanted: Tensor, epsilon: float, *, steps: int = 100_000) -> Tensor:
    """Return the entropic transport plan from n units of mass 1 to m anchors, by plain Sinkhorn.

    Args:
        cost: (n, m), float64.
        wanted: the masses of the anchors, which sum to n.
        epsilon: weight of the entropy.
        steps: after so many, or when the columns are within 1e-13, the rows are scaled last.
    """
    columns = torch.zeros_like(wanted)
    for _ in range(steps):
        rows = -torch.logsumexp(columns - cost / epsilon, -1, keepdim=True)
        masses = torch.logsumexp(rows - cost / epsilon, 0)
        off = wanted.log() - (masses + columns)
        columns = columns + off
        if float(off.abs().max()) < 1e-13:
            break
    return torch.softmax(columns - cost / epsilon, -1)


def tournament_law(pi: Sequence[float]) -> dict[tuple[int, ...], float]:
    """Return the law of `tournament_pivotal` for one row: the probability of each k-hot vector.

    By playing all outcomes of all fights in all orders, so for n up to 6 or so.
    """
    law: defaultdict[tuple[int, ...], float] = defaultdict(float)

    def play(units: list[tuple[int, float]], ones: frozenset[int], probability: float) -> None:
        """One round after another; `ones` got 1 in those before."""
        if probability == 0:
            return
        if len(units) == 1:
            unit, p = units[0]
            ones |= {unit} if p > 0.5 else set()
            law[tuple(int(i in ones) for i in range(len(pi)))] += probability
            return
        outcomes: list[tuple[list[tuple[int, float]], frozenset[int], float]] = [([], ones, 1.0)]
        for (i, a), (j, b) in zip(units[::2], units[1::2], strict=False):
            fought = []
            for left, given, q in outcomes:
                if a + b <= 1:
                    first = a / (a + b) if a + b > 0 else 1.0
                    fought += [([*left, (i, a + b)], given, q * first)]
                    fought += [([*left, (j, a + b)], given, q * (1 - first))]
                else:
                    first = (1 - b) / ((1 - a) + (1 - b)) if a + b < 2 else 1.0
                    fought += [([*left, (j, a + b - 1)], given | {i}, q * first)]
                    fought += [([*left, (i, a + b - 1)], given | {j}, q * (1 - first))]
            outcomes = fought
        for left, given, q in outcomes:
            play(left + units[2 * (len(units) // 2) :], given, probability * q)

    orders = list(permutations(enumerate(pi)))
    for order in orders:
        play(list(order), frozenset(), 1 / len(orders))
    return dict(law)


def hard_rows() -> Iterator[tuple[str, Tensor, float]]:
    """Yield (name, x, k): float64 rows on which soft top-k maps have been seen to fail."""
    generator = torch.Generator().manual_seed(0)

    def normal(n: int) -> Tensor:
        return torch.randn(n, generator=generator, dtype=torch.float64)

    yield "one unit", normal(1), 0.3
    yield "two units far apart", torch.tensor([1e4, -1e4], dtype=torch.float64), 1.0
    yield "all equal", torch.full((100,), 3.0, dtype=torch.float64), 37.0
    yield "all equal at 1e17", torch.full((10,), 1e17, dtype=torch.float64), 3.0
    yield "ties", (normal(1000) > 0).double() * 1e3, 37.0
    yield "ties across the threshold", torch.tensor([2.0, 1, 1, 1, 0], dtype=torch.float64), 2.0
    yield "spread 1e4", normal(1000) * 1e4, 37.0
    yield "spread 1e4, fractional k", normal(1000) * 1e4, 37.5
    yield "offset 1e6", normal(1000) + 1e6, 50.0
    yield "offset -1e6", normal(1000) - 1e6, 950.0
    yield "one outlier", torch.cat([normal(783), torch.tensor([1e4])]), 50.0
    yield "one outlier, k = 1", torch.cat([normal(783), torch.tensor([1e4])]), 1.0
    yield "one low outlier", torch.cat([normal(783), torch.tensor([-1e9])]), 50.0
    yield "Cauchy", torch.empty(1000, dtype=torch.float64).cauchy_(generator=generator), 50.0
    yield "log-normal", (normal(1000) * 4).exp(), 50.0
    yield "two clusters", torch.cat([normal(500) - 300, normal(500) + 300]), 400.0
    yield "k = 1e-6", normal(1000), 1e-6
    yield "k = n - 1e-6", normal(1000), 1000 - 1e-6
    yield "k > n / 2", normal(1000), 900.0
    yield "half masked", torch.where(torch.arange(784) % 2 == 0, normal(784), -torch.inf), 50.0
    yield "one unmasked", torch.tensor([0.5] + [-torch.inf] * 9, dtype=torch.float64), 0.25
    yield "n = 1e5", normal(100_000) * 5, 10_000.0


def check_relaxation(
    function: Map,
    *,
    capped: bool = True,
    fractional_k: bool = True,
    largest: float = math.inf,
    ulps: int = 0,
) -> None:
    """Check values, corners, masks and shapes of a soft top-k map.

    Args:
        function: `function(x, k, *, dim=-1)`.
        capped: it promises entries in [0, 1] that sum to k.
        fractional_k: it accepts a k that is not whole.
        largest: n k above which it is not tried, for maps with a column for each rank.
        ulps: how far above 1 rounding may take an entry, for sums of such columns.
    """
    for name, x, wanted in hard_rows():
        k = wanted if fractional_k else max(1.0, round(wanted))
        if k > int((x > -torch.inf).sum()) or x.numel() * k > largest:
            continue
        for dtype in (torch.float64, torch.float32):
            name_here = f"{name}, {dtype}"
            check_row(function, x.to(dtype), k, name=name_here, capped=capped, ulps=ulps)
    x = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(1))
    moved = function(x, 2.0, dim=1)
    assert moved.shape == x.shape, f"dim=1: shape {tuple(moved.shape)} for {tuple(x.shape)}"
    again = function(x.movedim(1, -1), 2.0).movedim(-1, 1)
    assert torch.allclose(moved, again, atol=1e-6), "dim=1 differs from moving that dimension last"


def check_row(
    function: Map,
    x: Tensor,
    k: float,
    *,
    name: str = "row",
    capped: bool = True,
    ulps: int = 0,
) -> None:
    """Check one row: finite, in range, masked units exactly 0, sum within 4e-7 of k."""
    p = function(x, k)
    assert p.dtype == x.dtype and p.shape == x.shape, f"{name}: {p.dtype} {tuple(p.shape)}"
    assert bool(p.isfinite().all()), f"{name}: not finite"
    assert bool((p[x == -torch.inf] == 0).all()), f"{name}: a masked unit is not 0"
    if capped:
        most = 1 + ulps * torch.finfo(p.dtype).eps
        assert bool(((p >= 0) & (p <= most)).all()), f"{name}: leaves [0, 1]"
        error = abs(float(p.double().sum()) - k) / k
        tolerance = 4e-7 if p.dtype == torch.float32 else 1e-10
        assert error <= tolerance, f"{name}: sum is off by {error:.1e} of k"


def check_gradient(function: Map, x: Tensor, k: float, *, step: float = 1e-6) -> None:
    """Check reverse and forward mode in x against central differences, in float64."""
    x = x.double()
    n = x.numel()
    basis = torch.eye(n, dtype=torch.float64) * step
    differences = [(function(x + e, k) - function(x - e, k)) / (2 * step) for e in basis]
    wanted = torch.stack(differences, -1)
    for mode in (torch.func.jacrev, torch.func.jacfwd):
        got = mode(lambda x: function(x, k))(x)
        error = float((got - wanted).abs().max())
        assert error < 1e-7, f"{mode.__name__} is off by {error:.1e} from finite differences"


def check_order(function: Map, x: Tensor, k: float, *, ulps: int = 0) -> None:
    """Check that a larger score never gets a smaller entry, but for so many roundings of 1."""
    p = function(x, k)[x.argsort()]
    least = -ulps * torch.finfo(p.dtype).eps
    assert bool((p.diff() >= least).all()), "a larger score got a smaller entry"


def check_shift(function: Map, x: Tensor, k: float, *, shift: float = 100.0) -> None:
    """Check that adding a constant to the scores changes nothing."""
    difference = float((function(x + shift, k) - function(x, k)).abs().max())
    assert difference < 1e-12, f"a shift of {shift} changed the result by {difference:.1e}"


def check_inclusion(design: Map, pi: Tensor, *, draws: int = 100_000, seed: int = 0) -> float:
    """Check that a design draws each unit with its probability in pi, at five standard errors.

    Args:
        design: `design(pi, *, seeds)`, called once with a row for each draw.
        pi: one row of inclusion probabilities; 0 and 1 are checked for every draw.
        draws: how many.
        seed: from which the rows get theirs.

    Returns:
        The greatest deviation, in standard errors.
    """
    pi = pi.double()
    z = design(pi.expand(draws, -1), seeds=row_seeds(seed, draws)).double()
    certain = (pi == 0) | (pi == 1)
    assert bool((z == pi)[:, certain].all()), "a unit at exactly 0 or 1 did not get that"
    errors = (pi * (1 - pi) / draws).sqrt()[~certain]
    deviations = ((z.mean(0) - pi)[~certain] / errors).abs()
    worst = float(deviations.max()) if deviations.numel() else 0.0
    assert worst <= 5, f"an inclusion probability is off by {worst:.1f} standard errors"
    return worst


def check_fixed_size(design: Map, pi: Tensor, *, draws: int = 1000, seed: int = 0) -> None:
    """Check that every draw has zeros, and exactly round(sum(pi)) ones."""
    z = design(pi.expand(draws, -1), seeds=row_seeds(seed, draws))
    assert z.dtype == pi.dtype and z.shape == (draws, len(pi)), f"{z.dtype} {tuple(z.shape)}"
    assert bool(((z == 0) | (z == 1)).all()), "an entry is neither 0 nor 1"
    sizes = z.double().sum(-1)
    wanted = round(float(pi.double().sum()))
    assert bool((sizes == wanted).all()), f"{int((sizes != wanted).sum())} draws of another size"
