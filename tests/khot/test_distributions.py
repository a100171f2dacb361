"""KSubset against enumeration: values, gradients, draws, shapes and refusals."""

import math

import pytest
import torch

import khot
from khot import testing

pytestmark = pytest.mark.usefixtures("path")

CASES = {
    "n = 8": ([0.3, -1.2, 2.0, 0.1, 0.0, -0.7, 1.5, 0.4], 3),
    "nearly all": ([0.5, -2.0, 1.0, 3.0, 0.0], 4),
    "one of many": ([1.0, -1.0, 0.5, 0.0, 2.0, -3.0, 0.2], 1),
    "ties": ([1.0, 1.0, 1.0, 0.0, 0.0], 2),
    "at 50": ([50.0, -50.0, 20.0, 49.0, -10.0, 48.5, 0.0], 3),
    "an outlier": ([1e4, 0.0, 1.0, -1.0, 0.5], 2),
    "an offset": ([1e6, 1e6 + 1, 1e6 - 2, 1e6 + 0.5], 2),
    "masked": ([0.3, -torch.inf, 2.0, 0.1, -torch.inf, -0.7], 2),
    "a mask of -1e9": ([0.3, -1e9, 2.0, 0.1, -1e9, -0.7], 2),
    "none": ([0.3, -1.2, 2.0], 0),
    "all": ([0.3, -1.2, 2.0], 3),
    "all but the masked": ([0.3, -torch.inf, 2.0], 2),
    "all masked": ([-torch.inf, -torch.inf], 0),
}
ALL_CASES = pytest.mark.parametrize(("values", "k"), CASES.values(), ids=CASES)
SMOOTH = ["n = 8", "nearly all", "one of many", "ties", "masked"]
SMOOTH_CASES = pytest.mark.parametrize(("values", "k"), [CASES[c] for c in SMOOTH], ids=SMOOTH)


def exact(values, k):
    """The subsets of the law's support and their log-probabilities, differentiable."""
    theta = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    z = testing.subsets(len(values), k)
    z = z[(z[:, theta.detach() == -torch.inf] == 0).all(-1)]
    log_p = torch.where(z > 0, theta, 0.0).sum(-1).log_softmax(0)
    return theta, z, log_p


@ALL_CASES
def test_values_are_those_of_enumeration(values, k):
    theta, z, log_p = exact(values, k)
    p = log_p.exp().detach()
    law = khot.KSubset(theta.detach(), k)
    assert torch.allclose(law.log_prob(z), log_p.detach(), rtol=1e-15, atol=1e-10)
    assert float((law.marginals - p @ z).abs().max()) < 1e-10
    assert float((law.mean - law.marginals).abs().max()) == 0
    assert float((law.variance - (p @ z) * (1 - p @ z)).abs().max()) < 1e-10
    assert float((law.joint_inclusion() - z.T @ (p.unsqueeze(-1) * z)).abs().max()) < 1e-10
    entropy = float(-(p * log_p.detach()).nan_to_num().sum())
    assert float(law.entropy()) == pytest.approx(entropy, abs=1e-10)
    assert float(law.kl_to_uniform()) == pytest.approx(math.log(len(z)) - entropy, abs=1e-10)
    scores = torch.where(z > 0, theta.detach(), 0.0).sum(-1)
    assert float(law.log_partition) == pytest.approx(
        float(scores.logsumexp(0)), rel=1e-13, abs=1e-10
    )
    assert float(law.log_prob(law.mode)) == pytest.approx(float(log_p.detach().max()), abs=1e-10)


@ALL_CASES
def test_float32_is_good_to_its_digits(values, k):
    theta = torch.tensor(values)
    law, precise = khot.KSubset(theta, k), khot.KSubset(theta.double(), k)
    for name in ("marginals", "entropy", "kl_to_uniform", "joint_inclusion", "log_partition"):
        got, wanted = (getattr(which, name) for which in (law, precise))
        got, wanted = (x() if callable(x) else x for x in (got, wanted))
        assert got.dtype == torch.float32
        assert torch.allclose(got.double(), wanted, rtol=1e-6, atol=1e-6), name
    z = law.sample((20,), seeds=torch.tensor(0))
    assert torch.allclose(law.log_prob(z).double(), precise.log_prob(z), rtol=1e-6, atol=1e-6)


@SMOOTH_CASES
def test_gradients_are_those_of_enumeration(values, k):
    theta, z, log_p = exact(values, k)
    p = log_p.exp()
    weights = torch.arange(len(z), dtype=torch.float64)
    wanted = {
        "log_prob": log_p @ weights,
        "marginals": (p @ z) @ z[-1],
        "entropy": -(p * log_p).sum(),
        "kl_to_uniform": (p * log_p).sum(),
        "log_partition": torch.where(z > 0, theta, 0.0).sum(-1).logsumexp(0),
        "joint_inclusion": (z.T @ (p.unsqueeze(-1) * z) * torch.outer(z[0], z[-1])).sum(),
    }
    x = theta.detach().clone().requires_grad_()
    law = khot.KSubset(x, k)
    got = {
        "log_prob": law.log_prob(z) @ weights,
        "marginals": law.marginals @ z[-1],
        "entropy": law.entropy(),
        "kl_to_uniform": law.kl_to_uniform(),
        "log_partition": law.log_partition,
        "joint_inclusion": (law.joint_inclusion() * torch.outer(z[0], z[-1])).sum(),
    }
    free = theta.detach() > -torch.inf
    for name, value in wanted.items():
        (first,) = torch.autograd.grad(value, theta, create_graph=True)
        (ours,) = torch.autograd.grad(got[name], x, create_graph=True)
        assert float((ours - first).detach()[free].abs().max()) < 1e-10, name
        assert bool((ours[~free] == 0).all()), name
        (second,) = torch.autograd.grad(first[free].square().sum(), theta, retain_graph=True)
        (again,) = torch.autograd.grad(ours[free].square().sum(), x, retain_graph=True)
        assert float((again - second)[free].abs().max()) < 1e-9, name


@pytest.mark.parametrize("case", ["none", "all", "all but the masked", "an outlier", "at 50"])
def test_gradients_are_finite_where_little_is_left_to_chance(case):
    values, k = CASES[case]
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    law = khot.KSubset(x, k)
    total = law.entropy() + law.log_partition + law.marginals.square().sum()
    total = total + law.log_prob(law.mode) + law.joint_inclusion().sum()
    (first,) = torch.autograd.grad(total, x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert bool(first.isfinite().all()) and bool(second.isfinite().all())
    assert bool((first[x == -torch.inf] == 0).all())


def test_modes_of_torch_agree():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    k = torch.tensor([2, 3, 5])

    def marginals(x):
        return khot.KSubset(x, k).marginals

    covariance = khot.KSubset(x, k).joint_inclusion()
    mu = marginals(x)
    covariance = covariance - mu.unsqueeze(-1) * mu.unsqueeze(-2)
    for mode in (torch.func.jacrev, torch.func.jacfwd):
        jacobian = mode(marginals)(x)
        for b in range(3):
            assert torch.allclose(jacobian[b, :, b], covariance[b], atol=1e-12)
    each = torch.func.vmap(lambda row: khot.KSubset(row, 2).entropy())(x)
    assert torch.allclose(each, khot.KSubset(x, 2).entropy(), atol=1e-12)
    wanted = torch.autograd.functional.hessian(lambda x: khot.KSubset(x, k).entropy().sum(), x)
    assert torch.allclose(
        torch.func.hessian(lambda x: khot.KSubset(x, k).entropy().sum())(x), wanted, atol=1e-10
    )


def test_compiled_without_a_break():
    x = torch.randn(3, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    k = torch.full((3, 1), 2.0, dtype=torch.float64)

    def loss(x):
        mu, rest, _ = khot._ksubset.law(x, k)
        return (mu.square().sum(-1) + rest.squeeze(-1)).sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    (got,) = torch.autograd.grad(compiled(x), x)
    (wanted,) = torch.autograd.grad(loss(x), x)
    assert torch.allclose(got, wanted, atol=1e-6)


def test_draws_have_the_marginals_and_the_pairs():
    draws = 50_000
    law = khot.KSubset(torch.linspace(-2, 2, 8).double(), 3)
    z = law.sample((draws,), seeds=torch.tensor(1))
    assert bool((z.sum(-1) == 3).all())
    pairs = law.joint_inclusion()
    errors = (pairs * (1 - pairs) / draws).sqrt()
    assert bool(((z.T @ z / draws - pairs).abs() <= 5 * errors).all())
    log_p = law.log_prob(z)
    spread = float(log_p.std()) / math.sqrt(draws)
    assert abs(float(-log_p.mean()) - float(law.entropy())) < 5 * spread


def test_draws_depend_on_seed_logits_and_k_alone():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 20, generator=generator)
    k, seeds = torch.tensor([3, 4, 5]), khot.row_seeds(0, 6).reshape(2, 3)
    z = khot.KSubset(x, k).sample((4, 2), seeds=seeds)
    assert z.shape == (4, 2, 2, 3, 20) and bool((z.sum(-1) == k).all())
    alone = khot.KSubset(x[1, 2], 5).sample((8,), seeds=seeds[1, 2])
    assert torch.equal(alone.reshape(4, 2, 20), z[:, :, 1, 2])
    assert torch.equal(khot.KSubset(x, k).sample(seeds=seeds), z[0, 0])
    assert len(alone.unique(dim=0)) > 1


def test_a_generator_makes_draws_repeatable(generator):
    law = khot.KSubset(torch.zeros(5, 30), 7)
    first = law.sample((2,), generator=generator)
    assert not torch.equal(first, law.sample((2,), generator=generator))
    assert torch.equal(first, law.sample((2,), generator=generator.manual_seed(0)))
    assert not law.sample().requires_grad
    assert law.sample((0,)).shape == (0, 5, 30)


def test_k_is_1_is_the_categorical_law():
    x = torch.randn(4, 9, generator=torch.Generator().manual_seed(0)).double()
    law, categorical = khot.KSubset(x, 1), torch.distributions.OneHotCategorical(logits=x)
    assert torch.allclose(law.marginals, categorical.mean, atol=1e-12)
    assert torch.allclose(law.entropy(), categorical.entropy(), atol=1e-12)
    z = categorical.sample((7,))
    assert torch.allclose(law.log_prob(z), categorical.log_prob(z), atol=1e-12)


def test_the_mode_takes_the_first_of_equal_logits():
    law = khot.KSubset(torch.tensor([1.0, 3.0, 1.0, 1.0, -torch.inf]), 2)
    assert law.mode.tolist() == [1, 1, 0, 0, 0]


def test_shapes_and_batches():
    x = torch.randn(2, 1, 5, 7, generator=torch.Generator().manual_seed(0))
    law = khot.KSubset(x, torch.tensor([[[1], [2]]]).reshape(2, 1, 1))
    assert law.batch_shape == (2, 1, 5) and law.event_shape == (7,)
    assert law.entropy().shape == law.log_partition.shape == (2, 1, 5)
    assert law.joint_inclusion().shape == (2, 1, 5, 7, 7)
    assert law.log_prob(law.sample((3,))).shape == (3, 2, 1, 5)
    wide = law.expand((4, 2, 6, 5))
    assert wide.batch_shape == (4, 2, 6, 5) and wide.sample().shape == (4, 2, 6, 5, 7)
    assert torch.equal(wide.marginals[1, :, 3], law.marginals[:, 0])
    assert bool((wide.k == law.k).all())
    single = khot.KSubset(x[0, 0, 0], 3)
    assert single.batch_shape == () and single.entropy().shape == ()
    assert single.log_prob(single.mode.expand(5, 7)).shape == (5,)
    assert khot.KSubset(torch.empty(0, 4), 2).marginals.shape == (0, 4)
    assert khot.KSubset(torch.empty(0, 4), 2).sample((3,)).shape == (3, 0, 4)
    assert bool(law.support.check(law.sample()).all()) and law.support.event_dim == 1


def test_half_precision_and_input_left_alone():
    x = torch.randn(3, 9, generator=torch.Generator().manual_seed(0)).half()
    before = x.clone()
    law = khot.KSubset(x, 4)
    assert law.marginals.dtype == law.sample().dtype == law.entropy().dtype == torch.float16
    assert torch.equal(x, before)


X = torch.zeros(2, 3)
REFUSALS = {
    "a list": ([0.0], 1, TypeError, "logits must be a torch.Tensor; got list"),
    "integers": (torch.zeros(3).long(), 1, TypeError, "logits must be one of .*; got int64"),
    "a scalar": (torch.tensor(1.0), 1, ValueError, "logits must have at least one dimension"),
    "NaN": (torch.tensor([0.0, torch.nan]), 1, ValueError, "finite numbers or -inf; got NaN"),
    "+inf": (torch.tensor([0.0, torch.inf]), 1, ValueError, "finite numbers or -inf; got NaN"),
    "k too large": (X, 4, ValueError, r"k must be in \[0, n\], .*; got k = 4 for n = 3"),
    "k below 0": (X, -1, ValueError, r"k must be in \[0, n\]"),
    "k above the unmasked": (
        torch.tensor([0.0, -torch.inf, 1.0]),
        3,
        ValueError,
        "above -inf; got k = 3 for n = 2",
    ),
    "k not whole": (X, 1.5, ValueError, "k must be whole; got 1.5"),
    "k NaN": (X, torch.nan, ValueError, "k must be whole; got nan"),
    "one of two": (X, torch.tensor([1, 4]), ValueError, "another value in 1 of 2 rows"),
    "k a string": (X, "2", TypeError, "k must be a number or a tensor; got str"),
    "too many k": (X, torch.ones(3), ValueError, r"k must broadcast to the rows, shape \(2,\)"),
}


@pytest.mark.parametrize(("logits", "k", "error", "message"), REFUSALS.values(), ids=REFUSALS)
def test_refusals(logits, k, error, message):
    with pytest.raises(error, match=f"^KSubset: .*{message}"):
        khot.KSubset(logits, k)


BAD = {
    "of another size": (
        torch.tensor([1.0, 1.0, 0.0]),
        ValueError,
        "exactly k ones; got another in 2 of 2",
    ),
    "soft": (torch.tensor([0.5, 0.5, 0.0]), ValueError, "exactly k ones"),
    "of another length": (torch.ones(2), ValueError, r"shape \(2, 3\); got shape \(2,\)"),
    "no tensor": ([1.0, 0.0, 0.0], TypeError, "z must be a torch.Tensor; got list"),
}


@pytest.mark.parametrize(("z", "error", "message"), BAD.values(), ids=BAD)
def test_what_is_no_subset_has_no_log_prob(z, error, message):
    with pytest.raises(error, match=rf"^KSubset\.log_prob: .*{message}"):
        khot.KSubset(X, 1).log_prob(z)


def test_a_masked_unit_has_probability_0():
    law = khot.KSubset(torch.tensor([0.0, -torch.inf, 1.0]), 1)
    assert float(law.log_prob(torch.tensor([0.0, 1.0, 0.0]))) == -torch.inf


def test_seeds_and_generator_exclude_each_other(generator):
    with pytest.raises(ValueError, match=r"^KSubset: .*got both"):
        khot.KSubset(X, 1).sample(seeds=torch.tensor(1), generator=generator)


def test_validation_can_be_left_out():
    law = khot.KSubset(X, 1, validate_args=False)
    assert law.log_prob(torch.tensor([1.0, 1.0, 0.0])).shape == (2,)


def test_repr_says_the_shapes():
    assert repr(khot.KSubset(torch.zeros(3), 2)) == "KSubset(logits of shape (3,), k 2)"
    law = khot.KSubset(torch.zeros(4, 3), 2)
    assert repr(law) == "KSubset(logits of shape (4, 3), k of shape (4,))"
