"""The pictures show what they say, whole, and the same every time."""

import io
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

from khot_server.jobs.artifacts import History
from khot_server.jobs.artifacts.pictures import curves, pictures, selection
from khot_server.jobs.artifacts.pictures.drawing import BLUE, fitted, short, styled, tiled
from khot_server.jobs.records import Point

RGB = tuple(int(BLUE[at : at + 2], 16) for at in (1, 3, 5))


def decoded(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def runs(line):
    """How many times a line of truths becomes true."""
    return int(np.sum(line[1:] & ~line[:-1]) + line[0])


NAMES = {
    "pixels": ["inclusion.png", "curves.png"],
    "again": ["inclusion.png", "reconstructions.png", "curves.png"],
    "table": ["columns.png", "curves.png"],
    "vae": ["reconstructions.png", "samples.png", "units.png", "usage.png", "curves.png"],
    "regression": ["coefficients.png", "columns.png", "predictions.png", "curves.png"],
    "vae_of_table": ["reconstructions.png", "samples.png", "units.png", "usage.png", "curves.png"],
}


@pytest.mark.parametrize("kind", NAMES)
def test_each_kind_has_its_pictures_and_nothing_is_cut_off(kind, request):
    drawn = pictures(request.getfixturevalue(kind))
    assert list(drawn) == NAMES[kind]
    for name, picture in drawn.items():
        image = decoded(picture.png)
        edges = (image[:2], image[-2:], image[:, :2], image[:, -2:])
        assert all((edge == 255).all() for edge in edges), name
        assert (image != 255).any() and picture.caption.endswith(".")


def test_settings_of_the_user_change_no_bit_and_are_left_alone(pixels):
    first = pictures(pixels)
    with mpl.rc_context({"font.size": 30, "savefig.dpi": 20, "axes.facecolor": "red"}):
        assert pictures(pixels) == first
        assert (mpl.rcParams["font.size"], mpl.rcParams["axes.facecolor"]) == (30, "red")
    assert b"matplotlib" not in first["curves.png"].png.lower(), "no version, no date"


@pytest.mark.parametrize("k", [5, 10, 20])
def test_the_chosen_pixels_are_blue_where_they_are(pixels, k):
    result = replace(pixels.result, features=tuple(range(64 - k, 64)))
    with styled():
        image = decoded(selection.inclusion(result, (8, 8), None))
    blue = (image == RGB).all(-1)
    rows = np.nonzero(blue.any(1))[0]
    side = 0.3 * 144  # of a pixel of the data, without the line around it
    assert blue.sum() == pytest.approx(k * side**2, rel=0.1)
    # the last k of 64, so all of them in the lowest rows
    assert (rows.max() - rows.min()) / side == pytest.approx(-(-k // 8), abs=0.15)


def test_the_bars_of_chosen_columns_are_blue(table):
    with styled():
        image = decoded(selection.columns(table.result, table.data.names))
    blue = (image == RGB).all(-1)
    assert max(runs(column) for column in blue.T) == len(table.result.features)


def test_no_more_columns_are_shown_than_can_be_read(table):
    n = 5000
    p = tuple(np.linspace(1, 0, n))
    result = replace(table.result, inclusion_probabilities=p, features=tuple(range(100)))
    with styled():
        image = decoded(selection.columns(result, tuple(map(str, range(n)))))
    assert len(image) < 1400
    assert max(runs(column) for column in (image == RGB).all(-1).T) == selection.MOST_COLUMNS


def test_curves_need_a_measurement_on_validation_rows():
    with styled():
        assert curves.curves(History(), {}) is None
        assert curves.curves(History([Point(1, 1, "x", {"loss": 1.0})]), {}) is None
        assert curves.curves(History([Point(1, 1, "x", {"validation_loss": 1.0})]), {})


def test_curves_show_the_elbo_as_the_loss_that_it_is():
    values = {"loss": 2.0, "validation_loss": 2.0}
    plain = History([Point(step, step, "vae", values) for step in (1, 2)])
    exact = History([Point(s, s, "vae", values | {"validation_elbo": -2.0}) for s in (1, 2)])
    with styled():
        assert curves.curves(plain, {}) == curves.curves(exact, {})


def test_curves_can_have_gaps_and_fall_by_decades():
    history = History(
        Point(step, step, "x", {"validation_loss": value})
        for step, value in enumerate((100.0, float("nan"), 1e-6, 1.0), start=1)
    )
    with styled():
        assert curves.curves(history, {"best": 3, "other": 3})


@pytest.mark.parametrize(
    ("name", "length", "shown"),
    [
        ("age", 10, "age"),
        ("  a\n b\x07c ", 10, "a b c"),
        ("abcdefghij", 5, "ab…ij"),
        ("abcdefghij", 4, "ab…j"),
        ("\x00", 4, ""),
    ],
)
def test_a_name_is_made_to_fit(name, length, shown):
    assert short(name, length) == shown
    assert len(shown) <= length


def test_tiles_are_where_they_belong():
    pictures_of_two = np.arange(3 * 4, dtype=np.float64).reshape(3, 4)
    grid = tiled(pictures_of_two, (2, 2), 2)
    gap = np.nan
    np.testing.assert_array_equal(
        grid,
        [
            [0, 1, gap, 4, 5],
            [2, 3, gap, 6, 7],
            [gap, gap, gap, gap, gap],
            [8, 9, gap, gap, gap],
            [10, 11, gap, gap, gap],
        ],
    )


def test_pixels_are_squares_unless_they_would_not_be_seen():
    assert fitted((28, 28), 3.6, 2.4) == pytest.approx((2.4, 2.4))
    assert fitted((4, 16), 3.6, 2.4) == pytest.approx((3.6, 0.9))
    assert fitted((1, 1000), 3.6, 2.4) == pytest.approx((3.6, 0.48))


def test_a_picture_that_cannot_be_drawn_is_left_out_and_the_log_says_why(pixels, capsys):
    data = replace(pixels.data, class_means=np.zeros((3, 5)))
    assert list(pictures(replace(pixels, data=data))) == ["curves.png"]
    assert "ValueError" in capsys.readouterr().err
