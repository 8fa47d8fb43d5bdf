"""Translation of LimitRanges, overheads and amounts."""

from fractions import Fraction
from typing import Any

import pytest

from admitq.core.model import LimitedType, LimitRangeItem
from admitq.translate.amounts import format_quantities
from admitq.translate.limit_ranges import read_limit_range
from admitq.translate.runtime_classes import read_overhead
from admitq_api.stored_fields import MalformedField


def test_limit_range_is_read_only_for_containers_and_pods() -> None:
    limits = [
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}},
        {
            "type": "Container",
            "max": {"cpu": "2"},
            "min": {"cpu": "10m"},
            "default": {"cpu": "1"},
            "defaultRequest": {"cpu": "500m"},
        },
        {"type": "Pod", "max": {"memory": "1Gi"}},
    ]
    read = read_limit_range({"metadata": {"name": "l"}, "spec": {"limits": limits}})
    assert read.items == (
        LimitRangeItem(
            LimitedType.CONTAINER,
            maximum=(("cpu", Fraction(2)),),
            minimum=(("cpu", Fraction(1, 100)),),
            default_limits=(("cpu", Fraction(1)),),
            default_requests=(("cpu", Fraction(1, 2)),),
        ),
        LimitRangeItem(LimitedType.POD, maximum=(("memory", Fraction(2**30)),)),
    )


@pytest.mark.parametrize(
    ("bounds", "limits", "requests"),
    [
        ({"max": {"cpu": "2"}}, 2, 2),
        ({"min": {"cpu": "1"}}, None, 1),
        ({"max": {"cpu": "3"}, "min": {"cpu": "1"}}, 3, 3),
        ({"max": {"cpu": "3"}, "default": {"cpu": "2"}}, 2, 2),
        ({"default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}, 2, 1),
    ],
)
def test_limit_range_has_defaults_of_api_server(
    bounds: dict[str, Any], limits: int | None, requests: int
) -> None:
    def cpu(amount: int | None) -> tuple[tuple[str, Fraction], ...]:
        return () if amount is None else (("cpu", Fraction(amount)),)

    for type_, expected in (
        ("Container", (cpu(limits), cpu(requests))),
        (
            "Pod",
            tuple(
                cpu(int(bounds.get(name, {}).get("cpu", 0)) or None) for name in ("default", "defaultRequest")
            ),
        ),
    ):
        spec = {"limits": [{"type": type_, **bounds}]}
        (item,) = read_limit_range({"metadata": {"name": "l"}, "spec": spec}).items
        assert (item.default_limits, item.default_requests) == expected


def test_unlimited_amounts_are_formatted_as_quantities() -> None:
    assert format_quantities((("cpu", 2**63 - 1), ("memory", 2**63 - 1), ("pods", 3))) == {
        "cpu": "9223372036854775807m",
        "memory": "9223372036854775807",
        "pods": "3",
    }


def test_runtime_class_without_overhead_has_none() -> None:
    assert read_overhead({"metadata": {"name": "r"}}) == ()


def test_overhead_of_runtime_class_is_read() -> None:
    fixed = {"podFixed": {"memory": "64Mi", "cpu": "250m"}}
    assert read_overhead({"metadata": {"name": "r"}, "overhead": fixed}) == (
        ("cpu", Fraction(1, 4)),
        ("memory", Fraction(64 * 2**20)),
    )


@pytest.mark.parametrize("amount", ["much", "-1"])
def test_unreadable_overhead_is_malformed(amount: str) -> None:
    with pytest.raises(MalformedField, match=r"overhead\.podFixed\[cpu\]"):
        read_overhead({"metadata": {"name": "r"}, "overhead": {"podFixed": {"cpu": amount}}})
