"""Numbers, times and what users wrote, as text."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from khot_server.web import words

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (9999, "9,999"),
        (10_000, "10.0 k"),
        (48_213, "48.2 k"),
        (123_456, "123 k"),
        (1_234_567, "1.23 M"),
        (2e13, "20.0 T"),
    ],
)
def test_a_count_has_three_digits_or_is_whole(value, text):
    assert words.count(value) == text


@pytest.mark.parametrize(("value", "text"), [(512, "512 B"), (812e6, "812 MB"), (9.2e9, "9.20 GB")])
def test_a_size_has_its_unit(value, text):
    assert words.size(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (90_000, "1 d 1 h"),
        (30 * 86_400 + 3600, "30 d"),
    ],
)
def test_a_duration_has_its_largest_units(seconds, text):
    assert words.duration(seconds) == text


def test_a_time_is_told_from_now_and_in_utc():
    assert words.ago(NOW, NOW + timedelta(seconds=4)) == "just now"
    assert words.ago(NOW, NOW + timedelta(minutes=3)) == "3 min ago"
    elsewhere = NOW.astimezone(timezone(timedelta(hours=5)))
    assert words.moment(elsewhere) == "2026-01-02 03:04:05 UTC"


@pytest.mark.parametrize("mark", ["\x00", "\x1b", "\u200f", "\u202e", "\u2066", "\u2069", "\ud800"])
def test_what_cannot_be_seen_or_turns_the_text_around_is_replaced(mark):
    assert words.user(f"a{mark}b") == "a\ufffdb"


def test_letters_of_any_script_stay():
    text = "日本語 עברית naïve 👩\u200d🔬"
    assert words.user(text) == text


def test_a_long_text_is_cut_and_on_one_line():
    assert words.user("two\n lines\tand") == "two lines and"
    assert words.user("W" * 80) == "W" * 80
    assert words.user("W" * 10**6) == "W" * 79 + "…"
