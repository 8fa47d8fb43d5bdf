"""The part of a Workload's status that belongs to its admission, and how it is written.

The field manager of the admission writes this part by server-side apply. A later apply under the same
manager, whichever program sends it, then removes what it leaves out, ``status.admission`` above all. For the
same reason each configuration contains everything of this part that is to stay.

Writes of this part are applies as far as possible. If a merge patch creates a condition and an apply changes
it, two managers own parts of it. The API server refuses an apply without that condition, for what remained
would not be valid.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, cast

from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import JsonObject, apply_merge_patch, create_merge_patch

ADMISSION_MANAGER_SUFFIX: Final = "admission"
"""What the field manager of the admission is named after."""

ADMISSION_FIELDS: Final = (
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

ADMISSION_CONDITIONS: Final = frozenset(
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

_WRITABLE_FIELDS: Final = frozenset({"conditions", *ADMISSION_FIELDS})
_REMOVABLE_LATER: Final = frozenset({"resourceRequests", "admissionChecks"})


def changes_only_admission_status(workload: JsonObject, patch: Mapping[str, Any]) -> bool:
    """Whether a merge patch of the status changes nothing but the admission status."""
    before = workload.get("status") or {}
    after = apply_merge_patch(before, patch["status"])
    stored, written = (_conditions_by_type(status.get("conditions")) for status in (before, after))
    changed = {kind for kind in stored.keys() | written.keys() if stored.get(kind) != written.get(kind)}
    return patch["status"].keys() <= _WRITABLE_FIELDS and changed <= ADMISSION_CONDITIONS


def _conditions_by_type(conditions: Sequence[JsonObject] | None) -> dict[str, JsonObject]:
    return {one["type"]: one for one in conditions or ()}


def _admission_status(status: JsonObject) -> dict[str, Any]:
    """The admission status alone, without what is empty."""
    conditions = [one for one in status.get("conditions") or () if one.get("type") in ADMISSION_CONDITIONS]
    fields = {name: status[name] for name in ADMISSION_FIELDS if status.get(name) not in (None, [], {})}
    return {"conditions": conditions, **fields}


def apply_configuration(resource: Resource, workload: JsonObject, patch: Mapping[str, Any]) -> dict[str, Any]:
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
        "status": _admission_status(apply_merge_patch(workload.get("status") or {}, patch["status"])),
    }


def _removed_paths(before: JsonObject, after: JsonObject) -> set[tuple[str, ...]]:
    """The paths that the admission status has before, and no longer has after."""
    return _paths(_admission_status(before)) - _paths(_admission_status(after))


def _needs_one_write(removed: AbstractSet[tuple[str, ...]], after: JsonObject) -> bool:
    """Whether conditions or fields go that have to go in the very write that states the rest.

    A merge patch removes them whichever manager owns them. An admission without the condition QuotaReserved
    holds nothing, and neither do requests or parts of checks: what is left of those can follow. Parts of a
    former admission go in the write that states another one. With them it would hold more than was decided,
    and once quota is reserved the webhook refuses to change it.
    """
    may_follow = _REMOVABLE_LATER if after.get("admission") else _REMOVABLE_LATER | {"admission"}
    return any(len(path) == 2 if path[0] == "conditions" else path[0] not in may_follow for path in removed)


def _correcting_patch(
    removed: AbstractSet[tuple[str, ...]], after: JsonObject, written: JsonObject
) -> dict[str, Any] | None:
    """What to merge if an apply left something that has to go, or removed a condition of another kind.

    The former belongs to another manager, the latter to another program that uses the same one.
    """
    is_left = bool(removed) and not removed.isdisjoint(_paths(written))
    kept = _conditions_by_type(after.get("conditions")).keys() - ADMISSION_CONDITIONS
    if not is_left and kept <= _conditions_by_type(written.get("conditions")).keys():
        return None
    return create_merge_patch(written, after)


def _paths(value: Any, at: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """The paths of all fields, with items of lists under their type, name, index or value."""
    if isinstance(value, Mapping):
        entries = ((str(key), entry) for key, entry in cast("JsonObject", value).items())
    elif isinstance(value, list):
        entries = ((_key_of(item, index), item) for index, item in enumerate(cast("list[Any]", value)))
    else:
        return {at}
    return {at}.union(*(_paths(entry, (*at, key)) for key, entry in entries))


def _key_of(item: Any, index: int) -> str:
    if not isinstance(item, Mapping):
        return str(item)
    fields = cast("JsonObject", item)
    return next((str(fields[key]) for key in ("type", "name") if key in fields), str(index))


async def write_admission_status(
    client: Client,
    resource: Resource,
    workload: JsonObject,
    patch: Mapping[str, Any],
    *,
    field_manager: str,
    merge_patches: bool,
) -> dict[str, Any]:
    """Write a change of the admission status.

    It is applied. An apply removes what its own manager applied before and nothing else, so a merge patch
    follows where the answer is not as it should be. A merge patch replaces an apply that is refused because a
    part of an item would remain, and one that would have to remove more than the admission.

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
    before = workload.get("status") or {}
    after = apply_merge_patch(before, patch["status"])
    removed = _removed_paths(before, after)
    body = dict(patch)
    if not (merge_patches or _needs_one_write(removed, after)):
        try:
            written = await client.apply(
                resource,
                apply_configuration(resource, workload, patch),
                field_manager=field_manager,
                subresource="status",
            )
        except ApiError as error:
            # Of an item that several managers own a part might remain that is not valid alone.
            if not error.is_invalid:
                raise
        else:
            correction = _correcting_patch(removed, after, written.get("status") or {})
            if correction is None:
                return written
            version = written["metadata"]["resourceVersion"]
            body = {"metadata": {"resourceVersion": version}, "status": correction}
    return await client.merge_patch(
        resource,
        metadata["name"],
        body,
        namespace=metadata["namespace"],
        subresource="status",
        field_manager=field_manager,
    )
