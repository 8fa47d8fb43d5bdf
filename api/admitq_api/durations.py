"""Durations in the notation of Kubernetes: "5m", "1h30m", "300ms"."""

import re
from datetime import timedelta
from fractions import Fraction
from typing import Final

_MICROSECONDS = {
    "ns": Fraction(1, 1000),
    "us": Fraction(1),
    "µs": Fraction(1),  # the micro sign
    "μs": Fraction(1),  # the Greek letter
    "ms": Fraction(1000),
    "s": Fraction(1_000_000),
    "m": Fraction(60_000_000),
    "h": Fraction(3_600_000_000),
}
_PART = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h)"
_DURATION = re.compile(rf"(?P<sign>[+-]?)(?P<parts>(?:{_PART})+|0)")
PATTERN = rf"^\+?(?:(?:{_PART})+|0)$"
"""The same for a JSON schema, of durations that are not negative."""
_EACH = re.compile(r"([0-9.]+)(ns|us|µs|μs|ms|s|m|h)")
_LONGEST = timedelta(microseconds=(2**63 - 1) // 1000)

REMEDY = 'write numbers with units, like "5m", "1h30m" or "300ms"'


def parse_duration(text: str) -> timedelta:
    """Return the duration of a text, to the microsecond.

    Raises:
        ValueError: the text is not a duration, or the duration is longer than 292 years.
    """
    match = _DURATION.fullmatch(text) if len(text) <= 128 else None
    if match is None:
        raise ValueError(f"{text[:64]!r} is not a duration: {REMEDY}")
    microseconds = sum(
        (_number(number) * _MICROSECONDS[unit] for number, unit in _EACH.findall(match["parts"])), Fraction(0)
    )
    if microseconds > _LONGEST // timedelta(microseconds=1):
        raise ValueError(f"{text!r} is too long for a duration")
    return timedelta(microseconds=int(-microseconds if match["sign"] == "-" else microseconds))


def _number(text: str) -> Fraction:
    whole, _, part = text.partition(".")
    return Fraction(int((whole or "0") + part), 10 ** len(part))


def format_duration(duration: timedelta) -> str:
    """Return a duration in hours, minutes and seconds: "1h30m0s", "5m0s", "0.3s", "0s"."""
    sign = "-" if duration < timedelta(0) else ""
    microseconds = abs(duration) // timedelta(microseconds=1)
    seconds, fraction = divmod(microseconds, 1_000_000)
    hours, remainder = divmod(seconds, 3600)
    minutes, remainder = divmod(remainder, 60)
    tail = f"{remainder}.{fraction:06d}".rstrip("0") if fraction else str(remainder)
    parts = (f"{hours}h" if hours else "", f"{minutes}m" if hours or minutes else "", f"{tail}s")
    return sign + "".join(parts)


_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY

_STEPS: Final = (
    (2 * _MINUTE, ((1, "s"),)),
    (10 * _MINUTE, ((_MINUTE, "m"), (1, "s"))),
    (3 * _HOUR, ((_MINUTE, "m"),)),
    (8 * _HOUR, ((_HOUR, "h"), (_MINUTE, "m"))),
    (2 * _DAY, ((_HOUR, "h"),)),
    (8 * _DAY, ((_DAY, "d"), (_HOUR, "h"))),
    (2 * _YEAR, ((_DAY, "d"),)),
    (8 * _YEAR, ((_YEAR, "y"), (_DAY, "d"))),
)
"""Below which duration in seconds which units are shown."""


def format_rounded_duration(seconds: int) -> str:
    """Return a duration as kubectl prints it, more exactly if it is short: "15s", "2m5s", "3h"."""
    remaining = max(0, seconds)
    units = next((units for limit, units in _STEPS if remaining < limit), ((_YEAR, "y"),))
    text = ""
    for size, unit in units:
        count, remaining = divmod(remaining, size)
        if count or not text:
            text += f"{count}{unit}"
    return text
