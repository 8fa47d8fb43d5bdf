"""Limits of a namespace with several LimitRanges."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from admitq.core.limit_ranges import NO_LIMITS, NamespaceLimits, limits_of
from admitq.core.model import ExactAmounts, LimitedType, LimitRange, LimitRangeItem
from tests.unit.core.fractions_drawn import fractions

RESOURCES = ("cpu", "gpu", "memory")
amounts = st.dictionaries(st.sampled_from(RESOURCES), fractions(9, max_denominator=10), max_size=3).map(
    lambda of: tuple(sorted(of.items()))
)
items = st.builds(
    LimitRangeItem,
    type=st.sampled_from(LimitedType),
    maximum=amounts,
    minimum=amounts,
    default_limits=amounts,
    default_requests=amounts,
)
ranges = st.lists(st.lists(items, max_size=3).map(lambda of: LimitRange(tuple(of))), max_size=3)


def test_namespace_without_limit_range_has_no_limits() -> None:
    assert limits_of(()) == NO_LIMITS == NamespaceLimits()


@given(ranges)
def test_tightest_bounds_and_first_defaults_apply(limit_ranges: list[LimitRange]) -> None:
    limits = limits_of(limit_ranges)
    containers, pods = (
        [item for each in limit_ranges for item in each.items if item.type is type_]
        for type_ in (LimitedType.CONTAINER, LimitedType.POD)
    )

    def stated(of: list[LimitRangeItem], field: str, resource: str) -> list[Fraction]:
        values_of_items: list[ExactAmounts] = [getattr(item, field) for item in of]
        return [amount for each in values_of_items for name, amount in each if name == resource]

    for resource in RESOURCES:
        for field, of, name, choose in (
            ("container_maximum", containers, "maximum", min),
            ("container_minimum", containers, "minimum", max),
            ("pod_maximum", pods, "maximum", min),
            ("pod_minimum", pods, "minimum", max),
            ("default_limits", containers, "default_limits", lambda of: of[0]),
            ("default_requests", containers, "default_requests", lambda of: of[0]),
        ):
            values = stated(of, name, resource)
            expected = choose(values) if values else None
            assert dict(getattr(limits, field)).get(resource) == expected
