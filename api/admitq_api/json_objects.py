"""Read and change JSON objects by path, whatever their shape; the original is never changed.

These readers never fail: a value of the wrong type counts as absent. The API server checks most of what it
stores, but a definition may allow fields that it does not describe, and another version of it may allow other
types. To report a field of the wrong type, use `admitq_api.stored_fields`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

JsonObject = Mapping[str, Any]
"""A Kubernetes object, or a part of one, as parsed from JSON. It is never changed in place."""

FieldPath = tuple[str | int, ...]
"""Keys of objects and indexes of lists, from the outermost to the innermost."""

_OBJECT_TYPES: Final = (dict, Mapping)
"""Only to check a type. The check of a dict, which nearly all objects are, is faster than that of Mapping."""


def value_at(document: Any, path: Iterable[str | int], default: Any = None) -> Any:
    """Return the value at a path; ``default`` if any step is missing, null or of another type."""
    value = document
    for step in path:
        if type(value) is dict:  # Nearly every value, and the fastest check. No key is an integer.
            value = value.get(step)
        elif isinstance(step, str):
            value = value.get(step) if isinstance(value, Mapping) else None
        else:
            value = value[step] if isinstance(value, list) and step < len(value) else None
        if value is None:
            return default
    return value


def text_at(document: Any, path: Iterable[str | int]) -> str:
    """Return the string at a path; an empty one if there is none."""
    return as_text(value_at(document, path))


def object_at(document: Any, path: Iterable[str | int] = ()) -> JsonObject:
    """Return the object at a path, or the document itself; an empty object if there is none."""
    value = value_at(document, path)
    return cast("JsonObject", value) if isinstance(value, _OBJECT_TYPES) else {}


def text_fields_at(document: Any, path: Iterable[str | int] = ()) -> dict[str, str]:
    """Return those fields of the object at a path that are strings, such as labels."""
    return {key: value for key, value in object_at(document, path).items() if isinstance(value, str)}


def objects_at(document: Any, path: Iterable[str | int] = ()) -> list[JsonObject]:
    """Return the objects of the list at a path, without other items."""
    return [item for item in as_list(value_at(document, path)) if isinstance(item, _OBJECT_TYPES)]


def aligned_objects_at(document: Any, path: Iterable[str | int]) -> list[JsonObject]:
    """Return the items of the list at a path, with an empty object for each item of another type."""
    return [item if isinstance(item, _OBJECT_TYPES) else {} for item in as_list(value_at(document, path))]


def as_int(value: Any, default: int = 0) -> int:
    """Return the value if it is an integer, otherwise the default."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def as_text(value: Any) -> str:
    """Return the value if it is a string, otherwise an empty one."""
    return value if isinstance(value, str) else ""


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, otherwise an empty one."""
    return value if isinstance(value, list) else []


def with_value(document: Any, path: Sequence[str | int], value: Any) -> Any:
    """Return a copy of the document with the value at the path; it shares all values beside the path.

    Raises:
        IndexError: the path names a list element that does not exist.
    """
    if not path:
        return value
    step, remaining_path = path[0], path[1:]
    if isinstance(step, int):
        items: list[Any] = list(document)
        items[step] = with_value(items[step], remaining_path, value)
        return items
    fields: dict[str, Any] = dict(document) if isinstance(document, Mapping) else {}
    fields[str(step)] = with_value(fields.get(step), remaining_path, value)
    return fields


def without_value_pruned(document: Any, path: Sequence[str]) -> Any:
    """Return a copy of the document without the key at the path and without objects that this empties."""
    step, *remaining_path = path
    if not isinstance(document, Mapping) or step not in document:
        return document
    other_fields = {key: value for key, value in document.items() if key != step}
    if remaining_path and (inner := without_value_pruned(document[step], remaining_path)) not in ({}, None):
        other_fields[step] = inner
    return other_fields


def without_value(document: Any, path: Sequence[str | int]) -> Any:
    """Return a copy of the document without the key at the path; its object stays, even if it is empty."""
    parent = value_at(document, path[:-1])
    if not isinstance(parent, Mapping) or path[-1] not in parent:
        return document
    fields = cast("JsonObject", parent)
    return with_value(document, path[:-1], {key: value for key, value in fields.items() if key != path[-1]})


def select_fields(fields: JsonObject, keys: Iterable[str]) -> dict[str, Any]:
    """Return the fields with these keys, as far as they exist."""
    return {key: fields[key] for key in keys if key in fields}


def apply_merge_patch(document: Any, patch: Any) -> Any:
    """Return a document with a JSON merge patch (RFC 7396) applied."""
    if not isinstance(patch, Mapping):
        return patch
    result: dict[str, Any] = (
        dict(cast("Mapping[str, Any]", document)) if isinstance(document, Mapping) else {}
    )
    for key, value in cast("Mapping[str, Any]", patch).items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge_patch(result.get(key), value)
    return result


def create_merge_patch(before: Any, after: Any) -> dict[str, Any]:
    """Return the JSON merge patch (RFC 7396) that turns one object into the other; empty if they are equal.

    A merge patch replaces whole lists. A key with value null counts as absent.
    """
    patch: dict[str, Any] = {}
    for key in before:
        if before[key] is not None and after.get(key) is None:
            patch[key] = None
    for key, value in after.items():
        old = before.get(key)
        if value is None or value == old:
            continue
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            patch[key] = create_merge_patch(old, value)
        else:
            patch[key] = value
    return {key: value for key, value in patch.items() if value != {} or before.get(key) is None}
