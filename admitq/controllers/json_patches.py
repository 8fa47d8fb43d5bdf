"""JSON patches of objects of others: each tests what it was decided from, and changes nothing else.

A test that fails refuses the patch. Everything else of the object may have changed since it was looked at.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from admitq.integrations.base import PatchStep
from admitq_api.json_objects import JsonObject, apply_merge_patch, value_at
from admitq_api.json_patch import create_json_patch, create_pointer

Operations = Sequence[Mapping[str, Any]]


def finalizer_removal(obj: JsonObject, finalizer: str, version: str | None) -> Operations:
    """Remove one finalizer of this very object and leave those of others alone.

    With a version of the object nothing else of it may have changed since, either.
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
    """Take one gate off this very pod and leave those of others alone."""
    item = {"name": gate}
    path = f"/spec/schedulingGates/{pod['spec']['schedulingGates'].index(item)}"
    return (
        _test_uid(pod),
        {"op": "test", "path": path, "value": item},
        {"op": "remove", "path": path},
    )


def conditional_patch(obj: JsonObject, step: PatchStep) -> Operations:
    """Do what a merge patch does, if this very object is as it was seen at the step's paths.

    A mapping that is added, such as the first annotation, would replace one that another writer has added
    since: so there must be none.
    """
    changes = create_json_patch(obj, apply_merge_patch(obj, step.patch))
    added = (one["path"] for one in changes if one["op"] == "add" and isinstance(one["value"], Mapping))
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
