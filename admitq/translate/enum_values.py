"""Values of fields that allow a fixed set of strings."""

from enum import StrEnum
from typing import Any, TypeVar

from admitq_api.stored_fields import MalformedField

_E = TypeVar("_E", bound=StrEnum)


def read_value_of(allowed: type[_E], raw: Any, field: str) -> _E | None:
    """Read the value of a field that allows a fixed set of strings; None if the field is absent or empty.

    Raises:
        MalformedField: the value is not one of the allowed strings.
    """
    if not raw:
        return None
    try:
        return allowed(raw)
    except ValueError as error:
        raise MalformedField(field, f"must be one of {', '.join(allowed)}") from error
