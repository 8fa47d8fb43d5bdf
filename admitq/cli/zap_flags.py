"""Translation of the logging flags of Kueue's manager to those of admitq (semantics, configuration file).

With it, a Deployment of Kueue works with admitq's image and unchanged arguments.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

MAX_INFO_VERBOSITY: Final = 2
"""The highest verbosity that means ``info``. Kueue's own manifests set it, and do not mean debug logs."""

LEVELS: Final = {"debug": "debug", "info": "info", "error": "error", "panic": "error"}


def _level(value: str) -> str:
    if value.isdecimal():
        return "info" if int(value) <= MAX_INFO_VERBOSITY else "debug"
    if value.lower() not in LEVELS:
        raise ValueError(
            f"--zap-log-level: {value!r} is not a log level: use {', '.join(LEVELS)}, or a number"
        )
    return LEVELS[value.lower()]


TRANSLATED: Final[Mapping[str, tuple[str, Callable[[str], str]]]] = {
    "--zap-log-level": ("--log-level", _level),
    "--zap-encoder": ("--log-format", str),
}
"""The equivalent flag of admitq, and the translation of its value."""
WITHOUT_EFFECT: Final = ("--zap-stacktrace-level", "--zap-time-encoding")
"""Logs always have ISO 8601 times, and the tracebacks of exceptions."""
SWITCH: Final = "--zap-devel"
"""A flag without effect. Its value is optional, and follows an equals sign."""


def translate_flags(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a process with Kueue's flags translated to admitq's.

    Raises:
        ValueError: the log level is unknown.
    """
    result: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        flag, assigned, value = argument.partition("=")
        if flag in TRANSLATED:
            own, say = TRANSLATED[flag]
            result.append(f"{own}={say(value if assigned else next(remaining, ''))}")
        elif flag in WITHOUT_EFFECT:
            if not assigned:
                next(remaining, None)
        elif flag != SWITCH:
            result.append(argument)
    return result
