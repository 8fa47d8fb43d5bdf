"""Errors about fields of objects, as values, in the wording of the API server.

An error has the path of the field, the problem with its value, and a remedy.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import orjson

_SHOWN_VALUE_LENGTH: Final = 256


class ErrorType(StrEnum):
    """The type of an error. The values are the reasons of causes in the API's Status."""

    REQUIRED = "FieldValueRequired"
    INVALID = "FieldValueInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    DUPLICATE = "FieldValueDuplicate"
    NOT_FOUND = "FieldValueNotFound"
    TOO_LONG = "FieldValueTooLong"
    TOO_MANY = "FieldValueTooMany"
    INTERNAL = "InternalError"


_WORDS: Final[Mapping[ErrorType, str]] = {
    ErrorType.REQUIRED: "Required value",
    ErrorType.INVALID: "Invalid value",
    ErrorType.NOT_SUPPORTED: "Unsupported value",
    ErrorType.FORBIDDEN: "Forbidden",
    ErrorType.DUPLICATE: "Duplicate value",
    ErrorType.NOT_FOUND: "Not found",
    ErrorType.TOO_LONG: "Too long",
    ErrorType.TOO_MANY: "Too many",
    ErrorType.INTERNAL: "Internal error",
}
_WITHOUT_VALUE: Final = frozenset(
    {ErrorType.REQUIRED, ErrorType.FORBIDDEN, ErrorType.TOO_LONG, ErrorType.INTERNAL}
)


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error of one field.

    Attributes:
        path: the field, as ``spec.podSets[0].count`` or ``metadata.labels[example.com/key]``.
        type: the kind of error.
        value: the value of the field. Some types of errors do not show it.
        detail: the problem with the value.
        remedy: how to correct it; empty if the detail states that.
    """

    path: str
    type: ErrorType
    value: object = None
    detail: str = ""
    remedy: str = ""

    @classmethod
    def required(cls, path: "ErrorPath | str", detail: str = "", remedy: str = "") -> "FieldError":
        """Return the error that the field must be set."""
        return cls(str(path), ErrorType.REQUIRED, None, detail, remedy)

    @classmethod
    def invalid(cls, path: "ErrorPath | str", value: object, detail: str, remedy: str = "") -> "FieldError":
        """Return the error that the value violates a rule."""
        return cls(str(path), ErrorType.INVALID, value, detail, remedy)

    @classmethod
    def not_supported(cls, path: "ErrorPath | str", value: object, supported: Iterable[str]) -> "FieldError":
        """Return the error that the value is not one of the supported values."""
        known = ", ".join(orjson.dumps(name).decode() for name in supported)
        return cls(str(path), ErrorType.NOT_SUPPORTED, value, f"supported values: {known}")

    @classmethod
    def forbidden(cls, path: "ErrorPath | str", detail: str, remedy: str = "") -> "FieldError":
        """Return the error that the field must not be set or changed in the current state."""
        return cls(str(path), ErrorType.FORBIDDEN, None, detail, remedy)

    @classmethod
    def duplicate(cls, path: "ErrorPath | str", value: object, remedy: str = "") -> "FieldError":
        """Return the error that the value occurs twice and must be unique."""
        return cls(str(path), ErrorType.DUPLICATE, value, "", remedy)

    @classmethod
    def not_found(cls, path: "ErrorPath | str", value: object, remedy: str = "") -> "FieldError":
        """Return the error that the value names an object that does not exist."""
        return cls(str(path), ErrorType.NOT_FOUND, value, "", remedy)

    @classmethod
    def too_long(cls, path: "ErrorPath | str", limit: int) -> "FieldError":
        """Return the error that a text exceeds its limit of bytes."""
        return cls(str(path), ErrorType.TOO_LONG, None, f"may not be more than {limit} bytes")

    @classmethod
    def too_many(cls, path: "ErrorPath | str", count: int, limit: int) -> "FieldError":
        """Return the error that a list exceeds its limit of items."""
        return cls(str(path), ErrorType.TOO_MANY, count, f"must have at most {limit} items")

    @property
    def message(self) -> str:
        """The error without the path."""
        parts = [_WORDS[self.type]]
        if self.type not in _WITHOUT_VALUE:
            parts.append(_format_value(self.value))
        explanation = "; ".join(part for part in (self.detail, self.remedy) if part)
        if explanation:
            parts.append(explanation)
        return ": ".join(parts)

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def _format_value(value: object) -> str:
    try:
        text = orjson.dumps(value).decode()
    except TypeError:
        text = repr(value)
    return text if len(text) <= _SHOWN_VALUE_LENGTH else text[: _SHOWN_VALUE_LENGTH - 1] + "…"


def join_errors(errors: Iterable[FieldError]) -> str:
    """Return several errors in one text. Several errors are in brackets, and equal ones are listed once."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def select_new_errors(
    changed_errors: Iterable[FieldError], stored_errors: Iterable[FieldError]
) -> list[FieldError]:
    """Return the errors of a changed object that the stored object does not have.

    An invalid object may have been stored while the webhook was not installed, or with other feature gates.
    Updates that do not change the error are still accepted, for example of finalizers, labels or the status.
    """
    errors = [*changed_errors]
    stale = [*stored_errors] if errors else []
    return [error for error in errors if error not in stale]


class MapKey(str):
    """A step of a path: a key of a map with arbitrary keys, such as labels."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ErrorPath:
    """The path of a field, which is built step by step: ``ErrorPath("spec").at("podSets", 0, "count")``."""

    text: str = ""

    def at(self, *steps: str | int) -> "ErrorPath":
        """Return the path of a nested field. A number is an index of a list, a ``MapKey`` a key of a map."""
        text = self.text
        for step in steps:
            if isinstance(step, (int, MapKey)):
                text += f"[{step}]"
            else:
                text += f".{step}" if text else step
        return ErrorPath(text)

    def key(self, key: str) -> "ErrorPath":
        """Return the path of an entry of a map with arbitrary keys, such as labels."""
        return ErrorPath(f"{self.text}[{key}]")

    def __str__(self) -> str:
        return self.text


def check_text(
    path: ErrorPath, value: object, check: Callable[[str], str | None], *, what: str = ""
) -> Iterator[FieldError]:
    """Check a text by a function that returns the error."""
    if not isinstance(value, str):
        yield FieldError.invalid(path, value, f"{what or 'it'} must be a string")
    elif (wrong := check(value)) is not None:
        yield FieldError.invalid(path, value, wrong)
