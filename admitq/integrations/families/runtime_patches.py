"""Patches of pod templates as TrainJobs carry them: applied as the trainer does, and made from a difference.

The trainer applies them by the strategic merge of Kubernetes, which knows of some lists by which field their
entries are told apart. Patches can add and replace, and take nothing away.
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
"""What tells apart the entries of the lists that are merged; all other lists are replaced whole."""

_METADATA: Final = ("labels", "annotations")
_SPEC_PATH: Final = ("trainingRuntimeSpec", "template", "spec")


def merge(own: Any, patch: Any, field: str = "") -> Any:
    """The value with a strategic merge patch applied; ``field`` is the name of the field that has it."""
    if isinstance(own, Mapping) and isinstance(patch, Mapping):
        changed = {key: merge(own.get(key), value, key) for key, value in patch.items() if value is not None}
        return {**own, **changed}
    if isinstance(own, list) and isinstance(patch, list) and field in _MERGE_KEYS:
        return _merge_entries(own, patch, _MERGE_KEYS[field])
    return patch


def _merge_entries(own: list[Any], patch: list[Any], key: str) -> list[Any]:
    result = list(own)
    for one in patch:
        same = (
            place for place, other in enumerate(result) if value_at(other, (key,)) == value_at(one, (key,))
        )
        place = next(same, None)
        if place is None:
            result.append(one)
        else:
            result[place] = merge(result[place], one)
    return result


def apply_patches(template: Any, patches: Any, replicated_job: str, *, without: str = "") -> Any:
    """The job template of a replicated job with all patches in their order, but those of one manager."""
    result = template
    for patch in as_list(patches):
        if without and value_at(patch, ("manager",)) == without:
            continue
        for one in as_list(value_at(patch, (*_SPEC_PATH, "replicatedJobs"))):
            change = value_at(one, ("template",))
            if value_at(one, ("name",)) == replicated_job and isinstance(change, Mapping):
                result = merge(result, change)
    return result


def create_patch(base: JsonObject, wanted: JsonObject) -> JsonObject:
    """The patch that makes one pod template the other, in what an admission may add; empty if they agree."""
    metadata = {
        field: changed
        for field in _METADATA
        if (
            changed := _find_changed_entries(
                value_at(base, ("metadata", field)), value_at(wanted, ("metadata", field))
            )
        )
    }
    spec: dict[str, Any] = {}
    before, after = object_at(base.get("spec")), object_at(wanted.get("spec"))
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
    """The patches with one manager's patch of a replicated job's pods, as the last of all.

    The trainer lets a later patch overrule an earlier one. An empty patch takes the manager's away.
    """
    others = [one for one in as_list(patches) if value_at(one, ("manager",)) != manager]
    own = object_at(next((one for one in as_list(patches) if value_at(one, ("manager",)) == manager), None))
    kept = [
        one
        for one in as_list(value_at(own, (*_SPEC_PATH, "replicatedJobs")))
        if value_at(one, ("name",)) != replicated_job
    ]
    if pod_template:
        kept.append({"name": replicated_job, "template": {"spec": {"template": pod_template}}})
    rest = {key: value for key, value in own.items() if key != _SPEC_PATH[0]}
    spec = {_SPEC_PATH[0]: {"template": {"spec": {"replicatedJobs": kept}}}} if kept else {}
    return [*others, {**rest, "manager": manager, **spec}]


def without_patch(patches: Any, manager: str) -> list[Any]:
    """The patches with that of one manager emptied; its entry stays where it is."""
    return [
        {key: value for key, value in one.items() if key != _SPEC_PATH[0]}
        if isinstance(one, Mapping) and one.get("manager") == manager
        else one
        for one in as_list(patches)
    ]
