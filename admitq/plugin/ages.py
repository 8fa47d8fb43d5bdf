"""Durations as kubectl prints them: few digits, with the precision that their length deserves."""

from typing import Final

from admitq_api.conditions import SECOND, parse_time

MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
YEAR: Final = 365 * DAY

_STEPS: Final = (
    (2 * MINUTE, ((1, "s"),)),
    (10 * MINUTE, ((MINUTE, "m"), (1, "s"))),
    (3 * HOUR, ((MINUTE, "m"),)),
    (8 * HOUR, ((HOUR, "h"), (MINUTE, "m"))),
    (2 * DAY, ((HOUR, "h"),)),
    (8 * DAY, ((DAY, "d"), (HOUR, "h"))),
    (2 * YEAR, ((DAY, "d"),)),
    (8 * YEAR, ((YEAR, "y"), (DAY, "d"))),
)
"""Below which duration in seconds which units are shown."""


def format_duration(seconds: int) -> str:
    """Return a duration as text: ``15s``, ``2m5s``, ``3h``."""
    remaining = max(0, seconds)
    units = next((units for limit, units in _STEPS if remaining < limit), ((YEAR, "y"),))
    text = ""
    for size, unit in units:
        count, remaining = divmod(remaining, size)
        if count or not text:
            text += f"{count}{unit}"
    return text


def format_age(time: str, now: int) -> str:
    """Return how long ago a time of the API was; ``<unknown>`` if it is absent or malformed.

    Args:
        time: a time in RFC 3339, such as ``2030-01-01T00:00:00Z``.
        now: the current time in nanoseconds since 1970.
    """
    seconds = seconds_since(time, now)
    return "<unknown>" if seconds is None else format_duration(seconds)


def seconds_since(time: str, now: int) -> int | None:
    """Return the seconds since a time of the API; None if it is absent or malformed."""
    try:
        return (now - parse_time(time)) // SECOND
    except ValueError:
        return None
