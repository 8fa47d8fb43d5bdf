"""When two values of an object mean the same, however they are written.

Typed clients drop empty maps and lists when they write an object back, and they may write a quantity in
another form. Rules about immutable fields, and controllers that compare what pods ask for, compare values by
`same_meaning`: such a write is no change.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from admitq_api.quantity import QuantityError, parse_quantity

_QUANTITY_MAPS: Final = frozenset({"requests", "limits", "overhead", "resourceUsage"})
"""Fields that map resources to quantities."""

_QUANTITIES: Final = frozenset({("emptyDir", "sizeLimit"), ("resourceFieldRef", "divisor")})
"""Single quantities, with the field that they are in."""

_EMPTY_IS_A_CHOICE: Final = frozenset({"emptyDir", "labelSelector", "namespaceSelector", "selector"})
"""Fields of pods that mean something when they are there and empty: a selector then selects all."""

_EMPTY_TEXTS: Final = frozenset({("env", "value"), ("tolerations", "value"), ("tolerations", "key")})
"""Texts of the items of lists that mean nothing when they are empty."""


def are_equivalent(one: object, other: object, defaults: Mapping[str, object] | None = None) -> bool:
    """Tell whether two values mean the same: absent, null and empty are equal, quantities count by value.

    Args:
        one: a value of an object.
        other: another one.
        defaults: what fields of the objects, or of each object of the lists, are where they are absent.
    """
    return _canonicalize(_with_defaults(one, defaults or {})) == _canonicalize(
        _with_defaults(other, defaults or {})
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
