"""The JSON patch (RFC 6902) from one raw object to another.

Callers create the changed object, and this module compares it with the original. If both are equal, the
patch has no operations, so that the object does not change at all.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

Operation = dict[str, Any]
"""One operation of a JSON patch, with op, path and, except for removals, value."""


def create_pointer(path: Iterable[str | int]) -> str:
    """Return the JSON pointer (RFC 6901) of a path, with ``~`` and ``/`` escaped."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def create_json_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Operation]:
    """Return the operations that change ``before`` to ``after``, in order.

    Items that are added at the end of a list are appended. If the length of a list changes in another way,
    the whole list is replaced.
    """
    operations: list[Operation] = []
    _compare((), before, after, operations)
    return operations


def _compare(path: tuple[str | int, ...], before: Any, after: Any, operations: list[Operation]) -> None:
    if before is after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        _compare_mappings(
            path, cast("Mapping[str, Any]", before), cast("Mapping[str, Any]", after), operations
        )
    elif isinstance(before, list) and isinstance(after, list):
        _compare_lists(path, cast("list[Any]", before), cast("list[Any]", after), operations)
    elif type(before) is not type(after) or before != after:
        operations.append({"op": "replace", "path": create_pointer(path), "value": after})


def _compare_mappings(
    path: tuple[str | int, ...],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    operations: list[Operation],
) -> None:
    operations.extend(
        {"op": "remove", "path": create_pointer((*path, key))} for key in before if key not in after
    )
    for key, value in after.items():
        if key in before:
            _compare((*path, key), before[key], value, operations)
        else:
            operations.append({"op": "add", "path": create_pointer((*path, key)), "value": value})


def _compare_lists(
    path: tuple[str | int, ...], before: list[Any], after: list[Any], operations: list[Operation]
) -> None:
    if len(before) == len(after):
        for place, (old, new) in enumerate(zip(before, after, strict=True)):
            _compare((*path, place), old, new, operations)
    elif len(before) < len(after) and after[: len(before)] == before:
        operations.extend(
            {"op": "add", "path": create_pointer((*path, "-")), "value": item}
            for item in after[len(before) :]
        )
    else:
        operations.append({"op": "replace", "path": create_pointer(path), "value": after})
