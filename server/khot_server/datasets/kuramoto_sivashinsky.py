"""The Kuramoto-Sivashinsky equation, solved: a chaotic field v(t, x) to be found again.

    v_t = -v_xx - v_xxxx - v v_x,    periodic in x with the period 32 pi.

In Fourier space it is v_hat' = (q^2 - q^4) v_hat - (i q / 2) hat(v^2), q the wave number: a linear
part that is stiff, with rates down to -4096 on this grid, and a product that is not. The steps are
those of ETDRK4, which takes the linear part exactly and the other by four stages of Runge and
Kutta. Its coefficients, such as phi_1(c) = (e^c - 1) / c, lose all digits to cancellation where c
is small; by Cauchy's formula they are means over a circle around c, on which nothing cancels.

What is kept begins after the transient, when the field has forgotten its smooth beginning.

The field is chaotic: what is a last bit at the beginning is the eighth digit at the end, and the
last bits of an FFT are not the same on every machine. So what is told of the columns has four
digits, and the checksum is that of the recipe: a checksum of the values would refuse the same field
on another machine.

References:
    Kassam and Trefethen (2005), Fourth-order time-stepping for stiff PDEs.
"""

import hashlib
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from khot_server.datasets.fields import Field, Terms, names_of, terms

Complex = NDArray[np.complex128]

PERIOD, POINTS = 32 * np.pi, 256
STEP, SAVED = 0.05, 2  # of time, and every how many steps the field is kept
TRANSIENT, TIME = 100.0, 100.0
MODES, AMPLITUDE = 8, 1.0  # waves that the beginning has, and how high they are at most
CIRCLE = 32  # points of the contour
ROWS, SEED = 5000, 0
NAMES, TARGET = names_of("v"), "v_t"
RECIPE = (
    f"v_t = -v_xx - v_xxxx - v v_x: {POINTS} points of 32 pi, ETDRK4, steps of {STEP}, each "
    f"{SAVED}nd kept for {TIME} after {TRANSIENT}; {MODES} waves up to {AMPLITUDE}; {ROWS} rows; "
    f"seed {SEED}; {', '.join(NAMES)}"
)
SHA256 = hashlib.sha256(RECIPE.encode()).hexdigest()

# The least value, the greatest and the mean of each column, to four digits.
TOLD = {
    "v": (-3.224, 3.084, 0.01815),
    "v^2": (0.0, 10.39, 1.74),
    "v^3": (-33.51, 29.34, 0.1502),
    "v_x": (-3.385, 1.785, 0.04038),
    "v_xx": (-2.964, 3.328, -0.02144),
    "v_xxx": (-2.9, 4.888, -0.04775),
    "v_xxxx": (-7.874, 7.893, 0.05174),
    "v*v_x": (-4.912, 4.357, -0.03336),
    "v*v_xx": (-9.741, 0.8597, -1.07),
    "v*v_xxx": (-8.473, 8.254, 0.02759),
    "v*v_xxxx": (-5.658, 18.39, 0.9849),
    "v^2*v_x": (-10.18, 8.151, 0.08229),
    "v^2*v_xx": (-22.21, 29.58, -0.1056),
    "v^2*v_xxx": (-26.13, 9.238, -1.196),
    "v^2*v_xxxx": (-53.76, 41.57, 0.1503),
    "v^3*v_x": (-25.98, 23.77, -0.05004),
    "v^3*v_xx": (-95.35, 2.709, -4.141),
    "v^3*v_xxx": (-80.6, 82.17, -0.0347),
    "v^3*v_xxxx": (-34.1, 157.4, 3.838),
    "v_t": (-2.114, 2.049, 0.003062),
}


@cache
def make() -> Terms:
    """Return candidates for the terms of the equation, and v_t, at some of the points."""
    return terms(field(), ROWS, name="v", seed=SEED)


def field() -> Field:
    """Return v on its grid, float64."""
    x = np.arange(POINTS, dtype=np.float64) * (PERIOD / POINTS)
    v = np.fft.rfft(_beginning(x))
    advance = _stepper()
    for _ in range(round(TRANSIENT / STEP)):
        v = advance(v)
    kept = []
    for _ in range(round(TIME / STEP / SAVED)):
        kept.append(np.fft.irfft(v, POINTS))
        for _ in range(SAVED):
            v = advance(v)
    times = np.arange(len(kept), dtype=np.float64) * (SAVED * STEP)
    return Field(x, times, np.array(kept))


def _beginning(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """A few long waves, of random heights and phases."""
    # The old generator, because numpy promises never to change what it draws.
    draw = np.random.RandomState(SEED)
    heights, phases = draw.uniform(-AMPLITUDE, AMPLITUDE, MODES), draw.uniform(0, 2 * np.pi, MODES)
    waves = np.cos(2 * np.pi / PERIOD * np.outer(x, np.arange(1, MODES + 1)) + phases)
    made: NDArray[np.float64] = waves @ heights
    return made


def _stepper() -> Callable[[Complex], Complex]:
    """What takes v_hat one step further, by equations (26) to (29) of the paper."""
    q = 2 * np.pi / PERIOD * np.arange(POINTS // 2 + 1)
    rates = q**2 - q**4
    # the wave at the limit of the grid has no derivative there
    product = -0.5j * np.where(np.arange(len(q)) < POINTS // 2, q, 0)
    whole, half = np.exp(STEP * rates), np.exp(STEP * rates / 2)
    circle = np.exp(2j * np.pi * (np.arange(CIRCLE) + 0.5) / CIRCLE)
    c = STEP * rates[:, None] + circle

    def mean(values: Complex) -> NDArray[np.float64]:
        made: NDArray[np.float64] = STEP * values.mean(1).real
        return made

    to_half = mean((np.exp(c / 2) - 1) / c)
    first = mean((-4 - c + np.exp(c) * (4 - 3 * c + c**2)) / c**3)
    middle = mean((2 + c + np.exp(c) * (c - 2)) / c**3)
    last = mean((-4 - 3 * c - c**2 + np.exp(c) * (4 - c)) / c**3)

    def nonlinear(v: Complex) -> Complex:
        made: Complex = product * np.fft.rfft(np.fft.irfft(v, POINTS) ** 2)
        return made

    def advance(v: Complex) -> Complex:
        at_v = nonlinear(v)
        a = half * v + to_half * at_v
        at_a = nonlinear(a)
        b = half * v + to_half * at_a
        at_b = nonlinear(b)
        c = half * a + to_half * (2 * at_b - at_v)
        made: Complex = whole * v + first * at_v + 2 * middle * (at_a + at_b) + last * nonlinear(c)
        return made

    return advance
