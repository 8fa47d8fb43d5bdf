"""The runtime patches of TrainJobs: apply them as the trainer does, and create them from a difference.

The trainer applies patches by a strategic merge, as Kubernetes defines it. For some lists, it merges entries
that have the same value in a key field. Patches can add and replace values, but not remove them.
"""

from collections.abc import Mapping
from typing import Any, Final

from admitq_api.json_objects import JsonObject, as_list, object_at, value_at

_MERGE_KEYS: Final[Mapping[str, str]] = {
    "containers": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "schedulingGates": "name",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""The key fields of lists that are merged. All other lists are replaced as a whole."""

_METADATA: Final = ("labels", "annotations")
_SPEC_PATH: Final = ("trainingRuntimeSpec", "template", "spec")


def merge(own: Any, patch: Any, field: str = "") -> Any:
    """Return a value with a strategic merge patch applied; ``field`` is the name of its field."""
    if isinstance(own, Mapping) and isinstance(patch, Mapping):
        changed = {key: merge(own.get(key), value, key) for key, value in patch.items() if value is not None}
        return {**own, **changed}
    if isinstance(own, list) and isinstance(patch, list) and field in _MERGE_KEYS:
        return _merge_entries(own, patch, _MERGE_KEYS[field])
    return patch


def _merge_entries(own: list[Any], patch: list[Any], key: str) -> list[Any]:
    result = list(own)
    for entry in patch:
        value = value_at(entry, (key,))
        same = (index for index, known in enumerate(result) if value_at(known, (key,)) == value)
        index = next(same, None)
        if index is None:
            result.append(entry)
        else:
            result[index] = merge(result[index], entry)
    return result


def apply_patches(template: Any, patches: Any, replicated_job: str, *, without: str = "") -> Any:
    """Return the job template of a replicated job with all patches applied, except those of one manager."""
    result = template
    for patch in as_list(patches):
        if without and value_at(patch, ("manager",)) == without:
            continue
        for entry in as_list(value_at(patch, (*_SPEC_PATH, "replicatedJobs"))):
            change = value_at(entry, ("template",))
            if value_at(entry, ("name",)) == replicated_job and isinstance(change, Mapping):
                result = merge(result, change)
    return result


def create_patch(base: JsonObject, target: JsonObject) -> JsonObject:
    """Return the patch from one pod template to another, in the fields that an admission may change.

    The patch is empty if these fields are equal.
    """
    metadata = {
        field: changed
        for field in _METADATA
        if (
            changed := _find_changed_entries(
                value_at(base, ("metadata", field)), value_at(target, ("metadata", field))
            )
        )
    }
    spec: dict[str, Any] = {}
    before, after = object_at(base.get("spec")), object_at(target.get("spec"))
    if selector := _find_changed_entries(before.get("nodeSelector"), after.get("nodeSelector")):
        spec["nodeSelector"] = selector
    if (tolerations := as_list(after.get("tolerations"))) != as_list(before.get("tolerations")):
        spec["tolerations"] = tolerations
    gates = as_list(before.get("schedulingGates"))
    if added := [gate for gate in as_list(after.get("schedulingGates")) if gate not in gates]:
        spec["schedulingGates"] = added
    parts = {"metadata": metadata, "spec": spec}
    return {name: part for name, part in parts.items() if part}


def _find_changed_entries(before: Any, after: Any) -> dict[str, Any]:
    own = object_at(before)
    return {key: value for key, value in object_at(after).items() if own.get(key) != value}


def with_patch(patches: Any, manager: str, replicated_job: str, pod_template: JsonObject) -> list[Any]:
    """Return the patches with a manager's patch of a replicated job's pods at the end.

    The trainer lets later patches override earlier ones. An empty pod template removes the manager's patch.
    """
    others = [patch for patch in as_list(patches) if value_at(patch, ("manager",)) != manager]
    own = object_at(
        next((patch for patch in as_list(patches) if value_at(patch, ("manager",)) == manager), None)
    )
    entries = [
        entry
        for entry in as_list(value_at(own, (*_SPEC_PATH, "replicatedJobs")))
        if value_at(entry, ("name",)) != replicated_job
    ]
    if pod_template:
        entries.append({"name": replicated_job, "template": {"spec": {"template": pod_template}}})
    other_fields = {key: value for key, value in own.items() if key != _SPEC_PATH[0]}
    spec = {_SPEC_PATH[0]: {"template": {"spec": {"replicatedJobs": entries}}}} if entries else {}
    return [*others, {**other_fields, "manager": manager, **spec}]


def without_patch(patches: Any, manager: str) -> list[Any]:
    """Return the patches with an empty patch of one manager. Its entry stays at its position."""
    return [
        {key: value for key, value in patch.items() if key != _SPEC_PATH[0]}
        if isinstance(patch, Mapping) and patch.get("manager") == manager
        else patch
        for patch in as_list(patches)
    ]
