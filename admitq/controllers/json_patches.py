"""JSON patches of objects that other programs own. Each patch tests the fields that the decision depends on.

If a test fails, the API server rejects the patch. All other fields may have changed since the decision.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from admitq.integrations.base import PatchStep
from admitq.workloads.transitions import is_condition_true
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import JsonObject, apply_merge_patch, value_at
from admitq_api.json_patch import create_json_patch, create_pointer
from admitq_api.labels import Names

Operations = Sequence[Mapping[str, Any]]


def finalizer_removal(obj: JsonObject, finalizer: str, version: str | None) -> Operations:
    """Return the patch that removes one finalizer from the object with this UID.

    If ``version`` is given, the patch fails if anything in the object has changed since that version.
    """
    place = value_at(obj, ("metadata", "finalizers"), []).index(finalizer)
    path = f"/metadata/finalizers/{place}"
    unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    return (
        _test_uid(obj),
        *((unchanged,) if version is not None else ()),
        {"op": "test", "path": path, "value": finalizer},
        {"op": "remove", "path": path},
    )


def workload_release(workload: JsonObject, names: Names, finalizer: str, version: str | None) -> Operations:
    """Return the patch that removes a finalizer from a Workload, as ``finalizer_removal``.

    It also labels a finished Workload, except one that is being deleted.
    """
    removal = finalizer_removal(workload, finalizer, version)
    if not is_condition_true(workload, ConditionType.FINISHED) or "deletionTimestamp" in workload["metadata"]:
        return removal
    return (*removal, *_label_addition(workload, names.finished, "true"))


def _label_addition(obj: JsonObject, key: str, value: str) -> Operations:
    """Return the operations that add a label; they fail if the object has lost or got its map of labels."""
    if value_at(obj, ("metadata", "labels")) is None:
        # A new map would replace one that another writer has added meanwhile.
        path = "/metadata/labels"
        return (
            {"op": "test", "path": path, "value": None},
            {"op": "add", "path": path, "value": {key: value}},
        )
    return ({"op": "add", "path": create_pointer(("metadata", "labels", key)), "value": value},)


def gate_removal(
    pod: JsonObject, gate: str, node_selector: Mapping[str, str] = MappingProxyType({})
) -> Operations:
    """Return the patch that removes one scheduling gate from the pod with this UID.

    The patch also adds the labels of ``node_selector`` to that of the pod. Then it fails if the node selector
    has changed.
    """
    item = {"name": gate}
    path = f"/spec/schedulingGates/{pod['spec']['schedulingGates'].index(item)}"
    return (
        _test_uid(pod),
        {"op": "test", "path": path, "value": item},
        *(_node_selector_addition(pod, node_selector) if node_selector else ()),
        {"op": "remove", "path": path},
    )


def _node_selector_addition(pod: JsonObject, added: Mapping[str, str]) -> Operations:
    path, own = "/spec/nodeSelector", value_at(pod, ("spec", "nodeSelector"))
    return (
        {"op": "test", "path": path, "value": own},
        {"op": "add", "path": path, "value": {**(own or {}), **added}},
    )


def conditional_patch(obj: JsonObject, step: PatchStep) -> Operations:
    """Return a JSON patch that equals a merge patch, if the object is unchanged at the paths of the step.

    The patch may add a mapping, for example the first annotation. It would replace a mapping that another
    writer has added meanwhile. So the patch also tests that there is no mapping.
    """
    changes = create_json_patch(obj, apply_merge_patch(obj, step.patch))
    added = (
        change["path"] for change in changes if change["op"] == "add" and isinstance(change["value"], Mapping)
    )
    return (
        _test_uid(obj),
        *(
            {"op": "test", "path": create_pointer(path), "value": value_at(obj, path)}
            for path in step.required_unchanged
        ),
        *({"op": "test", "path": path, "value": None} for path in added),
        *changes,
    )


def _test_uid(obj: JsonObject) -> Mapping[str, Any]:
    return {"op": "test", "path": "/metadata/uid", "value": obj["metadata"]["uid"]}
