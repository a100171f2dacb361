"""Sparse regression through the client: from a field of one's own to its equation."""

import numpy as np
import pytest
from processes import Server

from khot_client import Client, InvalidRequest, SparseRegression, SparseRegressionResult

X, T = np.arange(128) * (2 * np.pi / 128), np.arange(200) * 0.005


def burgers(turned=False):
    """A field of u_t = -u*u_x + 0.1 u_xx, by the transformation of Hopf and Cole."""
    k = np.arange(1, 4)
    heights = np.array([0.5, 0.2, 0.1])
    waves = heights * np.exp(-0.1 * k**2 * T[:, None])
    theta = 1 + np.einsum("tk,kx->tx", waves, np.cos(np.outer(k, X)))
    slope = -np.einsum("tk,kx->tx", waves * k, np.sin(np.outer(k, X)))
    u = -0.2 * slope / theta
    return {"x": X, "t": T, "u": u.T if turned else u}


def uploaded(client, tmp_path, **arrays):
    path = tmp_path / "field.npz"
    np.savez(path, **arrays)
    return client.upload(path)


@pytest.mark.parametrize("turned", [False, True], ids=["(t, x)", "(x, t)"])
def test_the_equation_of_an_uploaded_field_is_found(face, tmp_path, turned):
    data = uploaded(face, tmp_path, **burgers(turned))
    assert data.target == "u_t"
    found = face.submit(SparseRegression(data.id, k=2, intercept=False)).wait()
    assert found.names == ("u_xx", "u*u_x")
    np.testing.assert_allclose(found.coefficients, [0.1, -1], rtol=1e-3)
    assert found.equation == "u_t = 0.1000 u_xx - 1.000 u*u_x"
    assert repr(found).startswith("SparseRegressionResult('u_t = 0.1000 u_xx - 1.000 u*u_x', test=")
    rows = np.random.default_rng(0).normal(size=(4, 3, len(found.scores)))
    wanted = rows[..., found.features] @ found.coefficients
    np.testing.assert_allclose(found.predict(rows), wanted)
    assert found.transform(rows).shape == (4, 3, 2)
    with pytest.raises(InvalidRequest, match="x: must have the 19 features of the job"):
        found.predict(rows[..., 1:])


def test_a_group_of_seeds_agrees(face):
    spec = SparseRegression(k=3, intercept=False, references=False)
    group = face.submit_group(spec, seeds=[0, 1])
    (row,) = group.wait().rows
    assert row.agreement == 1 and row.test["rmse"].mean < 1e-3


SPECS = [
    ({"k": 19}, "k: must be less than 19, the number of features; got 19"),
    ({"k": None}, "k: must be given; got none"),
    ({"k": 3, "estimator": "reinmax"}, "k: must be 1 with reinmax; got 3"),
    ({"k": 3, "target": "v_tt"}, "target: must be a column, such as 'v_t'.*; got 'v_tt'"),
    ({"k": 3, "num_samples": 1}, r"num_samples: must be in \[2, 4096\]; got 1"),
]


@pytest.mark.parametrize(("fields", "message"), SPECS)
def test_what_cannot_be_done_is_refused_at_once(face, fields, message):
    with pytest.raises(InvalidRequest, match=f"spec.sparse_regression.{message}"):
        face.submit(SparseRegression(**fields))


def test_a_bad_field_is_refused_and_leaves_nothing(tmp_path):
    field = burgers()
    holes = field["u"].copy()
    holes[7, 9] = np.nan
    bad = [
        (field | {"x": X**1.01}, "x: must ascend in even steps"),
        (field | {"u": holes}, r"u: must be finite; got nan at t\[7\], x\[9\]"),
        (field | {"u": field["u"][:, 1:]}, r"u: must have the shape \(t, x\)"),
    ]
    state = tmp_path / "state"
    server = Server(state).wait_until_serving()
    try:
        with Client(server.address) as client:
            for arrays, message in bad:
                with pytest.raises(InvalidRequest, match=message):
                    uploaded(client, tmp_path, **arrays)
            assert not list(client.jobs())
    finally:
        server.end()
    for folder in ("datasets", "uploads", "jobs"):
        assert not [path for path in (state / folder).rglob("*") if path.is_file()], folder


def test_an_equation_is_written_as_people_write_it():
    found = SparseRegressionResult(
        features=np.array([0, 1]),
        names=("a", "b"),
        coefficients=np.array([2.0, -1e-7]),
        intercept=-12345.678,
        target="y",
        scores=np.zeros(3),
        inclusion_probabilities=np.ones(3),
        test={"r2": 0.5},
    )
    assert found.equation == "y = 2.000 a - 1.000e-07 b - 1.235e+04"
    assert repr(found) == f"SparseRegressionResult({found.equation!r}, test={{'r2': 0.5}})"
