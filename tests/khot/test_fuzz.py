"""Whatever is asked of an operator, it answers in finite numbers or says what was wrong.

Seeded random calls of every operator, a third of them or more good: values and gradients are
finite (but for a gradient beyond the range of its dtype, which is infinite), sums are k, and
everything else is a ValueError or TypeError in the one form of message.
"""

import math
import random
from typing import Any

import pytest
import torch

import khot

CALLS = 60
INF, NAN = math.inf, math.nan
DTYPES = (torch.float16, torch.float32, torch.float64)
BAD = (None, "x", -1, 0, 1.5, True, NAN, INF, [1], 10**400, torch.tensor(1.0))
GOOD: dict[str, tuple[Any, ...]] = {
    "method": ("exact", "sinkhorn"),
    "p": (2, 4 / 3),
    "fitted": (True, False),
    "permuted": (True, False),
    "rounds": (1, 10),
    "hard": (True, False),
    "flavour": ("simple", "f", "b"),
    "noise": ("sum_of_gamma", "gumbel"),
    "form": ("dft", "dynamic_programme"),
    "strength": (1.0, 1e-3, 1e300),
}


class Caller:
    """Makes calls that are often good, and sometimes wrong in a value, a type or a shape."""

    def __init__(self, row: khot.Operator, seed: int) -> None:
        self.row, self.random = row, random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.rows, self.n = self.random.choice((0, 1, 2, 5)), self.random.randrange(1, 41)
        self.dtype = self.random.choice(DTYPES)
        self.scores = self.make_scores()
        self.k = self.make_k()
        self.given = self.make_options()

    def one_in(self, count: int) -> bool:
        return self.random.randrange(count) == 0

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)

    def make_scores(self) -> torch.Tensor:
        x, info = self.normal(self.rows, self.n), torch.finfo(self.dtype)
        kinds = (x, x, 0 * x, 1e4 * x, x * (info.max / 20), x.sign() * info.max, x * info.tiny)
        x = self.random.choice((*kinds, x.round(), x + 1e4)).to(self.dtype)
        if self.one_in(4):
            share = self.random.choice((0.1, 0.5, 1.0))
            x[torch.rand(x.shape, generator=self.generator) < share] = -INF
        if self.one_in(12) and x.numel():
            x[-1, -1] = self.random.choice((NAN, INF))
        return x

    def make_k(self) -> Any:
        if self.row.kind == "design" and self.one_in(2):
            self.scores = khot.sigmoid_topk(self.normal(self.rows, self.n), self.n / 2).to(
                self.dtype
            )
            return None
        whole = self.random.randrange(self.n + 1)
        k: Any = getattr(self.row, "only_k", None) or whole
        if self.one_in(6):
            k = self.random.choice((k / 3, 1e-12, self.n + 1, -1, NAN, INF, 10**400, True, "2"))
        good = isinstance(k, (int, float)) and not isinstance(k, bool) and abs(k) < 1e9
        if good and not self.row.one_k and self.one_in(2):
            shape = self.random.choice(((self.rows,), (self.rows,), (), (self.rows + 2,)))
            return torch.full(shape, k, dtype=torch.float64)
        return k

    def make_tau(self) -> Any:
        usual, far = (0.01, 0.5, 1, 100.0), (1e-300, 1e-30, 1e-6, 1e6, 1e30, 1e300, 5e-324)
        bad = (0, -1.0, NAN, INF, 10**400, True, "1", None)
        tau = self.random.choice((usual, usual, usual, far, bad)[self.random.randrange(5)])
        if isinstance(tau, float) and self.one_in(2):
            return torch.full((self.rows,), tau, dtype=torch.float64)
        return tau

    def make_options(self) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for name in self.row.options:
            if self.one_in(2):
                given[name] = self.random.choice(GOOD[name])
            elif self.one_in(8):
                given[name] = self.random.choice(BAD)
        if self.row.tau_keyword in self.row.parameters and not self.one_in(3):
            given[self.row.tau_keyword] = self.make_tau()
        if self.row.kind != "relaxation":
            given["seeds"] = khot.row_seeds(0, self.rows)
            if self.one_in(2):
                given["num_samples"] = self.random.choice((0, 1, 5, 5, -1, 2.5))
        return given

    @property
    def is_ordinary(self) -> bool:
        """Whether no gradient can leave the range of its dtype."""
        tau = torch.as_tensor(self.given.get(self.row.tau_keyword, 1.0), dtype=torch.float64)
        scores = self.scores[self.scores > -INF].abs()
        return bool((tau >= 0.01).all()) and bool((scores < 1e5).all())

    def value(self) -> torch.Tensor:
        arguments = (self.scores,) if self.k is None else (self.scores, self.k)
        return self.row.function(*arguments, **self.given)

    def gradients(self, value: torch.Tensor) -> khot.Gradients:
        how = {"cotangent": self.normal(*value.shape).to(self.dtype)}
        if getattr(self.row, "needs_loss", False):
            how = {"losses": self.normal(*value.shape[:-1]).to(self.dtype)}
        if self.one_in(12) and value.numel():
            next(iter(how.values())).view(-1)[0] = NAN
        return khot.vjp(self.row.name, self.scores, self.k, **self.given, **how)


def assert_sums_to_k(caller: Caller, value: torch.Tensor) -> None:
    row, eps = caller.row, torch.finfo(caller.dtype).eps
    totals = value.double().sum((-1, -2) if getattr(row, "ranked", False) else -1)
    entries = value[0].numel() if len(value) else 0
    allowed = entries * eps * max(1.0, float(value.abs().max()) if value.numel() else 0) + 1e-9
    if caller.given.get("method") == "sinkhorn":
        return  # as far as the iteration gets
    if row.kind == "relaxation" or (row.fixed_size and caller.k is not None):
        wanted = torch.as_tensor(caller.k, dtype=torch.float64)
        whole = wanted.floor() == wanted
        assert bool((~whole | ((totals - wanted).abs() <= allowed)).all())


def refused(error: Exception, *whos: str) -> None:
    assert str(error).startswith(tuple(f"{who}: " for who in whos)), repr(error)
    assert "; got " in str(error), repr(error)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("row", khot.operators(), ids=lambda row: row.name)
def test_every_call_is_answered_in_finite_numbers_or_refused_in_words(row):
    answered = 0
    for seed in range(CALLS):
        caller = Caller(row, seed)
        try:
            value = caller.value()
        except (ValueError, TypeError) as error:
            refused(error, row.name)
            continue
        answered += 1
        assert value.dtype == caller.dtype and bool(value.isfinite().all()), seed
        assert_sums_to_k(caller, value)
        if row.kind == "design":
            continue
        try:
            found = caller.gradients(value)
        except (ValueError, TypeError) as error:
            refused(error, "vjp")
            continue
        assert torch.equal(found.value, value), seed
        for gradient in (found.scores, found.k, found.tau):
            if gradient is not None:
                assert not bool(gradient.isnan().any()), seed
                assert bool(gradient.isfinite().all()) or not caller.is_ordinary, seed
    assert answered >= CALLS / 3
