"""JSON patches of objects that other programs own. Each patch tests the fields that the decision depends on.

If a test fails, the API server rejects the patch. All other fields may have changed since the decision.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from admitq.integrations.base import PatchStep
from admitq_api.json_objects import JsonObject, apply_merge_patch, value_at
from admitq_api.json_patch import create_json_patch, create_pointer

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


def gate_removal(pod: JsonObject, gate: str) -> Operations:
    """Return the patch that removes one scheduling gate from the pod with this UID."""
    item = {"name": gate}
    path = f"/spec/schedulingGates/{pod['spec']['schedulingGates'].index(item)}"
    return (
        _test_uid(pod),
        {"op": "test", "path": path, "value": item},
        {"op": "remove", "path": path},
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
