"""Amounts of resources: exact integers, with one absorbing "unlimited".

CPU is counted in milli-CPU, every other resource in its own whole unit (bytes, devices, pods).
The source of the rules is "resource arithmetic" of the semantics: arithmetic saturates at int64,
and the unlimited amount stays unlimited whatever is added to it.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

UNLIMITED = 2**63 - 1
"""The int64 maximum: more than any quota, and what an absent limit counts as."""

LOWEST = -(2**63)

Amounts = tuple[tuple[str, int], ...]
"""Amount by resource name, sorted by name: hashable, comparable and ordered."""


class FlavorResource(NamedTuple):
    """A resource as provided by one flavor: the unit in which quota is counted."""

    flavor: str
    resource: str


def add(left: int, right: int) -> int:
    """Add two amounts, saturating; unlimited is absorbing."""
    if UNLIMITED in (left, right):
        return UNLIMITED
    return max(LOWEST, min(UNLIMITED, left + right))


def subtract(left: int, right: int) -> int:
    """Subtract an amount, saturating; something finite taken from unlimited leaves unlimited."""
    if left == UNLIMITED:
        return UNLIMITED
    return max(LOWEST, min(UNLIMITED, left - right))


def multiply(amount: int, times: int) -> int:
    """Multiply an amount by a count, saturating."""
    return max(LOWEST, min(UNLIMITED, amount * times))


def amounts(of: Mapping[str, int] | Iterable[tuple[str, int]]) -> Amounts:
    """Freeze amounts by resource name into their canonical order."""
    return tuple(sorted(dict(of).items()))
