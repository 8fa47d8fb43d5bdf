"""``--wait``: how long a command waits for a better answer.

While the visibility API makes a forecast of a whole cohort tree, an answer says when to ask again.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from admitq.plugin.remedies import CommandError
from admitq.runtime.errors import ApiError
from admitq_api.durations import parse_duration
from admitq_api.json_objects import value_at

_SHORTEST_PAUSE: Final = 1.0
"""The fewest seconds between two questions."""

_BUSY: Final = frozenset({429, 503})
"""Errors of a visibility API that has no time, or has just begun."""

_CLEAR_LINE: Final = "\r\033[K"

Document = dict[str, Any]


def parse_wait(text: str) -> float:
    """Return the seconds of a duration.

    Raises:
        CommandError: the text is not a duration, or it is negative.
    """
    try:
        seconds = parse_duration(text).total_seconds()
    except ValueError as error:
        raise CommandError(f"--wait: {error}") from error
    if seconds < 0:
        raise CommandError("--wait: must not be negative")
    return seconds


async def ask_until_median(
    ask: Callable[[], Awaitable[Document | None]],
    wait_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> Document | None:
    """Ask when a workload starts, and ask again until the median is known or a time is over.

    On a terminal, a line on standard error shows that the command waits.

    Args:
        ask: asks the visibility API, and returns its answer; None if it does not answer such questions.
        wait_s: the seconds in which questions are repeated.
        clock: seconds of a monotonic clock.
        pause: waits for some seconds.

    Raises:
        ApiError: a question failed.
    """
    ends_at = clock() + wait_s
    answer = await ask()
    is_shown = sys.stderr.isatty()
    try:
        while answer is not None and (seconds := _seconds_to_next(answer)) is not None:
            if clock() + seconds > ends_at:
                break
            if is_shown:
                print(_CLEAR_LINE + _progress(answer), end="", file=sys.stderr, flush=True)
            await pause(seconds)
            answer = await _ask_again(ask, answer)
    finally:
        if is_shown:
            print(_CLEAR_LINE, end="", file=sys.stderr, flush=True)
    return answer


async def _ask_again(ask: Callable[[], Awaitable[Document | None]], former: Document) -> Document:
    """Return the answer to a repeated question; the former one if the visibility API does not answer now."""
    try:
        return await ask() or former
    except ApiError as error:
        if error.status in _BUSY:
            return former
        raise


def _seconds_to_next(answer: Mapping[str, Any]) -> float | None:
    """Return the seconds before the next question; None if the answer gets no better."""
    seconds = value_at(answer, ("treeForecast", "askAgainSeconds"))
    if answer.get("p50") is not None or seconds is None:
        return None
    return max(_SHORTEST_PAUSE, float(seconds))


def _progress(answer: Mapping[str, Any]) -> str:
    ended = value_at(answer, ("treeForecast", "simulations"), 0)
    return f"Simulations of the cohort tree that have ended: {ended}"
