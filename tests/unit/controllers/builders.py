"""Objects and controller inputs for tests, with defaults for all fields that decisions read."""

from dataclasses import fields, replace
from typing import Any

from admitq.controllers.settings import ControllerSettings, PodsReadyPolicy
from admitq.controllers.workload.case import WorkloadInputs
from admitq.core.model import LabelSelector
from admitq.integrations.kinds.job import JOB
from admitq.runtime.kinds import kinds_of
from admitq_api.conditions import SECOND, format_time
from admitq_api.labels import names_for

NAMES = names_for()
KINDS = kinds_of(NAMES)
START = 1_800_000_000 * SECOND
"""When the objects of these tests were created."""

POLICY = PodsReadyPolicy(
    timeout=300 * SECOND,
    recovery_timeout=100 * SECOND,
    backoff_limit=2,
    backoff_base_seconds=60,
    backoff_most_seconds=3600,
)
SETTINGS = ControllerSettings(integrations=(JOB,), namespace_selector=LabelSelector(), pods_ready=POLICY)


def settings_with(base: ControllerSettings = SETTINGS, /, **changes: Any) -> ControllerSettings:
    """Return settings with changed fields; fields of a group are named without the group."""
    groups: dict[str, Any] = {
        "conventions": base.conventions,
        "jobs": base.jobs,
        "pods": base.pods,
        "pending": base.pending,
        "retention": base.retention,
        "writes": base.writes,
    }
    for name, group in groups.items():
        own = {
            setting.name: changes.pop(setting.name) for setting in fields(group) if setting.name in changes
        }
        changes[name] = replace(group, **own)
    return replace(base, **changes)


def instant(seconds: float) -> int:
    """Return the instant so many seconds after the objects of these tests were created, in nanoseconds."""
    return START + round(seconds * SECOND)


def timestamp(seconds: float) -> str:
    """Return the same instant as the API writes it."""
    return format_time(instant(seconds))


def condition(type_: str, status: bool, reason: str, message: str = "", since: float = 0) -> dict[str, Any]:
    return {
        "type": type_,
        "status": str(status),
        "reason": reason,
        "message": message,
        "lastTransitionTime": timestamp(since),
    }


RESERVED = condition("QuotaReserved", True, "QuotaReserved", "Quota reserved in ClusterQueue cq")
ADMITTED = condition("Admitted", True, "Admitted", "The workload is admitted")
FINISHED = condition("Finished", True, "Succeeded")
ADMISSION = {
    "clusterQueue": "cq",
    "podSetAssignments": [{"name": "main", "count": 3, "flavors": {"cpu": "f"}}],
}
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
}


def workload(*conditions: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """Return a Workload with these conditions.

    Parts: name, owner (None: no owner), metadata, spec and further fields of the status.
    """
    metadata = {
        "name": parts.pop("name", "job-j-1"),
        "namespace": "ns",
        "uid": "uid-w",
        "resourceVersion": "7",
        "generation": 1,
        "creationTimestamp": timestamp(0),
        "finalizers": [NAMES.finalizer],
        "ownerReferences": [parts.pop("owner", OWNER)],
        **parts.pop("metadata", {}),
    }
    if metadata["ownerReferences"] == [None]:
        del metadata["ownerReferences"]
    spec = {
        "queueName": "lq",
        "podSets": [{"name": "main", "count": 3, "template": TEMPLATE}],
        "priority": 0,
        **parts.pop("spec", {}),
    }
    status = {"conditions": list(conditions), **parts} if conditions or parts else {}
    return {
        "apiVersion": NAMES.api_version,
        "kind": "Workload",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def reserved(*conditions: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """Return a Workload with reserved quota."""
    return workload(RESERVED, *conditions, **{"admission": ADMISSION, **parts})


def admitted(*conditions: dict[str, Any], since: float = 0, **parts: Any) -> dict[str, Any]:
    """Return an admitted Workload."""
    return reserved({**ADMITTED, "lastTransitionTime": timestamp(since)}, *conditions, **parts)


def local_queue(stop: str = "None", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "lq", "namespace": "ns", **metadata},
        "spec": {"clusterQueue": "cq", "stopPolicy": stop},
    }


def cluster_queue(
    stop: str = "None", checks: Any = (), flavors: Any = ("f",), **metadata: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": "cq", **metadata},
        "spec": {
            "stopPolicy": stop,
            "resourceGroups": [{"flavors": [{"name": name} for name in flavors]}],
            "admissionChecksStrategy": {"admissionChecks": list(checks)},
        },
    }


def job(spec: Any = None, status: Any = None, **metadata: Any) -> dict[str, Any]:
    """Return a suspended Job of three pods that names the LocalQueue ``lq``."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "j",
            "namespace": "ns",
            "uid": "uid-j",
            "resourceVersion": "3",
            "generation": 1,
            "creationTimestamp": timestamp(0),
            "labels": {NAMES.queue_name: "lq"},
            **metadata,
        },
        "spec": {"suspend": True, "parallelism": 3, "completions": 3, "template": TEMPLATE, **(spec or {})},
        "status": status or {},
    }


def apply_patch(obj: Any, patch: Any) -> Any:
    """Return the object after a merge patch, as the API server applies it."""
    if not isinstance(patch, dict):
        return patch
    result: dict[str, Any] = dict(obj) if isinstance(obj, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_patch(result.get(key, {}), value)
    return result


def condition_of(obj: dict[str, Any], type_: str) -> Any:
    """Return a condition without its times, as (status, reason, message); None if it does not exist."""
    for item in obj.get("status", {}).get("conditions", []):
        if item["type"] == type_:
            return item["status"], item["reason"], item["message"]
    return None


QUEUED = WorkloadInputs(
    names=NAMES,
    kinds=KINDS,
    settings=SETTINGS,
    local_queue=local_queue(),
    cluster_queue=cluster_queue(),
    cluster_queue_name="cq",
    cluster_queue_active=True,
)
"""Inputs for a Workload with existing, active queues."""
