"""Examples and their split: in proportion, by the seed alone, and refused where they do not fit."""

import hashlib

import pytest
import torch

from khot.training import Examples, Split, split, split_rows

X = torch.arange(1000.0).reshape(500, 2)
Y = torch.cat((torch.zeros(300), torch.ones(150), torch.full((50,), 2.0))).long()


def test_parts_are_disjoint_and_whole():
    parts = split(X, Y)
    firsts = torch.cat([part.x[:, 0] for part in (parts.train, parts.validation, parts.test)])
    assert torch.equal(firsts.sort().values, X[:, 0])
    assert [len(part) for part in (parts.train, parts.validation, parts.test)] == [300, 100, 100]
    for part in (parts.train, parts.validation, parts.test):
        assert torch.equal(part.y, Y[(part.x[:, 0] / 2).long()])


@pytest.mark.parametrize("seed", range(3))
def test_classes_are_in_proportion(seed):
    parts = split(X, Y, seed=seed, validation=0.1, test=0.3)
    assert parts.validation.y.bincount().tolist() == [30, 15, 5]
    assert parts.test.y.bincount().tolist() == [90, 45, 15]


def test_the_seed_decides():
    firsts = [split(X, Y, seed=seed).test.x for seed in (0, 0, 1)]
    assert torch.equal(firsts[0], firsts[1]) and not torch.equal(firsts[0], firsts[2])


def test_parts_are_the_same_on_every_machine_and_day():
    parts = torch.cat(split_rows(Y, seed=7)).numpy().astype("<i8").tobytes()
    wanted = "98302a048d11f8e1223f7c71c52bdbf74e1b7b9bb5fa4e439809d8abd94bcef1"
    assert hashlib.sha256(parts).hexdigest() == wanted


def test_a_regression_is_split_at_random():
    parts = split(X, X[:, 1] / 7, objective="regression", seed=3)
    assert len(parts.validation) == len(parts.test) == 100
    assert parts.test.y.dtype == torch.float32
    # of 300 in the first three fifths, by five standard errors of drawing 100 of 500
    assert abs(int((parts.test.x[:, 0] < 600).sum()) - 60) < 5 * (100 * 0.6 * 0.4 * 0.8) ** 0.5


def test_test_examples_may_be_given():
    given = Examples(torch.zeros(7, 2), torch.zeros(7).long())
    parts = split(X, Y, test=given)
    assert parts.test is given and (len(parts.train), len(parts.validation)) == (400, 100)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"objective": "ranking"}, "objective must be one of classification, regression, recon"),
        (
            {"objective": "regression"},
            r"y must be float32 of shape \(500,\) for regression; got int64",
        ),
        (
            {"objective": "reconstruction"},
            "y must be float32 of the shape of x for reconstruction; got int64",
        ),
        ({"seed": -1}, r"seed must be an integer in \[0, 2\*\*32\); got -1"),
        ({"seed": True}, r"seed must be an integer in \[0, 2\*\*32\); got True"),
        ({"validation": 0}, "validation must be a number between 0 and 1; got 0"),
        ({"test": 1.0}, "test must be a number between 0 and 1; got 1.0"),
        ({"test": 0.0001}, "test must have an example; got 0.0001 of 500"),
        ({"test": 0.5, "validation": 0.5}, "train must keep an example; got 500 of 500"),
    ],
    ids=str,
)
def test_bad_splits_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        split(X, Y, **change)


def test_what_is_to_be_reconstructed_is_x_in_its_range():
    x = X / 1000
    parts = split(x, x, objective="reconstruction")
    assert torch.equal(parts.test.y, parts.test.x) and parts.test.y.shape == (100, 2)
    with pytest.raises(ValueError, match=r"y must be in \[0, 1\] for reconstruction; got others"):
        split(X, X, objective="reconstruction")
    with pytest.raises(ValueError, match=r"y must be float32 of shape \(500,\) for regression"):
        split(x, x, objective="regression")


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.ones(3), torch.zeros(3).long(), r"x must be float32 of shape \(m, n\).*; got"),
        (torch.ones(3, 2).double(), torch.zeros(3).long(), "x must be float32 .*; got float64"),
        (torch.ones(0, 2), torch.zeros(0).long(), "x must be float32"),
        (
            torch.ones(3, 2),
            torch.zeros(3).double(),
            r"y must be int64 or .* \(3,\), .*; got float64",
        ),
        (torch.ones(3, 2), torch.zeros(2).long(), r"y must be int64 or float32 of shape \(3,\)"),
        (torch.ones(3, 2), torch.zeros(3, 1), r"y must be .* \(3,\), or like x; got float32"),
        (torch.ones(3, 2), torch.zeros(3, 2).long(), "y must be .*, or like x; got int64"),
        (torch.ones(3, 2), torch.tensor([0, 1, -1]), "y must be at least 0; got -1"),
        (
            torch.tensor([[0.0, torch.nan], [1.0, 2.0], [torch.inf, torch.inf]]),
            torch.zeros(3).long(),
            "x must be finite; got others in 2 of 3 rows",
        ),
        (
            torch.ones(2, 2),
            torch.tensor([0.0, torch.nan]),
            "y must be finite; got others in 1 of 2",
        ),
    ],
)
def test_bad_examples_are_refused(x, y, message):
    with pytest.raises(ValueError, match=f"^Examples: {message}"):
        Examples(x, y)


def test_parts_that_do_not_fit_are_refused():
    whole, narrow = Examples(X, Y), Examples(X[:, :1], Y)
    with pytest.raises(
        ValueError, match="Split: validation must have the 2 features of train; got 1"
    ):
        Split(whole, narrow, whole)
    with pytest.raises(ValueError, match="Split: test must have a y of the kind of train's; got"):
        Split(whole, whole, Examples(X, Y.float()))
    number, again = Examples(X, Y.float()), Examples(X, X)
    with pytest.raises(ValueError, match="Split: test must have a y of the kind of train's; got"):
        Split(number, number, again)
