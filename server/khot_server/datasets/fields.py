"""Candidates for the terms of an equation u_t = ..., from a field u(t, x) on an even grid.

They are u, u^2, u^3, the derivatives u_x to u_xxxx, and the products of each power with each
derivative; the target is u_t. An intercept is no candidate: a job has an option for it.

**In x**, a field that is periodic on its grid is differentiated in Fourier space, which is as exact
as the grid allows, up to rounding. Any other is differentiated by central differences over eleven
points, of order 8 at least, and what is nearer to a border than their reach is left out. It is
periodic if the seam, where the end meets the beginning, is as smooth as the rest: if the sixth
differences across it are no larger than twice the largest within. Across a jump they would be some
ten times its height, while those of a field that its grid resolves are a small part of its own.

**In t** by central differences over nine points, of order 8. Noise is not smoothed away.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ORDERS, POWERS = (1, 2, 3, 4), (1, 2, 3)
REACH_X, REACH_T = 5, 4  # points on each side that a difference takes
LEAST_POINTS = 16  # of a grid
ROUGHNESS = 6  # the order of the differences that look for a seam
SEAM = 2.0  # times as rough may it be
SLICES = 64  # times that are differentiated together


@dataclass(frozen=True)
class Field:
    """Values u (nt, nx) at the times t (nt,) and places x (nx,), both ascending evenly."""

    x: Floats
    t: Floats
    u: Floats


@dataclass(frozen=True)
class Terms:
    """Candidate terms at some points of a field.

    Attributes:
        names: such as `u_xx` or `u^2*u_x`.
        x: their values, (points, terms).
        target: the name of y, such as `u_t`.
        y: the derivative in t, (points,).
    """

    names: tuple[str, ...]
    x: Floats
    target: str
    y: Floats


def names_of(name: str) -> tuple[str, ...]:
    """Return the names of the terms of a field of this name, in order."""
    powers = [name if p == 1 else f"{name}^{p}" for p in POWERS]
    derivatives = [f"{name}_{'x' * order}" for order in ORDERS]
    return (*powers, *derivatives, *(f"{p}*{d}" for p in powers for d in derivatives))


def terms(field: Field, rows: int, *, name: str = "u", seed: int = 0) -> Terms:
    """Return the terms at so many points, chosen at random; at all that there are, if fewer."""
    periodic = is_periodic(field.u)
    first = 0 if periodic else REACH_X
    across, along = len(field.x) - 2 * first, len(field.t) - 2 * REACH_T
    # The old generator, because numpy promises never to change what it draws.
    order = np.random.RandomState(seed).permutation(across * along)[:rows]
    at_t, at_x = np.divmod(np.sort(order), across)
    at_t, at_x = at_t + REACH_T, at_x + first
    derivatives = (_spectral if periodic else _differences)(field, at_t, at_x)
    u = field.u[at_t, at_x]
    powers = [u**p for p in POWERS]
    products = [p * d for p in powers for d in derivatives]
    return Terms(
        names=names_of(name),
        x=np.stack((*powers, *derivatives, *products), 1),
        target=f"{name}_t",
        y=_in_time(field, at_t, at_x),
    )


def is_periodic(u: Floats) -> bool:
    """Return whether the end of u (nt, nx) in x goes over into its beginning."""
    nx = u.shape[1]
    size = np.zeros(nx)
    for first in range(0, len(u), SLICES):
        part = u[first : first + SLICES]
        around = np.concatenate((part, part[:, :ROUGHNESS]), 1)
        size += np.square(np.diff(around, ROUGHNESS, 1)).sum(0)
    within, seam = size[: nx - ROUGHNESS], size[nx - ROUGHNESS :]
    return bool(seam.max() <= SEAM**2 * within.max())


def _spectral(field: Field, at_t: NDArray[np.int64], at_x: NDArray[np.int64]) -> list[Floats]:
    """The derivatives in x at some points, of a periodic field; times must ascend."""
    nx = len(field.x)
    q = 2 * np.pi * np.fft.rfftfreq(nx, _spacing(field.x))
    factors = [(1j * q) ** order for order in ORDERS]
    if nx % 2 == 0:  # of the wave at the limit of the grid, which is zero at every other crossing
        for order, factor in zip(ORDERS, factors, strict=True):
            if order % 2:
                factor[-1] = 0
    found = np.empty((len(ORDERS), len(at_t)))
    for first in range(0, len(field.t), SLICES):
        here = slice(*np.searchsorted(at_t, (first, first + SLICES)))
        waves = np.fft.rfft(field.u[first : first + SLICES], axis=1)
        for row, factor in zip(found, factors, strict=True):
            row[here] = np.fft.irfft(factor * waves, nx)[at_t[here] - first, at_x[here]]
    return list(found)


def _differences(field: Field, at_t: NDArray[np.int64], at_x: NDArray[np.int64]) -> list[Floats]:
    """The derivatives in x at some points, none of them nearer to a border than REACH_X."""
    around = range(-REACH_X, REACH_X + 1)
    near = np.stack([field.u[at_t, at_x + place] for place in around], 1)
    spacing = _spacing(field.x)
    return [near @ weights(order, REACH_X) / spacing**order for order in ORDERS]


def _in_time(field: Field, at_t: NDArray[np.int64], at_x: NDArray[np.int64]) -> Floats:
    around = range(-REACH_T, REACH_T + 1)
    near = np.stack([field.u[at_t + place, at_x] for place in around], 1)
    made: Floats = near @ weights(1, REACH_T) / _spacing(field.t)
    return made


def _spacing(grid: Floats) -> float:
    return float(grid[-1] - grid[0]) / (len(grid) - 1)


@cache
def weights(order: int, reach: int) -> Floats:
    """Return what central differences of unit spacing weigh the points -reach, ..., reach with.

    By Fornberg's recursion (1988), which adds one point after the other: of the polynomial through
    the points so far, the weights of all derivatives up to the order.
    """
    points = np.arange(-reach, reach + 1).astype(np.float64)
    made = np.zeros((len(points), order + 1))
    made[0, 0] = 1
    before = 1.0
    for i in range(1, len(points)):
        apart = points[i] - points[:i]
        product = float(apart.prod())
        degrees = np.arange(order + 1)
        lower = np.concatenate((np.zeros((i, 1)), made[:i, :-1]), 1)  # the derivative one below
        made[i] = before / product * (degrees * lower[-1] - points[i - 1] * made[i - 1])
        made[:i] = (points[i] * made[:i] - degrees * lower) / apart[:, None]
        before = product
    return made[:, order]
