"""Checks of fields that many kinds share: labels, annotations, taints, tolerations and gates."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from admitq_api.field_errors import ErrorPath, FieldError, check_text
from admitq_api.json_objects import as_list, object_at, text_at, value_at
from admitq_api.syntax import check_label_value, check_qualified_name

EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
OPERATORS: Final = ("Equal", "Exists")
ANNOTATIONS_LIMIT: Final = 256 * 1024
"""Most bytes of all annotations of an object, keys and values together."""


def texts_at(container: object, path: Iterable[str | int]) -> list[str]:
    """Return the items of the list at a path as strings, so that messages can show items of other types."""
    return [str(item) for item in as_list(value_at(container, path))]


def is_being_deleted(stored: object) -> bool:
    """Whether a stored object is being deleted. The object in a request must not decide this."""
    return bool(object_at(stored, ("metadata",)).get("deletionTimestamp"))


def find_duplicates(values: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the index and value of each repeated value."""
    earlier: set[str] = set()
    for place, value in enumerate(values):
        if value in earlier:
            yield place, value
        earlier.add(value)


def check_labels(values: Mapping[str, Any], path: ErrorPath) -> Iterator[FieldError]:
    """Check keys and values of labels, or of a node selector."""
    for key, value in values.items():
        if (wrong := check_qualified_name(key)) is not None:
            yield FieldError.invalid(path, key, wrong)
        yield from check_text(path.key(key), value, check_label_value, what="the value of a label")


def check_annotations(values: Mapping[str, Any], path: ErrorPath) -> Iterator[FieldError]:
    """Check keys and total size of annotations."""
    size = 0
    for key, value in values.items():
        if (wrong := check_qualified_name(key.lower())) is not None:
            yield FieldError.invalid(path, key, wrong)
        if isinstance(value, str):
            size += len(key.encode()) + len(value.encode())
        else:
            yield FieldError.invalid(path.key(key), value, "the value of an annotation must be a string")
    if size > ANNOTATIONS_LIMIT:
        yield FieldError.too_long(path, ANNOTATIONS_LIMIT)


def check_tolerations(values: list[Mapping[str, Any]], path: ErrorPath) -> Iterator[FieldError]:
    """Check tolerations by the rules of pods."""
    for place, toleration in enumerate(values):
        at = path.at(place)
        key, value = text_at(toleration, ("key",)), text_at(toleration, ("value",))
        operator, effect = text_at(toleration, ("operator",)) or "Equal", text_at(toleration, ("effect",))
        if operator not in OPERATORS:
            yield FieldError.not_supported(at.at("operator"), operator, OPERATORS)
        if key:
            yield from check_text(at.at("key"), key, check_qualified_name)
        elif operator != "Exists":
            yield FieldError.invalid(
                at.at("operator"), operator, "operator must be Exists when `key` is empty"
            )
        if operator == "Exists" and value:
            yield FieldError.invalid(
                at.at("operator"), value, "value must be empty when `operator` is 'Exists'"
            )
        elif operator == "Equal":
            yield from check_text(at.at("value"), value, check_label_value)
        if effect and effect not in EFFECTS:
            yield FieldError.not_supported(at.at("effect"), effect, EFFECTS)
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            yield FieldError.invalid(
                at.at("effect"), effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"
            )


def check_taints(values: list[Mapping[str, Any]], path: ErrorPath) -> Iterator[FieldError]:
    """Check taints by the rules of nodes."""
    for place, taint in enumerate(values):
        at = path.at(place)
        yield from check_text(at.at("key"), text_at(taint, ("key",)), check_qualified_name)
        if "value" in taint:
            yield from check_text(at.at("value"), taint["value"], check_label_value)
        if text_at(taint, ("effect",)) not in EFFECTS:
            yield FieldError.not_supported(at.at("effect"), taint.get("effect"), EFFECTS)
    for place, pair in find_duplicates(
        f"{text_at(taint, ('key',))}:{text_at(taint, ('effect',))}" for taint in values
    ):
        yield FieldError.duplicate(path.at(place), pair, "a key may have one taint of each effect")
