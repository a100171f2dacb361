"""Candidate terms of a field: right to many digits, periodic or not, uploaded in any order."""

import numpy as np
import pytest

from khot_server.datasets import fields
from khot_server.datasets.fields import Field, is_periodic, names_of, terms, weights
from khot_server.datasets.read_npz import read_npz
from khot_server.datasets.records import BadTable

X, T = np.arange(64) * (2 * np.pi / 64), np.arange(40) * 0.02
SPEED, DECAY = 1.5, 0.3


def wave(x=X, t=T):
    """Of u_t = -1.5 u_x + 0.3 u_xx: a wave that travels and fades."""
    at = x - SPEED * t[:, None]
    fading = np.exp(-DECAY * t[:, None])
    return np.sin(at) * fading + 0.3 * np.cos(3 * at) * fading**9


def field(x=X, t=T):
    return Field(x, t, wave(x, t))


CUT = field(X[:50] + 3.0)  # the end of which does not meet its beginning


def by_name(found):
    return dict(zip(found.names, found.x.T, strict=True)) | {found.target: found.y}


@pytest.mark.parametrize(("of", "periodic"), [(field(), True), (CUT, False)], ids=["ring", "cut"])
def test_terms_are_those_of_the_field(of, periodic):
    assert is_periodic(of.u) is periodic
    found = terms(of, 10**6)
    named = by_name(found)
    across = len(of.x) if periodic else len(of.x) - 2 * fields.REACH_X
    assert len(found.y) == across * (len(of.t) - 2 * fields.REACH_T), "all that there are"
    inner = slice(None) if periodic else slice(fields.REACH_X, -fields.REACH_X)
    x, t = of.x[inner], of.t[fields.REACH_T : -fields.REACH_T, None]
    at, fading = x - SPEED * t, np.exp(-DECAY * t)
    exact = {
        "u": np.sin(at) * fading + 0.3 * np.cos(3 * at) * fading**9,
        "u_x": np.cos(at) * fading - 0.9 * np.sin(3 * at) * fading**9,
        "u_xx": -np.sin(at) * fading - 2.7 * np.cos(3 * at) * fading**9,
        "u_xxx": -np.cos(at) * fading + 8.1 * np.sin(3 * at) * fading**9,
        "u_xxxx": np.sin(at) * fading + 24.3 * np.cos(3 * at) * fading**9,
    }
    tolerance = 1e-10 if periodic else 1e-3
    for name, values in exact.items():
        np.testing.assert_allclose(named[name], values.ravel(), atol=tolerance)
    np.testing.assert_allclose(named["u^3"], named["u"] ** 3)
    np.testing.assert_allclose(named["u^2*u_xxx"], named["u"] ** 2 * named["u_xxx"])
    equation = -SPEED * exact["u_x"] + DECAY * exact["u_xx"]
    np.testing.assert_allclose(named["u_t"], equation.ravel(), atol=1e-6)


def test_an_odd_number_of_points_is_differentiated_as_well():
    x = np.arange(63) * (2 * np.pi / 63)
    named = by_name(terms(field(x), 10**6))
    t = T[fields.REACH_T : -fields.REACH_T, None]
    at, fading = x - SPEED * t, np.exp(-DECAY * t)
    exact = -np.cos(at) * fading + 8.1 * np.sin(3 * at) * fading**9
    np.testing.assert_allclose(named["u_xxx"], exact.ravel(), atol=1e-10)


@pytest.mark.parametrize("order", fields.ORDERS)
def test_differences_are_exact_of_polynomials(order):
    reach = 5
    points = np.arange(-reach, reach + 1).astype(float)
    for degree in range(2 * reach + 1):
        wanted = float(np.prod(np.arange(1, order + 1))) if degree == order else 0.0
        found = weights(order, reach) @ points**degree
        assert found == pytest.approx(wanted, abs=1e-11 * (5.0**degree + 1))


def test_the_first_differences_are_the_known_ones():
    assert weights(1, 1).tolist() == [-0.5, 0, 0.5] and weights(2, 1).tolist() == [1, -2, 1]
    assert weights(4, 2).tolist() == [1, -4, 6, -4, 1]
    np.testing.assert_allclose(weights(1, 2) * 12, [1, -8, 0, 8, -1], atol=1e-14)


def test_a_grid_that_has_both_ends_of_a_period_is_none():
    x = np.linspace(0, 2 * np.pi, 65)
    assert not is_periodic(wave(x)), "the same point twice is a step of zero"


def test_noise_does_not_hide_a_jump_nor_a_ring():
    noise = 1e-3 * np.random.default_rng(0).normal(size=(40, 64))
    assert is_periodic(wave() + noise) and not is_periodic(CUT.u + noise[:, :50])


def test_points_are_chosen_by_the_seed():
    first, again, other = (terms(field(), 50, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.x, again.x)
    assert len(first.y) == 50 and not np.array_equal(first.y, other.y)


def test_names_are_those_of_the_equation():
    assert names_of("v")[:5] == ("v", "v^2", "v^3", "v_x", "v_xx")
    assert {"v_xxxx", "v*v_x", "v^3*v_xxxx"} < set(names_of("v")) and len(names_of("v")) == 19


@pytest.mark.parametrize("turned", [False, True], ids=["(t, x)", "(x, t)"])
def test_an_uploaded_field_is_a_table_of_terms(read, npz, turned):
    u = wave()
    found = read(read_npz, npz(x=X, t=T, u=u.T if turned else u))
    assert found.summary.target == "u_t" and found.summary.rows == 64 * 32
    assert tuple(found.columns) == (*names_of("u"), "u_t")
    x = found.table.matrix(["u_x", "u_xx"]).astype(np.float64)
    w, *_ = np.linalg.lstsq(x, found.table.numbers("u_t"), rcond=None)
    np.testing.assert_allclose(w, [-SPEED, DECAY], atol=1e-5)


def test_a_field_of_other_numbers_and_many_points_is_read(read, npz):
    t = np.arange(400) * 0.02
    u = np.round(1000 * wave(t=t)).astype(np.int32)
    found = read(read_npz, npz(x=X.astype(np.float32), t=t, u=np.asfortranarray(u)))
    assert found.summary.rows == 10_000 and found.columns["u"].max <= 1300


def changed(values, place, value):
    made = values.copy()
    made[place] = value
    return made


BAD = {
    "uneven x": ({"x": changed(X, 5, X[5] + 0.02)}, "x: must ascend in even steps; got some from"),
    "uneven t": ({"t": T**1.1}, "t: must ascend in even steps; got some from"),
    "falling": ({"x": X[::-1]}, "x: must ascend in even steps; got 6.18"),
    "standing": ({"t": np.zeros(40)}, "t: must ascend in even steps; got 0, then 0"),
    "a grid with NaN": ({"x": changed(X, 3, np.nan)}, "x: .*got some that are not finite"),
    "a grid in two dimensions": (
        {"x": X[None]},
        r"x: must have one dimension; got shape \(1, 64\)",
    ),
    "few places": (
        {"x": X[:15], "u": wave()[:, :15]},
        "x: must have at least 16 points; got 15",
    ),
    "few times": ({"t": T[:3], "u": wave()[:3]}, "t: must have at least 16 points; got 3"),
    "NaN": (
        {"u": changed(wave(), (3, 5), np.nan)},
        r"u: must be finite; got nan at t\[3\], x\[5\]",
    ),
    "infinite": (
        {"u": changed(wave(), (3, slice(5, 8)), np.inf)},
        r"u: must be finite; got inf at t\[3\], x\[5\] and 2 more",
    ),
    "another shape": ({"u": wave()[:, :30]}, r"u: .* \(t, x\), here \(40, 64\); got \(40, 30\)"),
    "one more dimension": ({"u": wave()[None]}, r"got \(1, 40, 64\)"),
    "text": ({"u": wave().astype("U8")}, "u: must hold numbers; got dtype <U8"),
    "nothing moves": ({"u": np.ones((40, 64))}, "u: must have different values; got 1 everywhere"),
}


@pytest.mark.parametrize(("arrays", "message"), BAD.values(), ids=BAD)
def test_what_is_no_field_is_refused(read, npz, arrays, message):
    with pytest.raises(BadTable, match=message):
        read(read_npz, npz(**({"x": X, "t": T, "u": wave()} | arrays)))


def test_a_square_field_is_taken_for_times_by_places(read, npz):
    t = np.arange(64) * 0.01
    found = read(read_npz, npz(x=X, t=t, u=wave(t=t)))
    x = found.table.matrix(["u_x", "u_xx"]).astype(np.float64)
    w, *_ = np.linalg.lstsq(x, found.table.numbers("u_t"), rcond=None)
    np.testing.assert_allclose(w, [-SPEED, DECAY], atol=1e-5)
