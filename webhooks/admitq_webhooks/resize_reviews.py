"""Reviews of in-place resizes: a pod may request no more than its Workload was admitted with."""

from collections.abc import AsyncIterator
from typing import Final

from admitq.integrations.ownership import (
    MAX_OWNER_DEPTH,
    get_controller,
    get_queue_name,
    has_known_controller,
)
from admitq.workloads.pod_charges import NO_CHARGE, granted_charges, pod_charge
from admitq.workloads.transitions import is_reserved
from admitq_api.field_errors import ErrorPath, FieldError
from admitq_api.json_objects import JsonObject, object_at, value_at
from admitq_api.labels import Names
from admitq_webhooks.lookups import ClusterLookups
from admitq_webhooks.policy import Policy
from admitq_webhooks.review import AdmissionRequest

_REMEDY: Final = "create the pod, or its job, again with these requests"
_MAIN: Final = "main"


async def review_resize(
    request: AdmissionRequest, policy: Policy, lookups: ClusterLookups
) -> list[FieldError]:
    """Check a resize of a pod.

    A resize may lower requests, and raise them again to those of the podset. It may not raise requests if the
    Workload does not exist, has no quota, or does not belong to the pod or its job. The same holds for a pod
    without marks that follows a queued job, because no admission has started that job.

    Raises:
        LookupFailed: the Workload or an owner cannot be read, so the change must be rejected.
    """
    names, namespace = policy.names, request.namespace
    after = pod_charge(object_at(request.obj, ("spec",)))
    raised = after.resources_above(pod_charge(object_at(request.old, ("spec",))))
    if not raised:
        return []
    if _is_charged(request.old, names):
        workload = await _find_workload(request, policy, lookups)
    elif await _follows_queued(request.old, namespace, policy, lookups):
        workload = None
    else:
        return []
    pod_set = object_at(request.old, ("metadata", "labels")).get(names.podset, _MAIN)
    allowed = (
        granted_charges(workload).get(pod_set, NO_CHARGE) if workload and is_reserved(workload) else NO_CHARGE
    )
    beyond = sorted(set(raised).intersection(after.resources_above(allowed)))
    if not beyond:
        return []
    reason = f"the pod would request more {', '.join(beyond)} than was admitted"
    return [FieldError.forbidden(ErrorPath("spec"), reason, _REMEDY)]


def _is_charged(pod: JsonObject, names: Names) -> bool:
    """Whether a Workload covers the pod: its own, that of its group, or that of its job."""
    labels, annotations = (object_at(pod, ("metadata", place)) for place in ("labels", "annotations"))
    return (
        labels.get(names.managed) == "true"
        or names.podset in labels
        or names.workload in annotations
        or names.workload_slice_name in annotations
    )


async def _find_workload(
    request: AdmissionRequest, policy: Policy, lookups: ClusterLookups
) -> JsonObject | None:
    """Return the Workload that the pod names, if it belongs to the pod or to a job that the pod follows."""
    names, namespace = policy.names, request.namespace
    name = value_at(request.old, ("metadata", "annotations", names.workload))
    if not isinstance(name, str):
        return None
    workload = await lookups.get_object(names.group, names.version, "Workload", namespace, name)
    if workload is None or not await _belongs_to_pod(workload, request.old, namespace, policy, lookups):
        return None
    return workload


async def _belongs_to_pod(
    workload: JsonObject, pod: JsonObject, namespace: str, policy: Policy, lookups: ClusterLookups
) -> bool:
    """Whether a Workload belongs to a pod or to its controllers; users can set any annotation on a pod."""
    owners = {reference.get("uid") for reference in value_at(workload, ("metadata", "ownerReferences"), [])}
    owners |= {value_at(workload, ("metadata", "labels", policy.names.job_uid))}
    owners.discard(None)
    if value_at(pod, ("metadata", "uid")) in owners or value_at(get_controller(pod), ("uid",)) in owners:
        return True
    async for owner in _controllers(pod, namespace, policy, lookups):
        if value_at(get_controller(owner), ("uid",)) in owners:
            return True
    return False


async def _follows_queued(pod: JsonObject, namespace: str, policy: Policy, lookups: ClusterLookups) -> bool:
    """Whether a pod follows a job that is queued."""
    async for owner in _controllers(pod, namespace, policy, lookups):
        if policy.manage_jobs_without_queue_name or get_queue_name(owner, policy.names):
            return True
    return False


async def _controllers(
    pod: JsonObject, namespace: str, policy: Policy, lookups: ClusterLookups
) -> AsyncIterator[JsonObject]:
    """Yield the controller of a pod, the controller of that controller, and so on, of known kinds."""
    current = pod
    for _ in range(MAX_OWNER_DEPTH):
        reference = get_controller(current)
        if reference is None or not has_known_controller(
            current, policy.integrations, policy.external_frameworks
        ):
            return
        group, _, version = str(reference.get("apiVersion", "")).rpartition("/")
        kind, name = (str(reference.get(field, "")) for field in ("kind", "name"))
        owner = await lookups.get_object(group, version, kind, namespace, name)
        if owner is None or value_at(owner, ("metadata", "uid")) != reference.get("uid"):
            return
        yield owner
        current = owner
