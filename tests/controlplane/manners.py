"""The manners in which another program may write a Workload.

A write is given by two versions of a Workload, which differ either in the status or in the rest. Each manner
sends the difference as a program of that kind does.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, cast

from admitq.runtime.client import Client
from admitq.runtime.kinds import kinds_of
from admitq_api.json_objects import JsonObject, create_merge_patch, select_fields, value_at
from admitq_api.labels import Names
from admitq_api.quantity import format_amount, parse_amount
from localcluster.waiting import eventually

Change = Callable[[JsonObject, int], JsonObject]
"""Return the changed Workload, from the current one and the time in nanoseconds."""


class Manner(StrEnum):
    """How a program writes."""

    MERGE_PATCH = "merge patch"
    """A merge patch of the difference."""
    PUT = "PUT"
    """The whole object as it was read, with the change."""
    TYPED_UPDATE = "typed update"
    """The whole object as a typed client writes it: without empty fields, with canonical quantities."""
    APPLY = "server-side apply"
    """Server-side apply, by one field manager for each concern (semantics, Process model)."""


@dataclass(frozen=True)
class Applied:
    """One server-side apply: afterwards the field manager owns exactly these fields."""

    manager: str
    fields: JsonObject


CHECK_CONTROLLER: Final = "example.com/check"
"""The field manager of check states: the controller name of the AdmissionCheck."""

_OWN_CONCERNS: Final[Mapping[str, str]] = {
    "PodsReady": "job-controller-PodsReady",
    "Finished": "job-controller-Finished",
    "WaitingForReplacementPods": "pod-controller",
}
"""The concerns of conditions that are not applied together with the admission."""

_QUANTITIES: Final = frozenset({"requests", "limits", "resourceUsage", "resources", "overhead"})
"""Fields that map resources to quantities, unless their values are mappings."""


async def write(client: Client, names: Names, key: tuple[str, str], change: Change, manner: Manner) -> None:
    """Write a change to the newest version of a Workload, and retry after a conflict.

    Args:
        client: the client of the other program.
        names: the names of the API group.
        key: namespace and name of the Workload.
        change: the change.
        manner: how the program writes.

    Raises:
        ApiError: the write was refused.
    """
    namespace, name = key
    workloads = kinds_of(names).workloads

    async def written() -> bool:
        before = await client.get(workloads, name, namespace)
        after = change(before, time.time_ns())
        if after == before:
            return True
        subresource = "status" if before.get("status") != after.get("status") else None
        guard = {"resourceVersion": before["metadata"]["resourceVersion"]}
        match manner:
            case Manner.MERGE_PATCH:
                patch = create_merge_patch(before, after)
                patch["metadata"] = {**patch.get("metadata", {}), **guard}
                await client.merge_patch(workloads, name, patch, namespace, subresource)
            case Manner.PUT:
                await client.replace(workloads, dict(after), subresource)
            case Manner.TYPED_UPDATE:
                await client.replace(workloads, typed(after), subresource)
            case Manner.APPLY:
                identity = {"name": name, "namespace": namespace}
                for one in applied(before, after, names):
                    obj = {"apiVersion": workloads.api_version, "kind": workloads.kind, **one.fields}
                    obj["metadata"] = {**one.fields.get("metadata", {}), **identity, **guard}
                    await client.apply(workloads, obj, field_manager=one.manager, subresource=subresource)
                    guard = {}
                if removed := not_applicable(before, after):
                    await client.merge_patch(workloads, name, removed, namespace, subresource)
        return True

    await eventually(written, what=f"{manner} of {name}", timeout=20)


# --- typed update ---------------------------------------------------------------------------------


def typed(workload: JsonObject) -> dict[str, Any]:
    """A Workload as a typed client writes it: without empty fields, with canonical quantities."""
    return cast("dict[str, Any]", _typed(workload))


def _typed(value: Any, field: str = "") -> Any:
    if isinstance(value, Mapping):
        items = cast("JsonObject", value)
        if field in _QUANTITIES and all(isinstance(item, str | int | float) for item in items.values()):
            return {resource: canonical(resource, quantity) for resource, quantity in items.items()}
        kept = {key: _typed(item, key) for key, item in items.items()}
        return {key: item for key, item in kept.items() if item is not None and item not in ({}, [])}
    if isinstance(value, list):
        return [_typed(item, field) for item in cast("list[Any]", value)]
    return value


def canonical(resource: str, quantity: str | float) -> str:
    """The canonical form of a quantity."""
    return format_amount(resource, parse_amount(resource, quantity))


# --- server-side apply ----------------------------------------------------------------------------


def applied(before: JsonObject, after: JsonObject, names: Names) -> list[Applied]:
    """The applies of all field managers for a change, each with its complete intent.

    A change of a single condition applies only that condition. Any other change of the admission applies all
    of it, without removed fields.
    """
    was, status = before.get("status") or {}, after.get("status") or {}
    if was == status:
        return _applied_outside_status(before, after, names)
    differing = {field for field in {*was, *status} if was.get(field) != status.get(field)}
    changed = [one for one in _conditions(after) if one not in _conditions(before)]
    is_single = (
        differing == {"conditions"} and len(changed) == 1 and len(_types(after)) >= len(_types(before))
    )
    result: list[Applied] = []
    for condition in changed:
        own = f"job-controller-{condition['type']}" if is_single else None
        if concern := _OWN_CONCERNS.get(condition["type"], own):
            result.append(Applied(names.field_manager(concern), {"status": {"conditions": [condition]}}))
            changed = [one for one in changed if one is not condition]
    if "reclaimablePods" in differing:
        said = select_fields(status, ["reclaimablePods"])
        result.append(Applied(names.field_manager("reclaimable-pods"), {"status": said}))
    if differing == {"admissionChecks"}:
        checks = [one for one in status["admissionChecks"] if one not in was.get("admissionChecks", [])]
        result.append(Applied(CHECK_CONTROLLER, {"status": {"admissionChecks": checks}}))
    elif changed or differing - {"conditions", "reclaimablePods"}:
        result.insert(0, Applied(names.field_manager("admission"), {"status": _admission(after)}))
    return result


def _applied_outside_status(before: JsonObject, after: JsonObject, names: Names) -> list[Applied]:
    spec = {key: value for key, value in after["spec"].items() if before["spec"].get(key) != value}
    return [Applied(names.field_manager("job-controller"), {"spec": spec})] if spec else []


def _admission(workload: JsonObject) -> JsonObject:
    """All status fields that are applied together with the admission."""
    status: JsonObject = workload.get("status") or {}
    conditions = [one for one in _conditions(workload) if one["type"] not in _OWN_CONCERNS]
    said = {key: value for key, value in status.items() if key != "reclaimablePods" and value}
    return {**said, "conditions": conditions}


def not_applicable(before: JsonObject, after: JsonObject) -> dict[str, Any]:
    """The merge patch of removals that an apply cannot make: another field manager owns the fields."""
    had, has = (value_at(one, ("status", "requeueState"), {}) for one in (before, after))
    if removed := {key: None for key in had if key not in has}:
        return {"status": {"requeueState": removed if has else None}}
    had, has = (value_at(one, ("metadata", "annotations"), {}) for one in (before, after))
    if removed := {key: None for key in had if key not in has}:
        return {"metadata": {"annotations": removed}}
    return {}


def _conditions(workload: JsonObject) -> list[JsonObject]:
    return value_at(workload, ("status", "conditions"), [])


def _types(workload: JsonObject) -> list[str]:
    return [one["type"] for one in _conditions(workload)]
