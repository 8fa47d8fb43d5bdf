"""The logging flags of Kueue's manager, read as those of admitq (semantics, configuration file).

Who only changes the image of a Deployment keeps its arguments.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

MOST_AT_INFO: Final = 2
"""The highest verbosity that is still ``info``. Kueue's own manifests set it, and mean no debugging."""

LEVELS: Final = {"debug": "debug", "info": "info", "error": "error", "panic": "error"}


def _level(value: str) -> str:
    if value.isdecimal():
        return "info" if int(value) <= MOST_AT_INFO else "debug"
    if value.lower() not in LEVELS:
        raise ValueError(f"--zap-log-level: {value!r} is no level: write {', '.join(LEVELS)}, or a number")
    return LEVELS[value.lower()]


TRANSLATED: Final[Mapping[str, tuple[str, Callable[[str], str]]]] = {
    "--zap-log-level": ("--log-level", _level),
    "--zap-encoder": ("--log-format", str),
}
"""The flag of admitq that says the same, and how its value is said."""
WITHOUT_EFFECT: Final = ("--zap-stacktrace-level", "--zap-time-encoding")
"""Times are always written in ISO 8601, and tracebacks where there are some."""
SWITCH: Final = "--zap-devel"
"""Without effect, too. It needs no value, and takes none but after an equals sign."""


def translate_flags(arguments: Sequence[str]) -> list[str]:
    """The arguments of a process with its own flags in place of those of Kueue's.

    Raises:
        ValueError: there is no such level.
    """
    result: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        flag, assigned, value = argument.partition("=")
        if flag in TRANSLATED:
            own, say = TRANSLATED[flag]
            result.append(f"{own}={say(value if assigned else next(rest, ''))}")
        elif flag in WITHOUT_EFFECT:
            if not assigned:
                next(rest, None)
        elif flag != SWITCH:
            result.append(argument)
    return result
