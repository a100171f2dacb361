"""The field solves its equation, and is what is told of it."""

import hashlib
import time

import numpy as np
import pytest

from khot_server.datasets import builtin, fields
from khot_server.datasets import kuramoto_sivashinsky as ks
from khot_server.datasets.table import load

TRUE = ("v_xx", "v_xxxx", "v*v_x")


@pytest.fixture(scope="module")
def field():
    return ks.field()


def test_least_squares_on_the_terms_of_the_equation_finds_their_coefficients():
    made = ks.make()
    x = made.x[:, [made.names.index(name) for name in TRUE]]
    w, *_ = np.linalg.lstsq(x, made.y, rcond=None)
    np.testing.assert_allclose(w, -1, atol=1e-4)
    assert np.sqrt(np.mean((x @ w - made.y) ** 2)) < 3e-4 * made.y.std()


def test_the_field_is_periodic_resolved_and_past_its_transient(field):
    assert fields.is_periodic(field.u)
    waves = np.abs(np.fft.rfft(field.u, axis=1)).mean(0)
    assert waves[100:].max() < 1e-6 * waves.max(), "no wave near the limit of the grid"
    spread = field.u.std(1)
    assert spread.min() > 1.0 and spread.max() < 1.7, "and none that grows or dies"


def test_half_the_step_gives_the_same_field_for_a_while(monkeypatch, field):
    """Of fourth order; later on, chaos parts any two."""
    monkeypatch.setattr(ks, "TRANSIENT", 10.0)
    monkeypatch.setattr(ks, "TIME", 1.0)
    coarse = ks.field().u[0]
    monkeypatch.setattr(ks, "STEP", ks.STEP / 2)
    fine = ks.field().u[0]
    monkeypatch.setattr(ks, "STEP", ks.STEP / 2)
    finest = ks.field().u[0]
    errors = np.abs(coarse - fine).max(), np.abs(fine - finest).max()
    assert errors[0] < 1e-4 and 10 < errors[0] / errors[1] < 25, errors


def test_what_is_told_is_so_to_the_digits_that_are_told(tmp_path):
    told = builtin.dataset("kuramoto-sivashinsky")
    table = load("kuramoto-sivashinsky", tmp_path, None)
    assert table.summary == told.summary and table.sha256 == told.sha256
    assert told.sha256 == hashlib.sha256(ks.RECIPE.encode()).hexdigest()
    bare = builtin.dataset("kuramoto-sivashinsky", columns=False)
    assert bare.summary == told.summary.without_columns()
    summary = told.summary
    *features, target = summary.names()
    assert tuple(features) == ks.NAMES and target == summary.target == "v_t"
    assert table.matrix(features).shape == (summary.rows, summary.features) == (5000, 19)
    for name, column in summary.by_name.items():
        values = table.numbers(name)
        assert not np.isnan(values).any() and len(np.unique(values)) >= 1000 < column.distinct
        found = (values.min(), values.max(), values.mean(dtype=np.float64))
        largest = max(abs(column.min), abs(column.max))
        np.testing.assert_allclose(
            found, (column.min, column.max, column.mean), atol=1e-3 * largest
        )


def test_it_takes_little_time():
    began = time.process_time()
    ks.field()
    assert time.process_time() - began < 5
