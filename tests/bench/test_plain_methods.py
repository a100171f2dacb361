"""The plain methods are the published ones: their sizes, their laws and their gradients."""

import runpy
from itertools import permutations
from pathlib import Path

import pytest
import torch

import khot
from khot import testing

PLAIN = runpy.run_path(str(Path(__file__).with_name("plain_methods.py")))
METHODS = PLAIN["METHODS"]
N, K, DRAWS = 6, 3, 40_000


@pytest.fixture
def logits():
    torch.manual_seed(0)
    return torch.randn(2, N, dtype=torch.float64).requires_grad_()


@pytest.fixture
def g():
    return torch.randn(2, N, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def gradient(z, logits, g):
    return torch.autograd.grad((z * g).sum(), logits)[0]


def assert_same_share(z, expected, draws=DRAWS, *, of=1):
    """Within 5 standard errors, of shares of `of` samples that are both random where it is 2."""
    error = (of * expected * (1 - expected) / draws).sqrt()
    assert ((z - expected).abs() <= 5 * error + 1e-9).all()


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples_have_the_shape_and_dtype_of_the_logits(name, dtype):
    z = METHODS[name](torch.randn(4, 20, dtype=dtype), 5, 3)
    assert z.shape == (3, 4, 20) and z.dtype == dtype and z.isfinite().all()


@pytest.mark.parametrize("name", [name for name in METHODS if name != "ncpss"])
def test_samples_sum_to_k(name):
    z = METHODS[name](torch.randn(4, 50), 7, 30)
    torch.testing.assert_close(z.sum(-1), torch.full((30, 4), 7.0))


@pytest.mark.parametrize("name", ["ncpss", "simple", "pi_st", "pi_st2", "gumbel_sigmoid_hard"])
def test_hard_samples_are_zeros_and_ones(name):
    z = PLAIN[name](torch.randn(4, 50, dtype=torch.float64), 7, 30)
    torch.testing.assert_close(z, z.round())
    assert set(z.round().unique().tolist()) == {0.0, 1.0}


def test_sigmoid_topk_is_ours(logits, g):
    p, ours = PLAIN["sigmoid_topk"](logits, K), khot.sigmoid_topk(logits, K)
    torch.testing.assert_close(p, ours, rtol=0, atol=1e-8)
    torch.testing.assert_close(gradient(p, logits, g), gradient(ours, logits, g), rtol=1e-6, atol=0)


def test_simple_draws_each_subset_as_often_as_its_law_says(logits):
    z, all_of_them = METHODS["simple"](logits, K, DRAWS), testing.subsets(N, K)
    law = (logits.detach() @ all_of_them.T).softmax(-1)
    drawn = (z.detach().round().unsqueeze(-2) == all_of_them).all(-1).double().mean(0)
    assert_same_share(drawn, law)


@pytest.mark.parametrize("name", ["pi_st", "pi_st2"])
def test_inclusion_probabilities_are_those_of_the_design(name, logits):
    pi = khot.sigmoid_topk(logits.detach(), K)
    expected = khot.adjusted_pareto(pi, num_samples=DRAWS, seeds=khot.row_seeds(0, 2)).mean(0)
    drawn = METHODS[name](logits, K, DRAWS).detach().mean(0)
    assert_same_share(drawn, expected, of=2)
    assert (drawn - pi).abs().max() < 0.02  # the design is not exact, but that near at d = 1


def test_ncpss_includes_units_as_often_as_ours(logits):
    expected = khot.ncpss(logits, K, num_samples=DRAWS, seeds=khot.row_seeds(0, 2)).detach()
    drawn = METHODS["ncpss"](logits, K, DRAWS).detach()
    assert_same_share(drawn.mean(0), expected.mean(0), of=2)
    torch.testing.assert_close(drawn.sum(-1).mean(0), expected.sum(-1).mean(0), rtol=0, atol=0.05)


def test_gumbel_sigmoid_draws_one_after_another_without_replacement(logits):
    expected = torch.zeros(2, N, dtype=torch.float64)
    for row, weights in enumerate(logits.detach().exp()):
        for order in permutations(range(N), K):
            left = weights.sum() - weights[list(order)].cumsum(0) + weights[list(order)]
            expected[row, list(order)] += (weights[list(order)] / left).prod()
    drawn = PLAIN["gumbel_sigmoid_hard"](logits, K, DRAWS).detach().mean(0)
    assert_same_share(drawn, expected)


@pytest.mark.parametrize("name", ["ncpss", "simple", "pi_st"])
def test_gradient_is_that_of_our_estimator(name, logits, g):
    """At a given cotangent it does not depend on the draw."""
    ours = khot.operator(name).function(logits, K, num_samples=3, seeds=khot.row_seeds(0, 2))
    plain = METHODS[name](logits, K, 3)
    torch.testing.assert_close(gradient(plain, logits, g), gradient(ours, logits, g))


def test_gradient_of_pi_st2_is_that_of_algorithm_5(logits, g):
    z = METHODS["pi_st2"](logits, K, 1)

    def along(p):
        d = p * (1 - p)
        return d * g - d * (d * g).sum(-1, keepdim=True) / d.sum(-1, keepdim=True)

    pi = khot.sigmoid_topk(logits.detach(), K)
    expected = 2 * along((z.detach().squeeze(0) + pi) / 2) - along(pi) / 2
    torch.testing.assert_close(gradient(z, logits, g), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "relaxation"),
    [("softsub", khot.sequential_softmax_topk), ("gumbel_sigmoid", khot.sigmoid_topk)],
)
def test_relaxed_samples_are_our_relaxation_of_noisy_logits(name, relaxation, logits, g):
    torch.manual_seed(3)
    plain = METHODS[name](logits, K, 4)
    torch.manual_seed(3)
    ours = relaxation(PLAIN["noisy"](logits, 4), K)
    torch.testing.assert_close(plain, ours, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(
        gradient(plain, logits, g), gradient(ours, logits, g), rtol=1e-5, atol=1e-7
    )


def test_simple_is_stable_at_the_size_of_table_3():
    torch.manual_seed(0)
    logits = torch.randn(1, 784).requires_grad_()
    g = torch.randn(784)
    plain = gradient(METHODS["simple"](logits, 50, 2), logits, g)
    ours = gradient(khot.simple(logits, 50, num_samples=2), logits, g)
    torch.testing.assert_close(plain, ours, rtol=1e-2, atol=1e-4)
