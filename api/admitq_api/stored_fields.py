"""Read fields of stored objects with the types that the core requires.

A stored field can have another type, if the CRD has another version or does not describe the field.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, cast

from admitq_api.quantity import QuantityError, parse_amount, parse_quantity


class MalformedField(ValueError):
    """A field of a stored object is invalid.

    Attributes:
        field: the path of the field.
        remedy: how to correct it.
    """

    def __init__(self, field: str, remedy: str) -> None:
        super().__init__(f"{field}: {remedy}")
        self.field = field
        self.remedy = remedy


def require_list(value: Any, field: str) -> list[Any]:
    """Return the list; an empty one for None.

    Raises:
        MalformedField: the value is not a list.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise MalformedField(field, "must be a list")
    return cast("list[Any]", value)


def require_object(value: Any, field: str) -> Mapping[str, Any]:
    """Return the object; an empty one for None.

    Raises:
        MalformedField: the value is not an object.
    """
    if type(value) is dict:  # as parsed from JSON; the check of other mappings is ten times slower
        return cast("Mapping[str, Any]", value)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise MalformedField(field, "must be an object")
    return cast("Mapping[str, Any]", value)


def require_text(value: Any, field: str) -> str:
    """Return the string; an empty one for None. The core uses strings as keys and to sort.

    Raises:
        MalformedField: the value is not a string.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    raise MalformedField(field, "must be a text")


def require_texts(value: Any, field: str) -> tuple[str, ...]:
    """Return the strings of a list; none for None.

    Raises:
        MalformedField: the value is not a list, or an item is not a string.
    """
    return tuple([require_text(item, field) for item in require_list(value, field)])


def require_int(value: Any, field: str) -> int:
    """Return the integer.

    Raises:
        MalformedField: the value is not an integer.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedField(field, "must be a whole number")
    return value


def optional_int(value: Any, field: str) -> int | None:
    """Return the integer, or None.

    Raises:
        MalformedField: the value is not an integer.
    """
    return None if value is None else require_int(value, field)


def require_amount(resource: str, value: Any, field: str) -> int:
    """Return the amount of a resource, in milli-CPU or whole units.

    Raises:
        MalformedField: the value is not a quantity, or is negative.
    """
    try:
        result = parse_amount(resource, value)
    except QuantityError as error:
        raise MalformedField(field, str(error)) from error
    if result < 0:
        raise MalformedField(field, "must not be negative")
    return result


def optional_amount(resource: str, quota: Mapping[str, Any], name: str, field: str) -> int | None:
    """Return the amount of a resource in a field of a quota; None if the field is absent.

    Raises:
        MalformedField: the value is not a quantity, or is negative.
    """
    value = quota.get(name)
    return None if value is None else require_amount(resource, value, f"{field}.{name}")


def require_exact_amount(value: Any, field: str) -> Fraction:
    """Return the exact amount in units of the resource, without rounding.

    Raises:
        MalformedField: the value is not a quantity, or is negative.
    """
    try:
        result = parse_quantity(value)
    except QuantityError as error:
        raise MalformedField(field, str(error)) from error
    if result < 0:
        raise MalformedField(field, "must not be negative")
    return result
