from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq_api.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0), ("0s", 0), ("5m", 300), ("1h30m", 5400), ("300ms", 0.3), ("1.5h", 5400), (".5s", 0.5),
        ("1.s", 1),
        ("-2m", -120), ("+2m", 120),
        ("100us", 0.0001), ("100µs", 0.0001), ("100μs", 0.0001), ("1000ns", 0.000001),
        ("1h1m1s1ms", 3661.001), ("3s2h", 7203),
    ],
)  # fmt: skip
def test_duration_text_is_parsed_to_timedelta(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "5", "5 m", "m", "1d", "1h30", "5M", "1e3s", "\uff15m", "--5m", ".s", "300000000h"]
)
def test_parse_duration_rejects_malformed_text(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (300, "5m0s"),
        (5400, "1h30m0s"),
        (0.3, "0.3s"),
        (3600, "1h0m0s"),
        (-90, "-1m30s"),
        (1.25, "1.25s"),
    ],
)
def test_duration_is_formatted_as_in_go(seconds: float, text: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == text


@given(st.timedeltas(timedelta(days=-3650), timedelta(days=3650)))
def test_formatted_duration_parses_to_same_value(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration
