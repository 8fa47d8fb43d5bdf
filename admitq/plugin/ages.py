"""Durations as kubectl prints them: few digits, with the precision that their length deserves."""

from typing import Final

from admitq_api.conditions import SECOND, parse_time
from admitq_api.durations import format_rounded_duration as format_duration

MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
YEAR: Final = 365 * DAY


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
