"""Compare values of objects by their meaning, independent of their notation.

When typed clients write an object back, they drop empty maps and lists, and may write quantities in another
notation. Rules about immutable fields, and controllers that compare requests, must not treat that as a
change. They compare values by `are_equivalent`.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from admitq_api.quantity import QuantityError, parse_quantity

_QUANTITY_MAPS: Final = frozenset({"requests", "limits", "overhead", "resourceUsage"})
"""Fields that map resources to quantities."""

_QUANTITIES: Final = frozenset({("emptyDir", "sizeLimit"), ("resourceFieldRef", "divisor")})
"""Fields that are quantities, each with its parent field."""

_EMPTY_IS_A_CHOICE: Final = frozenset({"emptyDir", "labelSelector", "namespaceSelector", "selector"})
"""Fields of pods that have a meaning if they are empty. For example, an empty selector selects all."""

_EMPTY_TEXTS: Final = frozenset({("env", "value"), ("tolerations", "value"), ("tolerations", "key")})
"""Fields of list items for which an empty string is the same as an absent field, each with its list."""


def are_equivalent(left: object, right: object, defaults: Mapping[str, object] | None = None) -> bool:
    """Whether two values have the same meaning: absent, null and empty are equal, as are equal quantities.

    Args:
        left: the first value.
        right: the second value.
        defaults: the defaults of absent fields, in the objects or in each object of the lists.
    """
    return _canonicalize(_with_defaults(left, defaults or {})) == _canonicalize(
        _with_defaults(right, defaults or {})
    )


def _with_defaults(value: object, defaults: Mapping[str, object]) -> object:
    if isinstance(value, list):
        return [_with_defaults(item, defaults) for item in cast("list[object]", value)]
    if isinstance(value, Mapping):
        present = {key: item for key, item in cast("Mapping[str, Any]", value).items() if item is not None}
        return {**defaults, **present}
    return value


def _canonicalize(value: object, field: str = "") -> object:
    if isinstance(value, list):
        return [_canonicalize(item, field) for item in cast("list[object]", value)]
    if not isinstance(value, Mapping):
        return value
    canonical = {
        key: _parse_quantity(item) if _is_quantity(field, key, item) else _canonicalize(item, key)
        for key, item in cast("Mapping[str, Any]", value).items()
    }
    return {key: item for key, item in canonical.items() if not _is_absent(field, key, item)}


def _is_quantity(field: str, key: str, value: object) -> bool:
    return not isinstance(value, Mapping | list) and (field in _QUANTITY_MAPS or (field, key) in _QUANTITIES)


def _parse_quantity(value: Any) -> object:
    try:
        return parse_quantity(value)
    except QuantityError:
        return value


def _is_absent(field: str, key: str, value: object) -> bool:
    if value is None or value == []:
        return True
    if value == {}:
        return key not in _EMPTY_IS_A_CHOICE
    return value == "" and (field, key) in _EMPTY_TEXTS
