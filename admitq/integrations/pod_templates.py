"""Pod templates that stand where the API server does not check them, or that are made of several parts."""

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
"""The parts of a pod template that are worked with, and what they are."""


def clean_pod_template(value: Any) -> JsonObject:
    """A pod template without those parts that have the wrong type; the same one if all is well.

    For templates that stand where the API server does not check them.
    """
    return _keep_typed(value, _POD_TEMPLATE) or {}


def _keep_typed(value: Any, shape: Any) -> Any:
    """The value as far as it has the shape; None if it is of another type altogether."""
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


# --- what was added to what is there -----------------------------------------------------------------


def select_entries_to_add(
    wanted: Mapping[str, str], base: Mapping[str, str], own: Mapping[str, str]
) -> dict[str, str]:
    """What must stand beside the base so that both together are what is wanted.

    Entries that were there, ``own``, stay there even where the base says the same.
    """
    return {key: value for key, value in wanted.items() if key in own or base.get(key) != value}


def select_items_to_add(wanted: Iterable[JsonObject], base: Iterable[JsonObject]) -> list[JsonObject]:
    """What must stand behind the items of the base so that both together are what is wanted."""
    rest, added = [*base], list[JsonObject]()
    for item in wanted:
        if item in rest:
            rest.remove(item)
        else:
            added.append(item)
    return added
