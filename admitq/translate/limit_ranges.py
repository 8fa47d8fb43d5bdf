"""LimitRanges."""

from collections.abc import Mapping
from typing import Any

from admitq.core.model import LimitedType, LimitRange, LimitRangeItem
from admitq.translate.amounts import read_exact_amounts
from admitq_api.json_objects import JsonObject
from admitq_api.stored_fields import require_list, require_object


def read_limit_range(obj: JsonObject) -> LimitRange:
    """Read the limits for containers and pods of a LimitRange.

    Raises:
        MalformedField: a quantity is not readable.
    """
    spec = require_object(obj.get("spec"), "spec")
    limited = {str(limited) for limited in LimitedType}
    return LimitRange(
        tuple(
            _read_limit_range_item(item, f"spec.limits[{index}]")
            for index, item in enumerate(require_list(spec.get("limits"), "spec.limits"))
            if item.get("type") in limited
        )
    )


def _read_limit_range_item(item: Mapping[str, Any], field: str) -> LimitRangeItem:
    """Read one item; an item for containers gets the defaults that the API server sets."""
    maximum, minimum, limits, requests = (
        dict(read_exact_amounts(item.get(name), f"{field}.{name}"))
        for name in ("max", "min", "default", "defaultRequest")
    )
    limited = LimitedType(item["type"])
    if limited is LimitedType.CONTAINER:
        limits = {**maximum, **limits}
        requests = {**minimum, **limits, **requests}
    return LimitRangeItem(
        limited,
        maximum=tuple(sorted(maximum.items())),
        minimum=tuple(sorted(minimum.items())),
        default_limits=tuple(sorted(limits.items())),
        default_requests=tuple(sorted(requests.items())),
    )
