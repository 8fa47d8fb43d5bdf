"""Percentiles by nearest rank: always one of the values, never a value between two of them."""

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

Value = TypeVar("Value")


def percentile(ordered: Sequence[Value], percent: int | Fraction) -> Value:
    """Return the smallest value that at least a percentage of the values does not exceed.

    Args:
        ordered: the values in ascending order, at least one.
        percent: the percentage, from 0 to 100; with 0 the smallest value.

    Raises:
        IndexError: there are no values.
    """
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, rank - 1)]
