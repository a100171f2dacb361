"""What a subset costs is ridge regression on it, and its gradient is what each column is worth."""

from itertools import combinations, product

import pytest
import torch

from khot.models._subset_risk import (
    Moments,
    least_squares,
    orthogonal_matching_pursuit,
    subset_risk,
)

N, M, RIDGE = 6, 40, 0.03


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(0)
    mixed = torch.randn(N, N, generator=generator, dtype=torch.float64)
    x = torch.randn(M, N, generator=generator, dtype=torch.float64) @ mixed
    y = torch.randn(M, generator=generator, dtype=torch.float64) + x[:, 1] - x[:, 4]
    return x, y


@pytest.fixture(scope="module")
def moments(data):
    x, y = data
    return Moments(x.T @ x / M, x.T @ y / M, y @ y / M)


def ridge_regression(data, columns, ridge=RIDGE):
    """What is left, by least squares on the rows and one more for each column."""
    x, y = data
    if not columns:
        return y.square().mean()
    chosen = x[:, list(columns)] / M**0.5
    rows = torch.cat((chosen, ridge**0.5 * torch.eye(len(columns), dtype=torch.float64)))
    wanted = torch.cat((y / M**0.5, torch.zeros(len(columns), dtype=torch.float64)))
    w = torch.linalg.lstsq(rows, wanted).solution
    return (rows @ w - wanted).square().sum()


def mask(*subsets):
    z = torch.zeros(len(subsets), N, dtype=torch.float64)
    for row, columns in zip(z, subsets, strict=True):
        row[list(columns)] = 1
    return z


@pytest.mark.parametrize("k", range(1, N + 1))
def test_a_subset_costs_what_ridge_regression_on_it_leaves(data, moments, k):
    subsets = list(combinations(range(N), k))
    wanted = torch.stack([ridge_regression(data, columns) for columns in subsets])
    torch.testing.assert_close(subset_risk(mask(*subsets), moments, RIDGE), wanted)


@pytest.mark.parametrize("k", range(1, N + 1))
def test_the_gradient_is_the_difference_that_each_column_makes(data, moments, k):
    subsets = list(combinations(range(N), k))
    z = mask(*subsets).requires_grad_()
    subset_risk(z, moments, RIDGE).sum().backward()
    for columns, row in zip(subsets, z.grad, strict=True):
        for i in range(N):
            with_it, without = set(columns) | {i}, set(columns) - {i}
            wanted = ridge_regression(data, sorted(with_it)) - ridge_regression(
                data, sorted(without)
            )
            torch.testing.assert_close(row[i], wanted)


def test_on_average_it_is_the_gradient_of_the_mean_cost_of_independent_columns(data, moments):
    """By enumeration: E f is differentiated, and so is E of the gradient, by the same law."""
    p = torch.linspace(0.2, 0.8, N, dtype=torch.float64, requires_grad=True)
    mean = torch.zeros((), dtype=torch.float64)
    slopes = torch.zeros(N, dtype=torch.float64)
    for bits in product((0.0, 1.0), repeat=N):
        z = torch.tensor(bits, dtype=torch.float64)
        chance = (p * z + (1 - p) * (1 - z)).prod()
        columns = z.nonzero().flatten().tolist()
        mean = mean + chance * ridge_regression(data, columns)
        if columns:
            row = z[None].clone().requires_grad_()
            subset_risk(row, moments, RIDGE).sum().backward()
            slopes += chance.detach() * row.grad[0]
        else:  # no mask is empty, but the mean is over all
            alone = torch.stack([ridge_regression(data, [i]) for i in range(N)])
            slopes += chance.detach() * (alone - moments.square)
    (wanted,) = torch.autograd.grad(mean, p)
    torch.testing.assert_close(slopes, wanted)


def test_columns_that_are_the_same_cost_no_more_than_one(data, moments):
    x, y = data
    twice = torch.cat((x, x[:, :1]), 1)
    both = Moments(twice.T @ twice / M, twice.T @ y / M, y @ y / M)
    z = torch.zeros(1, N + 1, dtype=torch.float32)
    z[0, [0, N]] = 1
    z.requires_grad_()
    risk = subset_risk(z, both, 1e-8)
    torch.testing.assert_close(risk, ridge_regression(data, [0], 0.5e-8)[None])
    risk.backward()
    assert z.grad.dtype == torch.float32 and z.grad.isfinite().all()
    chosen = torch.tensor([0, N])
    assert least_squares(both, chosen).std() < 1e-9, "the shortest has them alike"


def test_the_pursuit_takes_what_explains_most_of_the_rest(data, moments):
    x, y = data
    left, chosen = y, []
    for _ in range(3):
        worth = (x.T @ left).abs()
        worth[[*chosen, 2]] = -1
        chosen.append(int(worth.argmax()))
        left = y - x[:, chosen] @ torch.linalg.lstsq(x[:, chosen], y).solution
    excluded = torch.zeros(N, dtype=torch.bool)
    excluded[2] = True
    found = orthogonal_matching_pursuit(moments, 3, excluded)
    assert found.tolist() == sorted(chosen)
