"""Amounts of resources: integers, and one unlimited amount.

CPU is counted in milli-CPU, every other resource in whole units (bytes, devices, pods). Results are limited
to int64. An unlimited amount stays unlimited, whatever is added or subtracted (semantics, Resource
arithmetic).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

UNLIMITED = 2**63 - 1
"""The maximum of int64. It stands for an unlimited amount."""

LOWEST = -(2**63)

Amounts = tuple[tuple[str, int], ...]
"""Amounts by resource name, sorted by name. They are hashable and comparable."""


class FlavorResource(NamedTuple):
    """A resource of one flavor: quota is counted for each such pair."""

    flavor: str
    resource: str


def add(left: int, right: int) -> int:
    """Return the sum of two amounts, limited to int64; unlimited if one of them is."""
    if UNLIMITED in (left, right):
        return UNLIMITED
    return max(LOWEST, min(UNLIMITED, left + right))


def subtract(left: int, right: int) -> int:
    """Return the difference of two amounts, limited to int64; unlimited if the first one is."""
    if left == UNLIMITED:
        return UNLIMITED
    return max(LOWEST, min(UNLIMITED, left - right))


def multiply(amount: int, times: int) -> int:
    """Return an amount multiplied by a count, limited to int64."""
    return max(LOWEST, min(UNLIMITED, amount * times))


def amounts(of: Mapping[str, int] | Iterable[tuple[str, int]]) -> Amounts:
    """Return amounts by resource name as a sorted tuple."""
    return tuple(sorted(dict(of).items()))
