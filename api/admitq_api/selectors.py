"""Validate raw label selectors by the rules of the API server. The core matches selectors.

The checks of names and labels are re-exported for modules that validate both.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from admitq_api.field_errors import FieldError
from admitq_api.syntax import check_dns_label, check_dns_subdomain, check_label_value, check_qualified_name

__all__ = [
    "OPERATORS",
    "check_dns_label",
    "check_dns_subdomain",
    "check_label_value",
    "check_qualified_name",
    "validate_selector",
]

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
"""The operators of requirements."""

SELECTOR_FIELDS: Final = ("matchLabels", "matchExpressions")
REQUIREMENT_FIELDS: Final = ("key", "operator", "values")


def validate_selector(raw: Any, path: str = "") -> list[FieldError]:
    """Return the errors of a label selector; None is valid.

    Args:
        raw: the raw selector.
        path: its path, for error messages.
    """
    if raw is None:
        return []
    if not isinstance(raw, Mapping):
        return [FieldError.invalid(path, raw, "must be an object with matchLabels and matchExpressions")]
    selector = cast("Mapping[str, Any]", raw)
    return [
        *_unknown_fields(selector, SELECTOR_FIELDS, path),
        *_match_labels(selector.get("matchLabels"), _join(path, "matchLabels")),
        *_match_expressions(selector.get("matchExpressions"), _join(path, "matchExpressions")),
    ]


def _unknown_fields(raw: Mapping[str, Any], known: Sequence[str], path: str) -> Iterator[FieldError]:
    """Yield an error for each unknown field: a selector with a typing error would select every object."""
    for name in raw:
        if name not in known:
            yield FieldError.not_supported(_join(path, str(name)), name, known)


def _match_labels(raw: Any, path: str) -> Iterator[FieldError]:
    if raw is None:
        return
    if not isinstance(raw, Mapping):
        yield FieldError.invalid(path, raw, "must be a map of labels")
        return
    for key, value in cast("Mapping[str, Any]", raw).items():
        if (wrong := check_qualified_name(key)) is not None:
            yield FieldError.invalid(path, key, wrong)
        yield from _value(value, f"{path}[{key}]")


def _match_expressions(raw: Any, path: str) -> Iterator[FieldError]:
    if raw is None:
        return
    if not _is_list(raw):
        yield FieldError.invalid(path, raw, "must be a list of requirements")
        return
    for index, requirement in enumerate(cast("Sequence[Any]", raw)):
        where = f"{path}[{index}]"
        if not isinstance(requirement, Mapping):
            yield FieldError.invalid(where, requirement, "must be an object with key, operator and values")
            continue
        yield from _unknown_fields(cast("Mapping[str, Any]", requirement), REQUIREMENT_FIELDS, where)
        yield from _requirement(cast("Mapping[str, Any]", requirement), where)


def _requirement(requirement: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    key, operator, values = (
        requirement.get("key"),
        requirement.get("operator"),
        requirement.get("values") or [],
    )
    if not isinstance(key, str) or not key:
        yield FieldError.required(f"{path}.key", "name the label to look at")
    elif (wrong := check_qualified_name(key)) is not None:
        yield FieldError.invalid(f"{path}.key", key, wrong)
    if not _is_list(values):
        yield FieldError.invalid(f"{path}.values", values, "must be a list of texts")
        return
    if operator not in OPERATORS:
        yield FieldError.not_supported(f"{path}.operator", operator, OPERATORS)
    elif operator in ("In", "NotIn") and not values:
        yield FieldError.required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist") and values:
        yield FieldError.forbidden(
            f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        )
    for index, value in enumerate(cast("Sequence[Any]", values)):
        yield from _value(value, f"{path}.values[{index}]")


def _value(value: Any, path: str) -> Iterator[FieldError]:
    if not isinstance(value, str):
        yield FieldError.invalid(path, value, "must be a text")
    elif (wrong := check_label_value(value)) is not None:
        yield FieldError.invalid(path, value, wrong)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
