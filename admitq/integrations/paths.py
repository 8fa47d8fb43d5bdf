"""Reading and changing raw objects by path, whatever their shape; the original is never changed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

Object = Mapping[str, Any]
"""A Kubernetes object, or a part of one, as it came from JSON. Never changed in place."""

Path = tuple[str | int, ...]
"""Keys of mappings and indexes of lists, from the outside in."""


def value_at(document: Any, path: Iterable[str | int], default: Any = None) -> Any:
    """Value at a path; ``default`` where any step is missing, null or of another type."""
    value = document
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, Mapping) else None
        else:
            value = value[step] if isinstance(value, list) and step < len(value) else None
        if value is None:
            return default
    return value


def with_value(document: Any, path: Sequence[str | int], value: Any) -> Any:
    """Copy of the document with the value at the path; what lies beside the path is shared, not copied.

    Raises:
        IndexError: the path names a list element that does not exist.
    """
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        items: list[Any] = list(document)
        items[step] = with_value(items[step], rest, value)
        return items
    fields: dict[str, Any] = dict(document) if isinstance(document, Mapping) else {}
    fields[str(step)] = with_value(fields.get(step), rest, value)
    return fields


def without(document: Any, path: Sequence[str]) -> Any:
    """Copy of the document without the key at the path; a mapping that held nothing else goes with it."""
    step, *rest = path
    if not isinstance(document, Mapping) or step not in document:
        return document
    kept = {key: value for key, value in document.items() if key != step}
    if rest and (inner := without(document[step], rest)) not in ({}, None):
        kept[step] = inner
    return kept


def without_value(document: Any, path: Sequence[str | int]) -> Any:
    """Copy of the document without the key at the end of the path; what held it stays, empty or not."""
    parent = value_at(document, path[:-1])
    if not isinstance(parent, Mapping) or path[-1] not in parent:
        return document
    fields = cast("Object", parent)
    return with_value(document, path[:-1], {key: value for key, value in fields.items() if key != path[-1]})


def only(fields: Object, keys: Iterable[str]) -> dict[str, Any]:
    """Those of the fields that are there."""
    return {key: fields[key] for key in keys if key in fields}


def merged(document: Any, patch: Any) -> Any:
    """A document with a JSON merge patch (RFC 7396) applied."""
    if not isinstance(patch, Mapping):
        return patch
    result: dict[str, Any] = (
        dict(cast("Mapping[str, Any]", document)) if isinstance(document, Mapping) else {}
    )
    for key, value in cast("Mapping[str, Any]", patch).items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def merge_patch(before: Any, after: Any) -> dict[str, Any]:
    """JSON merge patch (RFC 7396) that turns one mapping into the other; empty when they are equal.

    Lists are replaced whole, as merge patches do. A key whose value is null counts as absent.
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
            patch[key] = merge_patch(old, value)
        else:
            patch[key] = value
    return {key: value for key, value in patch.items() if value != {} or before.get(key) is None}
