"""Every estimator of the registry keeps every promise of its row, on both paths.

One with the option `hard=` is tried both ways.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch

import khot

DTYPES = pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16]
)


@dataclass(frozen=True)
class Variant:
    """A row of the registry, with options that make it hard or relaxed."""

    row: khot.Estimator
    options: tuple[tuple[str, bool], ...] = ()

    def __call__(self, *args: Any, **options: Any) -> torch.Tensor:
        return self.row.function(*args, **dict(self.options), **options)

    @property
    def hard(self) -> bool:
        return dict(self.options).get("hard", self.row.hard)

    def k(self, wanted: int) -> int:
        return self.row.only_k or wanted


VARIANTS = [
    Variant(row, options)
    for row in khot.operators("estimator")
    for options in (((("hard", False),), (("hard", True),)) if "hard" in row.options else ((),))
]
IDS = ["-".join((v.row.name, *(f"{a}={b}" for a, b in v.options))) for v in VARIANTS]
pytestmark = [
    pytest.mark.parametrize("estimator", VARIANTS, ids=IDS),
    pytest.mark.usefixtures("path", "one_thread"),
]


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@DTYPES
def test_value_is_hard_or_relaxed_and_sums_to_k(estimator, dtype):
    k = estimator.k(4)
    z = estimator(normal(100, 30).to(dtype), k, seeds=khot.row_seeds(0, 100))
    assert z.dtype == dtype and z.shape == (100, 30)
    assert bool((z >= 0).all())
    sizes = z.double().sum(-1)
    if estimator.hard:
        assert bool(((z == 0) | (z == 1)).all())
        assert bool((sizes == k).all()) or not estimator.row.fixed_size
    else:
        assert bool(((z > 0) & (z < 1)).any())
        error = 30 * torch.finfo(dtype).eps
        assert bool(((sizes - k).abs() <= error).all())


def test_a_fraction_of_k_is_a_matter_of_chance_or_refused(estimator):
    draw = partial(estimator, normal(6).double().expand(2000, 6), seeds=khot.row_seeds(0, 2000))
    if estimator.row.whole_k or (estimator.hard and not estimator.row.hard):
        with pytest.raises(ValueError, match=f"^{estimator.row.name}: k must be .*; got 2.25"):
            draw(2.25)
        return
    sizes = draw(2.25).sum(-1)
    if estimator.hard:
        assert bool(((sizes == 2) | (sizes == 3)).all())
        error = math.sqrt(0.25 * 0.75 / 2000)
        assert abs(float(sizes.mean()) - 2.25) < 5 * error
    else:
        assert torch.allclose(sizes, torch.full_like(sizes, 2.25), rtol=1e-10)


def test_another_k_is_refused_where_only_one_is_taken(estimator):
    if estimator.row.only_k is None:
        return
    said = f"^{estimator.row.name}: k must be {estimator.row.only_k}; got"
    for k in (0, 2, 1.5, torch.tensor([1, 2])):
        with pytest.raises(ValueError, match=said):
            estimator(normal(2, 5), k)
    tensor = estimator(normal(2, 5), torch.tensor([1, 1]), seeds=khot.row_seeds(0, 2))
    assert torch.equal(tensor, estimator(normal(2, 5), 1, seeds=khot.row_seeds(0, 2)))


def test_gradients_reach_the_promised_arguments_and_no_others(estimator):
    given = {"logits": normal(6).double(), "tau": torch.tensor(0.7).double()}
    k: float | torch.Tensor = estimator.k(2)
    if not estimator.row.one_k:
        given["k"] = torch.tensor(float(k), dtype=torch.float64)
    values = {name: value.requires_grad_() for name, value in given.items()}
    z = estimator(
        values["logits"], values.get("k", k), tau=values["tau"], seeds=khot.row_seeds(0, 1)[0]
    )
    (z * normal(6, seed=1)).sum().backward()
    reached = {name for name, value in values.items() if value.grad is not None}
    assert reached == set(estimator.row.differentiable_in)
    assert all(bool((values[name].grad != 0).any()) for name in reached)


def test_masked_units_are_never_drawn_and_get_no_gradient(estimator):
    logits = normal(200, 12)
    logits[:, ::2] = -torch.inf
    logits.requires_grad_()
    z = estimator(logits, estimator.k(3), seeds=khot.row_seeds(0, 200))
    (z * normal(200, 12, seed=1)).sum().backward()
    assert bool((z[:, ::2] == 0).all()) and bool((logits.grad[:, ::2] == 0).all())
    assert bool(logits.grad.isfinite().all()) and bool((logits.grad[:, 1::2] != 0).any())


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_extreme_logits_give_finite_gradients(estimator, offset):
    logits = (1e4 * normal(50, 8) + offset).requires_grad_()
    z = estimator(logits, estimator.k(3), seeds=khot.row_seeds(0, 50))
    (z * normal(50, 8, seed=1)).sum().backward()
    assert bool(z.isfinite().all()) and bool(logits.grad.isfinite().all())


def test_seeds_make_draws_the_same_alone_in_a_batch_and_in_chunks(estimator):
    logits, seeds, k = normal(8, 99), khot.row_seeds(3, 8), estimator.k(50)
    whole = estimator(logits, k, seeds=seeds)
    assert torch.equal(estimator(logits, k, seeds=seeds), whole)
    chunks = [estimator(logits[b : b + 3], k, seeds=seeds[b : b + 3]) for b in (0, 3, 6)]
    assert torch.equal(torch.cat(chunks), whole)
    for b in (0, 3, 7):
        assert torch.equal(estimator(logits[b], k, seeds=seeds[b]), whole[b])


def test_samples_come_first_and_the_first_is_the_draw_without(estimator):
    logits, seeds = normal(3, 2, 30), khot.row_seeds(0, 6).reshape(3, 2)
    draw = partial(estimator, logits, estimator.k(4), seeds=seeds)
    many = draw(num_samples=5)
    assert many.shape == (5, 3, 2, 30)
    assert torch.equal(many[0], draw()) and torch.equal(many[:1], draw(num_samples=1))
    assert torch.equal(many[:3], draw(num_samples=3))
    assert draw(num_samples=0).shape == (0, 3, 2, 30)
    differ = not torch.equal(many[0], many[1])
    assert differ == khot.operator(estimator.row.law).random
    moved = estimator(logits.movedim(-1, 0), estimator.k(4), num_samples=5, dim=0, seeds=seeds)
    assert torch.equal(moved.movedim(1, -1), many)


def test_the_gradient_of_samples_is_the_sum_of_theirs(estimator):
    if estimator.row.needs_loss:
        return
    g = normal(4, 3, 9, seed=1).double()

    def gradient(weights):
        logits = normal(3, 9).double().requires_grad_()
        z = estimator(logits, estimator.k(4), num_samples=4, seeds=khot.row_seeds(0, 3))
        return torch.autograd.grad(z, logits, weights)[0]

    alone = [
        gradient(torch.zeros_like(g).index_copy(0, torch.tensor([s]), g[s : s + 1]))
        for s in range(4)
    ]
    assert torch.allclose(gradient(g), sum(alone), atol=1e-12)
    first = normal(3, 9).double().requires_grad_()
    z = estimator(first, estimator.k(4), seeds=khot.row_seeds(0, 3))
    assert torch.allclose(torch.autograd.grad(z, first, g[0])[0], alone[0], atol=1e-12)


def test_forward_mode_agrees_with_reverse_mode(estimator):
    """<g, J v> = <J^T g, v>, for logits with a mask."""
    if "forward" in estimator.row.lacks:
        return
    logits, v, g = normal(3, 9).double(), normal(3, 9, seed=1).double(), normal(3, 9, seed=2)
    logits[:, 2] = -torch.inf
    draw = partial(estimator, k=estimator.k(4), seeds=khot.row_seeds(0, 3))
    z, tangent = torch.func.jvp(draw, (logits,), (v,))
    x = logits.clone().requires_grad_()
    again = draw(x)
    assert torch.allclose(z, again)
    (pulled,) = torch.autograd.grad(again, x, g.double())
    assert torch.allclose((tangent * g).sum(), (pulled * v).sum(), rtol=1e-8, atol=1e-10)


def test_a_generator_makes_draws_repeatable(estimator, generator):
    first = estimator(normal(8, 30), estimator.k(5), generator=generator)
    again = estimator(normal(8, 30), estimator.k(5), generator=generator.manual_seed(0))
    assert torch.equal(first, again)


def test_dim_is_the_one_of_the_units(estimator):
    logits, seeds = normal(3, 4, 6).double(), khot.row_seeds(0, 12).reshape(3, 4)
    moved = estimator(logits.movedim(-1, 0), estimator.k(2), dim=0, seeds=seeds)
    assert torch.equal(moved.movedim(0, -1), estimator(logits, estimator.k(2), seeds=seeds))


def test_rows_may_have_their_own_k_and_tau(estimator):
    if estimator.row.one_k:
        return
    logits, seeds, tau = normal(4, 7), khot.row_seeds(0, 4), torch.tensor([0.3, 1.0, 2.0, 5.0])
    k = torch.tensor([estimator.k(k) for k in (0, 1, 3, 7)])
    together = estimator(logits, k, tau=tau, seeds=seeds)
    for b in range(4):
        alone = estimator(logits[b], int(k[b]), tau=float(tau[b]), seeds=seeds[b])
        assert torch.equal(alone, together[b])


def test_the_docstring_says_what_it_is_unbiased_of(estimator):
    row = estimator.row
    said = row.function.__doc__.split("Gradient:")[1].split("Example:")[0]
    assert ("nbiased of" if row.unbiased_of else "iased") in said
    assert row.order in (None, 1, 2) and (row.order is None or row.unbiased_of)
