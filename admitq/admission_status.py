"""The part of a Workload's status that belongs to its admission, and how it is written.

The field manager of the admission writes this part by server-side apply. A later apply under the same
manager, whichever program sends it, then removes what it leaves out, ``status.admission`` above all. For the
same reason each configuration contains everything of this part that is to stay.

All writes of this part are applies. If a merge patch creates a condition and an apply changes it, two
managers own parts of it. The API server refuses an apply without that condition, for what remained would not
be valid.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from admitq.integrations.paths import merged
from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
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

_PARTS: Final = frozenset({"conditions", *FIELDS})


def belongs(workload: RawObject, patch: Mapping[str, Any]) -> bool:
    """Whether a merge patch of the status changes nothing but the admission status."""
    before = workload.get("status") or {}
    after = merged(before, patch["status"])
    stored, written = (_by_type(status.get("conditions")) for status in (before, after))
    changed = {kind for kind in stored.keys() | written.keys() if stored.get(kind) != written.get(kind)}
    return patch["status"].keys() <= _PARTS and changed <= CONDITIONS


def _by_type(conditions: Sequence[RawObject] | None) -> dict[str, RawObject]:
    return {one["type"]: one for one in conditions or ()}


def _part(status: RawObject) -> dict[str, Any]:
    """The admission status alone, without what is empty."""
    conditions = [one for one in status.get("conditions") or () if one.get("type") in CONDITIONS]
    fields = {name: status[name] for name in FIELDS if status.get(name) not in (None, [], {})}
    return {"conditions": conditions, **fields}


def configuration(resource: Resource, workload: RawObject, patch: Mapping[str, Any]) -> Object:
    """The apply configuration that does what a merge patch of the status would do.

    Args:
        resource: Workloads, in the version that is written.
        workload: the Workload that the patch was made from.
        patch: the merge patch; its ``resourceVersion`` guards the configuration, too.
    """
    metadata = workload["metadata"]
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "resourceVersion": patch["metadata"]["resourceVersion"],
        },
        "status": _part(merged(workload.get("status") or {}, patch["status"])),
    }


def _is_left(workload: RawObject, applied: RawObject, written: RawObject) -> bool:
    """Whether something that a configuration leaves out is still there: another manager owns it."""
    removed = _paths(_part(workload.get("status") or {})) - _paths(applied["status"])
    return bool(removed & _paths(written.get("status") or {}))


def _paths(value: Any, at: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """The paths of all fields, with items of lists under their type, name or value."""
    if isinstance(value, Mapping):
        entries = ((str(key), entry) for key, entry in cast("RawObject", value).items())
    elif isinstance(value, list):
        entries = ((_key_of(item), item) for item in cast("list[Any]", value))
    else:
        return {at}
    return {at}.union(*(_paths(entry, (*at, key)) for key, entry in entries))


def _key_of(item: Any) -> str:
    if not isinstance(item, Mapping):
        return str(item)
    fields = cast("RawObject", item)
    return next((str(fields[key]) for key in ("type", "name") if key in fields), repr(sorted(fields.items())))


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

    It is applied. An apply removes only what its own manager applied before, so a merge patch follows where
    something is left that has to go, and replaces an apply that would remove a part of an item only.

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
    metadata = workload["metadata"]
    if not merge_patches:
        applied = configuration(resource, workload, patch)
        try:
            written = await client.apply(resource, applied, field_manager=field_manager, subresource="status")
        except ApiError as error:
            # Of an item that several managers own a part might remain that is not valid alone.
            if not error.is_invalid:
                raise
        else:
            if not _is_left(workload, applied, written):
                return written
            patch = {**patch, "metadata": {"resourceVersion": written["metadata"]["resourceVersion"]}}
    return await client.merge_patch(
        resource,
        metadata["name"],
        dict(patch),
        namespace=metadata["namespace"],
        subresource="status",
        field_manager=field_manager,
    )
