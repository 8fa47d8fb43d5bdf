"""The part of a Workload's status that belongs to its admission, and how it is written.

The field manager of the admission writes this part by server-side apply. A later apply under the same
manager, whichever program sends it, then removes what it leaves out, ``status.admission`` above all. For the
same reason each configuration has to contain everything of this part that is to stay.
"""

from collections.abc import Mapping
from typing import Any, Final

from admitq.runtime.client import Client
from admitq.runtime.resources import Object, Resource
from admitq_api.conditions import ConditionType

RawObject = Mapping[str, Any]

CONCERN: Final = "admission"
"""What the field manager of the admission is named after."""

FIELDS: Final = (
    "admission",
    "requeueState",
    "admissionChecks",
    "resourceRequests",
    "accumulatedPastExecutionTimeSeconds",
    "schedulingStats",
    "nominatedClusterNames",
    "clusterName",
    "unhealthyNodes",
    "preemptionGates",
)
"""Fields of the status that belong to the admission, besides conditions."""

CONDITIONS: Final = frozenset(
    {
        ConditionType.QUOTA_RESERVED,
        ConditionType.ADMITTED,
        ConditionType.PODS_READY,
        ConditionType.EVICTED,
        ConditionType.PREEMPTED,
        ConditionType.REQUEUED,
        ConditionType.DEACTIVATION_TARGET,
        ConditionType.BLOCKED_ON_PREEMPTION_GATES,
    }
)
"""Conditions that belong to the admission: those that its manager may have applied."""


def configuration(resource: Resource, workload: RawObject, patch: Mapping[str, Any]) -> Object:
    """The apply configuration that does what a merge patch of the status would do.

    Args:
        resource: Workloads, in the version that is written.
        workload: the Workload that the patch was made from.
        patch: the merge patch; its ``resourceVersion`` guards the configuration, too.
    """
    status = {**(workload.get("status") or {}), **patch["status"]}
    conditions = [one for one in status.get("conditions") or () if one.get("type") in CONDITIONS]
    fields = {name: status[name] for name in FIELDS if status.get(name) not in (None, [], {})}
    metadata = workload["metadata"]
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "resourceVersion": patch["metadata"]["resourceVersion"],
        },
        "status": {"conditions": conditions, **fields},
    }


def removes_admission(patch: Mapping[str, Any]) -> bool:
    """Whether a merge patch removes ``status.admission``.

    An apply could not do that: it removes only what its own manager applied before.
    """
    status = patch["status"]
    return "admission" in status and status["admission"] is None


async def write(
    client: Client,
    resource: Resource,
    workload: RawObject,
    patch: Mapping[str, Any],
    *,
    field_manager: str,
    merge_patches: bool,
) -> Object:
    """Write a change of the admission status.

    Args:
        client: for the write.
        resource: Workloads.
        workload: the Workload that the patch was made from.
        patch: the change as a merge patch that carries the version of the Workload.
        field_manager: the manager of the admission.
        merge_patches: send the merge patch itself (gate WorkloadRequestUseMergePatch).

    Raises:
        ApiError: the write was refused or got no answer.
    """
    if merge_patches or removes_admission(patch):
        metadata = workload["metadata"]
        return await client.merge_patch(
            resource,
            metadata["name"],
            dict(patch),
            namespace=metadata["namespace"],
            subresource="status",
            field_manager=field_manager,
        )
    return await client.apply(
        resource,
        configuration(resource, workload, patch),
        field_manager=field_manager,
        subresource="status",
    )
