"""Draw latency against offered load, and the share that was refused, as an SVG."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from svg import BLUE, GREY, INK, PALE, RED, card, element, note

WIDTH, HEIGHT, LEFT, TOP = 640, 220, 76, 78
SHARE_TOP, SHARE_HEIGHT = TOP + HEIGHT + 34, 84
MULTIPLES = (0.25, 0.5, 1, 2, 3, 5)  # of the sustainable rate, on the axis
PURPLE = "#8250df"


class Seen(NamedTuple):
    """What became of one offered load: requests/s, seconds, and a share of 1."""

    rate: float
    p50_s: float
    p99_s: float
    refused: float


def svg(seen: Sequence[Seen], sustainable: float, queue_s: float, what: str) -> str:
    """The picture.

    Args:
        seen: by rate, in any order; latencies are of accepted calls.
        sustainable: the highest rate that is kept up with.
        queue_s: how long a full queue takes.
        what: the work of a call.
    """
    seen = sorted(seen)
    scale = Scale(seen, sustainable, queue_s)
    body = (
        note(what, LEFT, 48),
        *key(),
        *grid(scale, sustainable, queue_s),
        *line(scale, [(s.rate, s.p99_s) for s in seen], PURPLE),
        *line(scale, [(s.rate, s.p50_s) for s in seen], BLUE),
        *shares(scale, seen),
    )
    title = "latency of accepted calls against offered load"
    return card(LEFT + WIDTH + 30, SHARE_TOP + SHARE_HEIGHT + 52, LEFT, title, body)


class Scale:
    """Both axes are logarithmic, from a power of ten up for latencies."""

    def __init__(self, seen: Sequence[Seen], sustainable: float, queue_s: float) -> None:
        rates = [s.rate for s in seen] + [sustainable]
        self.left, self.right = math.log(min(rates) / 1.15), math.log(max(rates) * 1.1)
        values = [v for s in seen for v in (s.p50_s, s.p99_s) if v > 0] + [queue_s]
        self.low = math.floor(math.log10(min(values)))
        self.high = max(math.ceil(math.log10(max(values) * 1.2)), self.low + 1)

    def x(self, rate: float) -> float:
        return LEFT + WIDTH * (math.log(rate) - self.left) / (self.right - self.left)

    def y(self, seconds: float) -> float:
        power = max(float(self.low), math.log10(seconds)) if seconds > 0 else self.low
        return TOP + HEIGHT * (self.high - power) / (self.high - self.low)


def key() -> Iterator[str]:
    at = LEFT + WIDTH - 110
    for name, colour in (("p50", BLUE), ("p99", PURPLE)):
        yield element("line", x1=at, x2=at + 14, y1=26, y2=26, stroke=colour, stroke_width=2)
        yield element("text", name, x=at + 20, y=30, fill=INK, font_size=10)
        at += 65


def grid(scale: Scale, sustainable: float, queue_s: float) -> Iterator[str]:
    right, bottom = LEFT + WIDTH, SHARE_TOP + SHARE_HEIGHT
    for power in range(scale.low, scale.high + 1):
        for digit in (1, 2, 5) if power < scale.high else (1,):
            at = scale.y(digit * 10.0**power)
            yield element("line", x1=LEFT, x2=right, y1=at, y2=at, stroke=PALE)
            yield note(milliseconds(digit * 10.0**power), LEFT - 8, at + 4, text_anchor="end")
    for share in (0, 50, 100):
        at = bottom - SHARE_HEIGHT * share / 100
        yield element("line", x1=LEFT, x2=right, y1=at, y2=at, stroke=GREY if not share else PALE)
        yield note(f"{share} %", LEFT - 8, at + 4, text_anchor="end")
    yield note("refused", LEFT, SHARE_TOP - 6)
    for multiple in MULTIPLES:
        rate = multiple * sustainable
        if scale.left <= math.log(rate) <= scale.right:
            at = scale.x(rate)
            yield note(f"{multiple:g}x", at, bottom + 16, text_anchor="middle")
            yield note(f"{rate:.0f}/s", at, bottom + 30, text_anchor="middle")
    label = "offered, as a multiple of the sustainable rate"
    yield note(label, LEFT + WIDTH / 2, bottom + 46, text_anchor="middle")
    at = scale.x(sustainable)
    dashes = {"stroke": GREY, "stroke_dasharray": "4 3"}
    yield element("line", x1=at, x2=at, y1=TOP, y2=bottom, **dashes)
    at = scale.y(queue_s)
    yield element("line", x1=LEFT, x2=right, y1=at, y2=at, **dashes)
    yield note(f"a full queue: {queue_s:.2f} s of work", LEFT + 6, at - 5)


def milliseconds(seconds: float) -> str:
    return f"{seconds:g} s" if seconds >= 1 else f"{1e3 * seconds:g} ms"


def line(scale: Scale, points: Sequence[tuple[float, float]], colour: str) -> Iterator[str]:
    places = [(scale.x(rate), scale.y(seconds)) for rate, seconds in points]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
    yield element("polyline", points=path, fill="none", stroke=colour, stroke_width=1.6)
    for a, b in places:
        yield element("circle", cx=a, cy=b, r=2.6, fill=colour)


def shares(scale: Scale, seen: Sequence[Seen]) -> Iterator[str]:
    bottom = SHARE_TOP + SHARE_HEIGHT
    for one in seen:
        tall = SHARE_HEIGHT * one.refused
        yield element(
            "rect", x=scale.x(one.rate) - 5, y=bottom - tall, width=10, height=tall, fill=RED
        )
