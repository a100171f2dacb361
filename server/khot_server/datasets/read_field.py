"""A field u(t, x) that was uploaded: `x` (nx,), `t` (nt,) and `u` (nt, nx), on an even grid.

Nobody's equation is found from a field that is not what it seems, so what is doubtful is refused: a
grid that is not even, on which no difference is a derivative; and values that are missing.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from khot_server.datasets.fields import LEAST_POINTS, Field, Floats
from khot_server.datasets.records import BadTable

FIELD = ("x", "t", "u")
ROWS = 10_000  # points that become rows, at most
EVEN = 1e-3  # of the spacing, by which a step may differ: float32 grids do


def field_of(arrays: Mapping[str, NDArray[Any]]) -> Field:
    """Return the field in these arrays.

    A u of (nx, nt) is turned round; where both are the same number, it is taken for (nt, nx).

    Raises:
        BadTable: they make none.
    """
    for name in FIELD:
        if arrays[name].dtype.kind not in "uif":
            raise BadTable(f"{name}: must hold numbers; got dtype {arrays[name].dtype}")
    x, t = _grid("x", arrays["x"]), _grid("t", arrays["t"])
    u, shape = arrays["u"], (len(t), len(x))
    if u.shape not in (shape, shape[::-1]):
        must = f"must have the shape (t, x), here {shape}"
        raise BadTable(f"u: {must}; got {u.shape}")
    u = (u if u.shape == shape else u.T).astype(np.float64)
    bad = ~np.isfinite(u)
    if bad.any():
        at_t, at_x = np.unravel_index(int(bad.argmax()), shape)
        more = f" and {int(bad.sum()) - 1} more" if bad.sum() > 1 else ""
        raise BadTable(f"u: must be finite; got {u[at_t, at_x]} at t[{at_t}], x[{at_x}]{more}")
    if u.min() == u.max():
        raise BadTable(f"u: must have different values; got {u[0, 0]:g} everywhere")
    return Field(x, t, u)


def _grid(name: str, values: NDArray[Any]) -> Floats:
    if values.ndim != 1:
        raise BadTable(f"{name}: must have one dimension; got shape {values.shape}")
    if len(values) < LEAST_POINTS:
        raise BadTable(f"{name}: must have at least {LEAST_POINTS} points; got {len(values)}")
    grid: Floats = values.astype(np.float64)
    steps = np.diff(grid)
    must = "must ascend in even steps"
    if not np.isfinite(grid).all():
        raise BadTable(f"{name}: {must}; got some that are not finite")
    if not (steps > 0).all():
        place = int((steps <= 0).argmax())
        raise BadTable(f"{name}: {must}; got {grid[place]:g}, then {grid[place + 1]:g}")
    spacing = (grid[-1] - grid[0]) / len(steps)
    if np.abs(steps - spacing).max() > EVEN * spacing:
        raise BadTable(f"{name}: {must}; got some from {steps.min():g} to {steps.max():g}")
    return grid
