"""Fields of stored objects, read as the types that the core relies on.

A definition of another version, or none at all, may have let another type pass.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, cast

from admitq_api.quantity import QuantityError, parse_amount, parse_quantity


class MalformedField(ValueError):
    """A stored object that cannot be used as it is.

    Attributes:
        field: the path of the field that is wrong.
        remedy: what to do about it.
    """

    def __init__(self, field: str, remedy: str) -> None:
        super().__init__(f"{field}: {remedy}")
        self.field = field
        self.remedy = remedy


def require_list(value: Any, field: str) -> list[Any]:
    """The list; an empty one where there is none.

    Raises:
        MalformedField: the value is no list.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise MalformedField(field, "must be a list")
    return cast("list[Any]", value)


def require_object(value: Any, field: str) -> Mapping[str, Any]:
    """The object; an empty one where there is none.

    Raises:
        MalformedField: the value is no object.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise MalformedField(field, "must be an object")
    return cast("Mapping[str, Any]", value)


def require_text(value: Any, field: str) -> str:
    """The text, which the core uses as a key or sorts by; an empty one where there is none.

    Raises:
        MalformedField: the value is no text.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    raise MalformedField(field, "must be a text")


def require_texts(value: Any, field: str) -> tuple[str, ...]:
    """The texts of a list; none where there is no list.

    Raises:
        MalformedField: the value is no list, or an item no text.
    """
    return tuple([require_text(item, field) for item in require_list(value, field)])


def require_int(value: Any, field: str) -> int:
    """The whole number.

    Raises:
        MalformedField: the value is no whole number.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedField(field, "must be a whole number")
    return value


def optional_int(value: Any, field: str) -> int | None:
    """The whole number; None where there is none.

    Raises:
        MalformedField: the value is no whole number.
    """
    return None if value is None else require_int(value, field)


def require_amount(resource: str, value: Any, field: str) -> int:
    """The amount of a resource, in milli-CPU or whole units.

    Raises:
        MalformedField: the value is no quantity, or negative.
    """
    try:
        result = parse_amount(resource, value)
    except QuantityError as error:
        raise MalformedField(field, str(error)) from error
    if result < 0:
        raise MalformedField(field, "must not be negative")
    return result


def optional_amount(resource: str, quota: Mapping[str, Any], name: str, field: str) -> int | None:
    """The amount of a resource that a quota states under a name; None where it states none.

    Raises:
        MalformedField: the value is no quantity, or negative.
    """
    value = quota.get(name)
    return None if value is None else require_amount(resource, value, f"{field}.{name}")


def require_exact_amount(value: Any, field: str) -> Fraction:
    """The amount in its own unit, not rounded.

    Raises:
        MalformedField: the value is no quantity, or negative.
    """
    try:
        result = parse_quantity(value)
    except QuantityError as error:
        raise MalformedField(field, str(error)) from error
    if result < 0:
        raise MalformedField(field, "must not be negative")
    return result
