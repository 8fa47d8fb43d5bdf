"""Durations and ages as text."""

import pytest

from admitq.plugin.ages import DAY, HOUR, MINUTE, YEAR, format_age, format_duration
from admitq_api.conditions import SECOND


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (2 * MINUTE, "2m"),
        (2 * MINUTE + 5, "2m5s"),
        (10 * MINUTE + 5, "10m"),
        (179 * MINUTE, "179m"),
        (3 * HOUR + MINUTE, "3h1m"),
        (8 * HOUR + 59 * MINUTE, "8h"),
        (2 * DAY + HOUR, "2d1h"),
        (9 * DAY + HOUR, "9d"),
        (2 * YEAR + 3 * DAY, "2y3d"),
        (9 * YEAR + 3 * DAY, "9y"),
    ],
)
def test_duration_has_the_precision_that_its_length_deserves(seconds: int, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("time", "text"),
    [
        ("1970-01-01T00:00:10Z", "30s"),
        ("1970-01-01T00:00:50Z", "0s"),
        ("", "<unknown>"),
        ("yesterday", "<unknown>"),
    ],
)
def test_age_is_the_duration_until_now(time: str, text: str) -> None:
    assert format_age(time, 40 * SECOND) == text
