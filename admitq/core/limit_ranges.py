"""The common limits of all LimitRanges of a namespace.

Of several maxima the least counts, of several minima the greatest, and of several defaults the first
(semantics, Resource arithmetic).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from admitq.core.model import ExactAmounts, LimitedType, LimitRange, LimitRangeItem


@dataclass(frozen=True, slots=True)
class NamespaceLimits:
    """The bounds of a namespace, and the default requests and limits of its containers."""

    container_maximum: ExactAmounts = ()
    container_minimum: ExactAmounts = ()
    pod_maximum: ExactAmounts = ()
    pod_minimum: ExactAmounts = ()
    default_limits: ExactAmounts = ()
    default_requests: ExactAmounts = ()


NO_LIMITS: Final = NamespaceLimits()


def _first(first: Fraction, _second: Fraction) -> Fraction:
    return first


def _merged(
    several: Iterable[ExactAmounts], choose: Callable[[Fraction, Fraction], Fraction]
) -> ExactAmounts:
    result: dict[str, Fraction] = {}
    for amounts in several:
        for resource, amount in amounts:
            result[resource] = choose(result[resource], amount) if resource in result else amount
    return tuple(sorted(result.items()))


def limits_of(ranges: Iterable[LimitRange]) -> NamespaceLimits:
    """Return the common limits of several LimitRanges. The first default counts."""
    items: dict[LimitedType, list[LimitRangeItem]] = {type_: [] for type_ in LimitedType}
    for limit_range in ranges:
        for item in limit_range.items:
            items[item.type].append(item)
    containers, pods = items[LimitedType.CONTAINER], items[LimitedType.POD]
    return NamespaceLimits(
        container_maximum=_merged((item.maximum for item in containers), min),
        container_minimum=_merged((item.minimum for item in containers), max),
        pod_maximum=_merged((item.maximum for item in pods), min),
        pod_minimum=_merged((item.minimum for item in pods), max),
        default_limits=_merged((item.default_limits for item in containers), _first),
        default_requests=_merged((item.default_requests for item in containers), _first),
    )
