"""Pod templates that the API server does not validate, or that are composed of several parts."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from admitq_api.json_objects import JsonObject, text_fields_at

_CONTAINERS: Final = [{"env": [{}], "ports": [{}], "resources": {"requests": {}, "limits": {}}}]

_POD_TEMPLATE: Final[Mapping[str, Any]] = {
    "metadata": {"labels": text_fields_at, "annotations": text_fields_at},
    "spec": {
        "containers": _CONTAINERS,
        "initContainers": _CONTAINERS,
        "ephemeralContainers": _CONTAINERS,
        "nodeSelector": text_fields_at,
        "tolerations": [{}],
        "schedulingGates": [{}],
        "hostAliases": [{}],
        "imagePullSecrets": [{}],
        "priorityClassName": str,
    },
}
"""The fields of a pod template that admitq uses, and their types."""


def clean_pod_template(value: Any) -> JsonObject:
    """Return a pod template without fields of a wrong type.

    Use it for templates that the API server does not validate.
    """
    return _keep_typed(value, _POD_TEMPLATE) or {}


def _keep_typed(value: Any, shape: Any) -> Any:
    """Return the parts of a value that have the expected types; None if the value itself has a wrong type."""
    if shape is str:
        return value if isinstance(value, str) else None
    if isinstance(shape, list):
        if not isinstance(value, list):
            return None
        [each] = cast("list[Any]", shape)
        return [
            shaped for item in cast("list[Any]", value) if (shaped := _keep_typed(item, each)) is not None
        ]
    if not isinstance(value, Mapping):
        return None
    if shape is text_fields_at:
        return text_fields_at(value)
    result = {
        key: _keep_typed(item, shape[key]) if key in shape else item
        for key, item in cast("JsonObject", value).items()
    }
    return {key: item for key, item in result.items() if item is not None or key not in shape}


# --- additions to a base -----------------------------------------------------------------------------


def select_entries_to_add(
    target: Mapping[str, str], base: Mapping[str, str], own: Mapping[str, str]
) -> dict[str, str]:
    """Return the entries that must be added to the base to get the target entries.

    Entries that were added before (``own``) stay, even if the base has the same.
    """
    return {key: value for key, value in target.items() if key in own or base.get(key) != value}


def select_items_to_add(target: Iterable[JsonObject], base: Iterable[JsonObject]) -> list[JsonObject]:
    """Return the items that must be appended to the base to get the target items."""
    unmatched, added = [*base], list[JsonObject]()
    for item in target:
        if item in unmatched:
            unmatched.remove(item)
        else:
            added.append(item)
    return added
