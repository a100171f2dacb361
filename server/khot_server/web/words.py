"""Numbers, times and what users wrote, as text for a page; the filters of its templates."""

import re
from datetime import UTC, datetime

# Control characters, marks that change the direction of the text around them, and halves of
# characters, which cannot be sent.
HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
REPLACEMENT = "\ufffd"
UNITS = ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k"))


def user(text: str, most: int = 80) -> str:
    """Return what a user wrote, on one line of at most so many characters that can be seen.

    Not escaped: that is for the template.
    """
    seen = HIDDEN.sub(REPLACEMENT, " ".join(text.split()))
    return seen if len(seen) <= most else seen[: most - 1].rstrip() + "…"


def count(value: float) -> str:
    """Return a whole number, in full or to three digits: 9,999 or 12.3 k."""
    if value < 10_000:
        return f"{value:,.0f}"
    unit, name = next(unit for unit in UNITS if value >= unit[0])
    digits = value / unit
    return f"{digits:.{2 if digits < 10 else 1 if digits < 100 else 0}f}{name}"


def size(value: float) -> str:
    """Return a number of bytes: 12.3 MB."""
    text = count(value)
    return f"{text}B" if text[-1].isalpha() else f"{text} B"


def duration(seconds: float) -> str:
    """Return a length of time by its largest unit, and the next where that tells something."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours and days < 7 else f"{days} d"


def ago(time: datetime, now: datetime) -> str:
    """Return how long before `now` it was."""
    seconds = (now - time).total_seconds()
    return "just now" if seconds < 5 else f"{duration(seconds)} ago"


def moment(time: datetime) -> str:
    """Return a time to the second, in UTC."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
