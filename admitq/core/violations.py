"""The exception for a state of the core that contradicts itself, and the comparison that raises it."""

from typing import Any


class InvariantViolated(AssertionError):
    """The state does not agree with the observed objects, or a part of it with another one."""


def expect(what: str, actual: Any, expected: Any, *names: Any) -> None:
    """Compare two values. ``what`` has a place for each name; the names are printed if the values differ.

    Raises:
        InvariantViolated: the values differ.
    """
    if actual != expected:
        raise InvariantViolated(f"{what.format(*names)}: is {actual!r}, should be {expected!r}")
