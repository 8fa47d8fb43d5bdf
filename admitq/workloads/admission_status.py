"""The admission status: the part of a Workload's status that belongs to its admission, and how it is written.

One field manager writes this part by server-side apply. A later apply of the same field manager removes the
fields that it does not contain, such as ``status.admission``, whichever program sends it. Therefore each
apply configuration contains all fields of the admission status that stay.

Merge patches write this part only if an apply is not possible. If a merge patch creates a condition and an
apply changes it, two field managers own parts of the condition. The API server then rejects an apply without
that condition, because the rest of the condition would not be valid.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeAlias, cast

from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import JsonObject, apply_merge_patch, create_merge_patch

ADMISSION_MANAGER_SUFFIX: Final = "admission"
"""The last part of the name of the field manager that writes the admission status."""

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
"""Fields of the admission status besides conditions."""

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
"""Conditions of the admission status: those that its field manager may have applied."""

FieldPath: TypeAlias = tuple[str, ...]
"""The keys from a status to one of its values; the keys of list items are those of `_key_of`."""

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
    return {condition["type"]: condition for condition in conditions or ()}


def _admission_status(status: JsonObject) -> dict[str, Any]:
    """Return the admission status of a status, without empty fields."""
    conditions = [
        condition
        for condition in status.get("conditions") or ()
        if condition.get("type") in ADMISSION_CONDITIONS
    ]
    fields = {name: status[name] for name in ADMISSION_FIELDS if status.get(name) not in (None, [], {})}
    return {"conditions": conditions, **fields}


def apply_configuration(resource: Resource, workload: JsonObject, patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the apply configuration with the effect of a merge patch of the status.

    Args:
        resource: the resource of Workloads, in the API version of the write.
        workload: the Workload that the patch was made from.
        patch: the merge patch; the configuration gets its ``resourceVersion``.
    """
    status = _admission_status(apply_merge_patch(workload.get("status") or {}, patch["status"]))
    return _configuration_of(status, resource, workload, patch)


def _configuration_of(
    status: Mapping[str, Any], resource: Resource, workload: JsonObject, patch: Mapping[str, Any]
) -> dict[str, Any]:
    metadata = workload["metadata"]
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "resourceVersion": patch["metadata"]["resourceVersion"],
        },
        "status": status,
    }


def _removed_paths(before: Any, after: Any, at: FieldPath = ()) -> Iterator[FieldPath]:
    """Yield the paths that exist in one value and not in the other; equal parts are not searched."""
    remaining = dict(_entries(after))
    for key, entry in _entries(before):
        if key not in remaining:
            yield from _paths(entry, (*at, key))
        elif entry != remaining[key]:
            yield from _removed_paths(entry, remaining[key], (*at, key))


def _needs_one_write(removed: AbstractSet[FieldPath], after: JsonObject) -> bool:
    """Whether the write removes conditions or fields that must disappear in the same write.

    Only a merge patch removes fields of any field manager. These fields may disappear in a second write: an
    admission without the condition QuotaReserved, because it holds no quota, and requests and parts of
    checks. Parts of a former admission must disappear in the write of a new admission. Otherwise the new
    admission would hold more than was decided, and the webhook rejects changes of an admission with reserved
    quota.
    """
    may_follow = _REMOVABLE_LATER if after.get("admission") else _REMOVABLE_LATER | {"admission"}
    return any(len(path) == 2 if path[0] == "conditions" else path[0] not in may_follow for path in removed)


def _correcting_patch(
    removed: AbstractSet[FieldPath], after: JsonObject, written: JsonObject
) -> dict[str, Any] | None:
    """Return the merge patch that corrects the result of an apply; None if the result is correct.

    An apply leaves fields that another field manager owns. It removes other conditions that another program
    applied under the same field manager.
    """
    is_left = bool(removed) and not removed.isdisjoint(_paths(written))
    other_types = _conditions_by_type(after.get("conditions")).keys() - ADMISSION_CONDITIONS
    if not is_left and other_types <= _conditions_by_type(written.get("conditions")).keys():
        return None
    return create_merge_patch(written, after)


def _paths(value: Any, at: FieldPath = ()) -> Iterator[FieldPath]:
    """Yield the paths of a value and of all its fields."""
    yield at
    for key, entry in _entries(value):
        yield from _paths(entry, (*at, key))


def _entries(value: Any) -> Iterable[tuple[str, Any]]:
    """Return the fields of an object, or the items of a list by their keys; nothing for other values."""
    if isinstance(value, list):
        return ((_key_of(item, index), item) for index, item in enumerate(cast("list[Any]", value)))
    return cast("JsonObject", value).items() if isinstance(value, Mapping) else ()


def _key_of(item: Any, index: int) -> str:
    """Return the key of a list item: its type, its name, its index, or the item itself if it is no object."""
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
    """Write a change of the admission status by server-side apply, and by a merge patch if necessary.

    An apply removes only fields of its own field manager. A merge patch follows if the result of the apply is
    not the wanted status. A merge patch replaces the apply in two cases: the API server rejects the apply
    because a part of an item would remain, or fields must disappear in the same write.

    Args:
        client: sends the writes.
        resource: the resource of Workloads.
        workload: the Workload that the patch was made from.
        patch: the change as a merge patch with the resourceVersion of the Workload.
        field_manager: the field manager of the admission status.
        merge_patches: always send the merge patch (gate WorkloadRequestUseMergePatch).

    Raises:
        ApiError: the API server rejected the write or did not answer.
    """
    metadata = workload["metadata"]
    before = workload.get("status") or {}
    after = apply_merge_patch(before, patch["status"])
    wanted = _admission_status(after)
    removed = set(_removed_paths(_admission_status(before), wanted))
    body = dict(patch)
    if not (merge_patches or _needs_one_write(removed, after)):
        try:
            written = await client.apply(
                resource,
                _configuration_of(wanted, resource, workload, patch),
                field_manager=field_manager,
                subresource="status",
            )
        except ApiError as error:
            # The API server rejects an apply that would leave an invalid part of an item of several managers.
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
