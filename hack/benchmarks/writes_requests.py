"""Workloads, and the writes of their statuses, as the manager sends them and in other forms."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import orjson

from admitq.core.amounts import amounts
from admitq.core.model import Admission, PodSetAssignment
from admitq.runtime.client import Client
from admitq.runtime.resources import Resource
from admitq.workloads.admission_patches import pending_patch, reservation_patch
from admitq.workloads.admission_status import ADMISSION_MANAGER_SUFFIX, apply_configuration
from admitq_api.json_objects import JsonObject, apply_merge_patch
from admitq_api.labels import names_for

NAMESPACE: Final = "bench"
_NAMES: Final = names_for()
FIELD_MANAGER: Final = _NAMES.field_manager(ADMISSION_MANAGER_SUFFIX)
CREATOR: Final = _NAMES.field_manager("job-controller")
_REQUESTS: Final = (("main", amounts({"cpu": 1000, "memory": 2 * 1024**3})),)
_ADMISSION: Final = Admission(
    "cluster-queue",
    (PodSetAssignment("main", (("cpu", "default"), ("memory", "default")), _REQUESTS[0][1], 1),),
)

Patch = dict[str, Any]


def pod_template(kib: int) -> dict[str, Any]:
    """Return the template of a Job as the API server stores it, of about this many KiB of JSON."""
    template: dict[str, Any] = {
        "metadata": {
            "labels": {
                "batch.kubernetes.io/controller-uid": "8d2c3a0e-6f4b-4c8e-9a51-0c1f7f1d2b11",
                "batch.kubernetes.io/job-name": "job",
                "controller-uid": "8d2c3a0e-6f4b-4c8e-9a51-0c1f7f1d2b11",
                "job-name": "job",
            }
        },
        "spec": {
            "containers": [
                {
                    "name": "work",
                    "image": "registry.example.com/team/training:2026.11",
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python", "-m", "training"],
                    "args": ["--epochs=10", "--batch-size=256"],
                    "env": [],
                    "resources": {
                        "requests": {"cpu": "1", "memory": "2Gi"},
                        "limits": {"cpu": "1", "memory": "2Gi"},
                    },
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                }
            ],
            "dnsPolicy": "ClusterFirst",
            "restartPolicy": "Never",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
        },
    }
    variables: list[dict[str, str]] = template["spec"]["containers"][0]["env"]
    size, goal = len(orjson.dumps(template)), kib * 1024
    while size < goal:
        variable = {"name": f"SETTING_{len(variables):04}", "value": "a-value-of-thirty-two-characters"}
        variables.append(variable)
        size += len(orjson.dumps(variable)) + 1
    return template


def new_workload(resource: Resource, name: str, template_kib: int) -> dict[str, Any]:
    """Return the Workload that the job controller would create for a Job."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {_NAMES.job_uid: "8d2c3a0e-6f4b-4c8e-9a51-0c1f7f1d2b11"},
            "finalizers": [_NAMES.finalizer],
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": "job",
                    "uid": "8d2c3a0e-6f4b-4c8e-9a51-0c1f7f1d2b11",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "podSets": [{"name": "main", "count": 1, "template": pod_template(template_kib)}],
            "queueName": "queue",
            "priority": 0,
        },
    }


# What is written


def _report(obj: JsonObject, number: int) -> Patch | None:
    message = (
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, "
        f"{number + 1} more needed"
    )
    return pending_patch(
        obj, reason="Pending", message=message, resource_requests=_REQUESTS, now=time.time_ns()
    )


def _reservation(obj: JsonObject, _: int) -> Patch | None:
    return reservation_patch(obj, _ADMISSION, admit=True, now=time.time_ns())


def _release(obj: JsonObject, _: int) -> Patch | None:
    return pending_patch(
        obj,
        reason="Pending",
        message="The quota was released",
        resource_requests=_REQUESTS,
        now=time.time_ns(),
    )


REPORT: Final = "report"
RESERVATION: Final = "reservation"
CHANGES: Final[Mapping[str, Callable[[JsonObject, int], Patch | None]]] = {
    REPORT: _report,
    RESERVATION: _reservation,
    "release": _release,
}
"""The changes of a Workload in a round, in order; the number is that of the round."""


# How it is written


async def _apply(client: Client, resource: Resource, obj: JsonObject, patch: Patch) -> dict[str, Any]:
    return await client.apply(
        resource,
        apply_configuration(resource, obj, patch),
        field_manager=FIELD_MANAGER,
        subresource="status",
    )


async def _merge_patch(client: Client, resource: Resource, obj: JsonObject, patch: Patch) -> dict[str, Any]:
    return await client.merge_patch(
        resource, obj["metadata"]["name"], patch, NAMESPACE, "status", field_manager=FIELD_MANAGER
    )


async def _json_patch(client: Client, resource: Resource, obj: JsonObject, patch: Patch) -> dict[str, Any]:
    version = obj["metadata"]["resourceVersion"]
    operations = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/status", "value": _status_after(obj, patch)},
    ]
    return await client.json_patch(
        resource, obj["metadata"]["name"], operations, NAMESPACE, "status", field_manager=FIELD_MANAGER
    )


async def _update(client: Client, resource: Resource, obj: JsonObject, patch: Patch) -> dict[str, Any]:
    changed = {**obj, "status": _status_after(obj, patch)}
    return await client.replace(resource, changed, "status", field_manager=FIELD_MANAGER)


async def _slim_update(client: Client, resource: Resource, obj: JsonObject, patch: Patch) -> dict[str, Any]:
    metadata = {key: obj["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")}
    changed = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata,
        "status": _status_after(obj, patch),
    }
    return await client.replace(resource, changed, "status", field_manager=FIELD_MANAGER)


def _status_after(obj: JsonObject, patch: Patch) -> dict[str, Any]:
    return apply_merge_patch(obj.get("status") or {}, patch["status"])


APPLY: Final = "apply"
MERGE_PATCH: Final = "merge-patch"
WRITES: Final[Mapping[str, Callable[[Client, Resource, JsonObject, Patch], Awaitable[dict[str, Any]]]]] = {
    APPLY: _apply,
    MERGE_PATCH: _merge_patch,
    "json-patch": _json_patch,
    "update": _update,
    "update-without-spec": _slim_update,
}
"""The forms of a write of the status, by name. All fail if the Workload has changed."""


async def create_workload(
    client: Client,
    resource: Resource,
    name: str,
    *,
    template_kib: int,
    managers: int,
    tracks_fields: bool,
) -> dict[str, Any]:
    """Create a Workload that waits, and return it.

    Args:
        client: sends the writes.
        resource: the resource of Workloads.
        name: the name of the Workload.
        template_kib: the size of its pod template, in KiB.
        managers: the number of further field managers, each of which owns an annotation.
        tracks_fields: false removes all managed fields. While an object has none, the API server adds none,
            unless the object is applied.
    """
    obj = await client.create(resource, new_workload(resource, name, template_kib), field_manager=CREATOR)
    for number in range(managers):
        annotated = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "annotations": {f"bench.example.com/manager-{number}": "x"},
            },
        }
        obj = await client.apply(resource, annotated, field_manager=f"manager-{number}")
    if not tracks_fields:
        cleared = {"metadata": {"managedFields": [{}]}}
        obj = await client.merge_patch(resource, name, cleared, NAMESPACE)
    return obj
