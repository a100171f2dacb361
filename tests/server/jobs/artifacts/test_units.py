"""units.png shows every unit where it belongs or, of many, those that change most."""

import io

import numpy as np
import pytest
from PIL import Image

from khot_server.jobs.artifacts import Effects
from khot_server.jobs.artifacts.pictures import units
from khot_server.jobs.artifacts.pictures.drawing import DPI, styled


def effects_of(code, changes=None):
    """Those of all units of a code, on 64 pixels; the later ones larger, if none are given."""
    latents, n = code
    if changes is None:
        changes = np.random.default_rng(4).uniform(-0.3, 0.3, (latents * n, 64))
        changes *= np.linspace(0.1, 1, latents * n)[:, None]
    places = tuple((vector, unit) for vector in range(latents) for unit in range(n))
    return Effects(units=places, changes=np.asarray(changes))


def drawn(effects, code, shape):
    with styled():
        png = units.units(effects, code, shape)
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


@pytest.mark.parametrize("shape", [(8, 8), (32, 2), (1, 64), None], ids=str)
@pytest.mark.parametrize(
    "code", [(1, 2), (1, 10), (10, 10), (20, 20), (30, 2), (2, 30), (3, 500)], ids=str
)
def test_codes_of_every_shape_are_drawn_and_nothing_is_cut_off(code, shape):
    image = drawn(effects_of(code), code, shape)
    edges = (image[:2], image[-2:], image[:, :2], image[:, -2:])
    assert all((edge == 255).all() for edge in edges)
    assert max(image.shape) < 11 * DPI, "and it is not too large to be looked at"


@pytest.mark.parametrize("code", [(10, 10), (20, 20), (2, 30)], ids=str)
def test_a_unit_is_red_where_it_brightens_and_blue_where_it_darkens(code):
    """The last but one brightens the upper half; the last darkens the lower, half as much."""
    changes = np.zeros((code[0] * code[1], 8, 8))
    changes[-2, :4], changes[-1, 4:] = 0.2, -0.1
    image = drawn(effects_of(code, changes.reshape(-1, 64)), code, (8, 8))
    # beside the colours of the scale, and of its full height
    image = image[:, : -int(units.KEY * DPI) + 10]
    red, _, blue = np.moveaxis(image, -1, 0)
    reds, blues = np.argwhere(red - blue > 60), np.argwhere(blue - red > 60)
    assert reds[:, 1].max() < blues[:, 1].min(), "one beside the other"
    assert reds[:, 0].max() < blues[:, 0].min() < reds[:, 0].max() + 0.05 * DPI, "in one row"
    assert len(reds) == pytest.approx(len(blues), rel=0.05)
    strongest = [int(image[tuple(part[len(part) // 2])].min()) for part in (reds, blues)]
    assert strongest[0] < strongest[1] - 30, "by the same scale"


def test_of_many_the_largest_are_shown_the_largest_first():
    code = 2, 500
    changes = np.full((1000, 64), 0.01)
    changes[700], changes[900] = 0.1, -0.2
    shown = units._largest(effects_of(code, changes), code)
    assert shown.title == "the 60 largest effects of 1000 units: vector, unit"
    assert shown.labels[:4] == ["1, 400", "1, 200", "0, 0", "0, 1"] and len(shown.labels) == 60
    np.testing.assert_array_equal(shown.changes[:3], changes[[900, 700, 0]])


def test_few_are_all_shown_in_their_order():
    shown = units._largest(effects_of((1, 60)), (1, 60))
    assert shown.title == "what each unit changes"
    assert shown.labels == [str(unit) for unit in range(60)]


def test_units_that_were_not_looked_at_are_counted():
    few = effects_of((1, 1000))
    assert units._largest(few, (1, 5000)).title == "the 60 largest effects of 1000 units (of 5000)"


def test_units_without_an_effect_can_be_drawn():
    assert (drawn(effects_of((2, 3), np.zeros((6, 64))), (2, 3), (8, 8)) != 255).any()
