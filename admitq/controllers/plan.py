"""Plans: decisions of controllers, as values, and the function that executes them.

Decisions are pure functions, so that tests can check plans without an API server. ``execute_plan`` writes the
actions in order. Each write is guarded by the version that the decision was made from, and its answer goes
into the store. A write that fails ends the plan, so that no event reports a change that was not made.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal

from admitq.controllers.context import Context, JobMetrics
from admitq.controllers.json_patches import (
    Operations,
    conditional_patch,
    finalizer_removal,
    gate_removal,
    workload_release,
)
from admitq.core.model import SECOND, Instant
from admitq.integrations.base import PatchStep
from admitq.runtime.errors import ApiError
from admitq.runtime.rate_limit import CallPriority, call_priority, current_priority
from admitq.runtime.resources import PODS, Resource
from admitq.workloads import admission_status
from admitq.workloads.transitions import condition_since, is_condition_true, is_reserved
from admitq_api import conditions
from admitq_api.conditions import ConditionType, format_time, parse_time
from admitq_api.json_objects import JsonObject, value_at

EventType = Literal["Normal", "Warning"]

DELETED_RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object."""

    resource: Resource
    obj: Mapping[str, Any]
    concern: str


@dataclass(frozen=True, slots=True)
class Patch:
    """Patches of one object.

    The first applies to ``obj``, each further one to the answer of the previous one.

    A patch of a Workload's status with the concern of the admission is written by server-side apply.
    ``reports`` are recorded as soon as the first step is written, because a later step may conflict with
    another writer. ``priority`` is the priority of the calls, unless the plan has a more urgent action.
    """

    resource: Resource
    obj: JsonObject
    steps: tuple[PatchStep, ...]
    concern: str
    reports: "tuple[RecordEvent | RecordMetric, ...]" = ()
    priority: CallPriority = CallPriority.LIFECYCLE


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Remove one finalizer. The default is the finalizer of all our objects.

    The same write labels a Workload that has finished. It changes nothing else.
    """

    resource: Resource
    obj: JsonObject
    finalizer: str | None = None


@dataclass(frozen=True, slots=True)
class RemoveSchedulingGate:
    """Remove one scheduling gate from a pod, add labels to its node selector, and change nothing else."""

    resource: Resource
    obj: JsonObject
    gate: str
    concern: str
    node_selector: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object with this UID.

    ``as_seen`` deletes the object only in this version; a conflict leads to the next decision. It is for
    deletions because of the content of the object, such as a Workload that matches no job. The version of a
    pod changes with each report of its kubelet, so pods are deleted in any version. ``by_force`` deletes a
    pod without waiting for its kubelet.
    """

    resource: Resource
    obj: JsonObject
    by_force: bool = False
    as_seen: bool = False


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """Record a Kubernetes event about an object."""

    regarding: JsonObject
    type: EventType
    reason: str
    note: str


@dataclass(frozen=True, slots=True)
class RecordMetric:
    """Record metrics. The function gets the object as the last write left it."""

    what: Callable[[JobMetrics, JsonObject], None]


Action = Create | Patch | RemoveFinalizer | RemoveSchedulingGate | Delete | RecordEvent | RecordMetric


@dataclass(frozen=True, slots=True)
class ActionPlan:
    """The actions of a decision, in order, and further results."""

    actions: tuple[Action, ...] = ()
    requeue_after: float | None = None
    """Seconds until the next reconciliation if nothing changes before; None if only a change causes one."""
    started_workload: JsonObject | None = None
    """The Workload of the job that the actions start; None if they start no job."""
    stops_unadmitted: bool = False
    """Whether the actions stop a job because no admission of it is known.

    The store of Workloads may be stale.
    """
    quarantine_reason: str = ""
    """Why no Workload can be created until the job changes; empty if one can."""
    released_workloads: tuple[JsonObject, ...] = ()
    """Admitted Workloads that release their quota by the actions.

    The namespace is searched for their running pods first.
    """

    @property
    def has_writes(self) -> bool:
        """Whether the plan writes objects."""
        return any(not isinstance(action, RecordEvent | RecordMetric) for action in self.actions)

    @property
    def priority(self) -> CallPriority:
        """The priority of all calls of the plan: that of its most urgent action."""
        started_workload = () if self.started_workload is None else (CallPriority.RESERVATION,)
        return min((*started_workload, *map(_priority_of, self.actions)), default=CallPriority.STATUS)


def _priority_of(action: Action) -> CallPriority:
    match action:
        case Patch():
            return action.priority
        case RemoveSchedulingGate():
            return CallPriority.RESERVATION
        case Delete(resource) if (resource.group, resource.plural) == (PODS.group, PODS.plural):
            return CallPriority.EVICTION
        case Create() | Delete() | RemoveFinalizer():
            return CallPriority.LIFECYCLE
        case RecordEvent() | RecordMetric():
            return CallPriority.STATUS


_REPORT_PRIORITIES: Final = frozenset({CallPriority.STATUS, CallPriority.QUEUE_STATUS})

NO_ACTIONS = ActionPlan()


def plan_of(
    *actions: Action | None, requeue_after: float | None = None, started_workload: JsonObject | None = None
) -> ActionPlan:
    """Return a plan of these actions without those that are None."""
    return ActionPlan(
        tuple(action for action in actions if action is not None), requeue_after, started_workload
    )


def record_gate_wait(
    gate: str, pod: JsonObject, workload: JsonObject | None, now: Instant, *, is_group: bool
) -> RecordMetric:
    """Record how long a gate held a pod after both the pod existed and its Workload was admitted."""
    there = parse_time(value_at(pod, ("metadata", "creationTimestamp")) or format_time(now))
    admitted = None if workload is None else condition_since(workload, ConditionType.ADMITTED)
    seconds = max(0, now - max(there, admitted or there)) / SECOND
    queue: str = value_at(workload, ("status", "admission", "clusterQueue"), "")
    return RecordMetric(lambda metrics, _: metrics.gate_removed(gate, queue, seconds, is_group=is_group))


def status_patch(
    resource: Resource, obj: JsonObject, patch: Mapping[str, Any] | None, concern: str
) -> Patch | None:
    """Return the patch of an object's status; None if there is nothing to write."""
    if patch is None:
        return None
    return Patch(
        resource,
        obj,
        (PatchStep(dict(patch), "status"),),
        concern,
        priority=_status_priority(resource, obj, patch),
    )


_QUEUES: Final = frozenset({"clusterqueues", "localqueues", "cohorts"})
"""Plurals of the resources with numbers of workloads in their statuses."""

_REPORT_FIELDS: Final = frozenset({"conditions", "resourceRequests"})
"""Fields of the status of a Workload that state why it waits. No decision depends on them."""


def _status_priority(resource: Resource, obj: JsonObject, patch: Mapping[str, Any]) -> CallPriority:
    """Return the priority of a status patch, which depends on what it does to the admission of a Workload."""
    if resource.plural in _QUEUES:
        return CallPriority.QUEUE_STATUS
    written = value_at(patch, ("status", "conditions"))
    if written is None:
        return CallPriority.LIFECYCLE

    def begins(type_: ConditionType) -> bool:
        return conditions.is_true(written, type_) and not is_condition_true(obj, type_)

    if begins(ConditionType.ADMITTED):
        return CallPriority.RESERVATION
    releases = is_reserved(obj) and not conditions.is_true(written, ConditionType.QUOTA_RESERVED)
    if releases or begins(ConditionType.EVICTED) or begins(ConditionType.DEACTIVATION_TARGET):
        return CallPriority.EVICTION
    return CallPriority.STATUS if _only_reports(obj, patch, written) else CallPriority.LIFECYCLE


def _only_reports(obj: JsonObject, patch: Mapping[str, Any], written: Sequence[JsonObject]) -> bool:
    """Whether a status patch changes only why a Workload waits: conditions that were and are not True."""
    before = {each["type"]: each for each in value_at(obj, ("status", "conditions")) or ()}
    after = {each["type"]: each for each in written}
    changed = {kind for kind in before.keys() | after.keys() if before.get(kind) != after.get(kind)}
    states = [state.get(kind, {}).get("status") for kind in changed for state in (before, after)]
    return patch["status"].keys() <= _REPORT_FIELDS and "True" not in states


def workload_status_patch(
    resource: Resource, workload: JsonObject, patch: Mapping[str, Any] | None, concern: str
) -> Patch | None:
    """Return a status patch of a Workload; admission fields have the concern of the admission."""
    if patch is not None and admission_status.changes_only_admission_status(workload, patch):
        concern = admission_status.ADMISSION_MANAGER_SUFFIX
    return status_patch(resource, workload, patch, concern)


def writes_pod_sets(what: ActionPlan, workloads: Resource) -> bool:
    """Whether a plan creates a Workload or changes the podsets of one."""
    return any(
        isinstance(action, Create)
        or (
            isinstance(action, Patch)
            and action.resource == workloads
            and any("podSets" in (step.patch.get("spec") or {}) for step in action.steps)
        )
        for action in what.actions
    )


async def execute_plan(ctx: Context, what: ActionPlan) -> float | None:
    """Execute a plan; returns after how many seconds to reconcile again.

    Writes of objects that no longer exist are skipped.

    Raises:
        NoFreeSlotError: the plan only reports, and must wait until the API server has time for reports. The
            caller decides again then, and reports what is true by that time.
        ApiError: a write failed for another reason.
    """
    if not what.actions:
        return what.requeue_after
    with call_priority(what.priority):
        priority = current_priority(what.priority)
        is_report = priority in _REPORT_PRIORITIES and what.has_writes
        # A worker must not wait for a slot: the next one may be granted to a key that waits for a worker.
        with ctx.client.scheduler.free_slot(priority) if is_report else nullcontext():
            return await _execute_actions(ctx, what)


async def _execute_actions(ctx: Context, what: ActionPlan) -> float | None:
    written: JsonObject = {}
    newest: dict[str, str] = {}
    for action in what.actions:
        match action:
            case Create(resource, obj, concern):
                written = await ctx.client.create(
                    resource, dict(obj), field_manager=ctx.names.field_manager(concern)
                )
                ctx.observe_write(resource, written)
            case Patch():
                try:
                    written = await _write_patch(ctx, action)
                except ApiError as error:
                    if error.is_not_found:
                        return DELETED_RETRY_SECONDS
                    raise
                newest[written["metadata"]["uid"]] = written["metadata"]["resourceVersion"]
            case RemoveFinalizer(resource, obj, finalizer):
                await remove_finalizer(ctx, resource, obj, finalizer, newest)
            case RemoveSchedulingGate():
                await _remove_scheduling_gate(ctx, action)
            case Delete():
                newest.update(await _delete_object(ctx, action))
            case RecordEvent() | RecordMetric():
                _record(ctx, action, written, newest)
    return what.requeue_after


def _with_newest_version(regarding: JsonObject, newest: Mapping[str, str]) -> dict[str, Any]:
    """Return the object with the version of the plan's last write, so that events refer to that version."""
    metadata = regarding["metadata"]
    version = newest.get(metadata.get("uid", ""))
    if version is None:
        return dict(regarding)
    return {**regarding, "metadata": {**metadata, "resourceVersion": version}}


async def _write_patch(ctx: Context, action: Patch) -> JsonObject:
    answer: JsonObject = action.obj
    version = action.obj["metadata"]["resourceVersion"]
    reports = action.reports
    for step in action.steps:
        if step.required_unchanged:
            operations = conditional_patch(answer, step)
            written = await _send_json_patch(ctx, action.resource, answer, operations, action.concern)
        else:
            metadata = {**(step.patch.get("metadata") or {}), "resourceVersion": version}
            body = {**step.patch, "metadata": metadata}
            written = await _write_step(ctx, action, answer, PatchStep(body, step.subresource))
        ctx.observe_write(action.resource, written)
        answer, version = written, written["metadata"]["resourceVersion"]
        for report in reports:
            _record(ctx, report, answer, {answer["metadata"]["uid"]: version})
        reports = ()
    return answer


def _record(
    ctx: Context, report: RecordEvent | RecordMetric, written: JsonObject, newest: Mapping[str, str]
) -> None:
    match report:
        case RecordEvent(regarding, type_, reason, note):
            ctx.recorder.event(_with_newest_version(regarding, newest), type_, reason, note)
        case RecordMetric(count):
            count(ctx.metrics, written)


async def _write_step(ctx: Context, action: Patch, upon: JsonObject, step: PatchStep) -> dict[str, Any]:
    manager = ctx.names.field_manager(action.concern)
    if action.concern == admission_status.ADMISSION_MANAGER_SUFFIX:
        return await admission_status.write_admission_status(
            ctx.client,
            action.resource,
            upon,
            step.patch,
            field_manager=manager,
            merge_patches=ctx.settings.writes.merge_patches,
        )
    return await ctx.client.merge_patch(
        action.resource,
        upon["metadata"]["name"],
        step.patch,
        namespace=upon["metadata"].get("namespace"),
        subresource=step.subresource,
        field_manager=manager,
    )


def namespaced_name(obj: JsonObject) -> str:
    """Return ``namespace/name`` of an object, as events show it."""
    metadata: Mapping[str, str] = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"


def has_finalizer(obj: JsonObject, finalizer: str) -> bool:
    """Whether the object has the finalizer."""
    return finalizer in value_at(obj, ("metadata", "finalizers"), [])


async def remove_finalizer(
    ctx: Context,
    resource: Resource,
    obj: JsonObject,
    finalizer: str | None = None,
    newest: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Remove a finalizer from an object if the object has it and still exists.

    Args:
        ctx: client and names.
        resource: the resource of the object.
        obj: the object that the decision was made from.
        finalizer: the finalizer; None for the one of all our objects.
        newest: versions of objects that this plan has written, by UID.

    Raises:
        ApiError: a conflict. The finalizers have changed since, or anything else in the object if the feature
            gate RemoveFinalizersWithStrictPatch is on.
    """
    finalizer = finalizer or ctx.names.finalizer
    if has_finalizer(obj, finalizer):
        metadata = obj["metadata"]
        version = newest.get(metadata["uid"], metadata["resourceVersion"])
        required = version if ctx.settings.writes.strict_finalizers else None
        operations = (
            workload_release(obj, ctx.names, finalizer, required)
            if resource == ctx.kinds.workloads
            else finalizer_removal(obj, finalizer, required)
        )
        await _write_json_patch(ctx, resource, obj, operations, "finalizer")


async def _remove_scheduling_gate(ctx: Context, action: RemoveSchedulingGate) -> None:
    operations = gate_removal(action.obj, action.gate, action.node_selector)
    await _write_json_patch(ctx, action.resource, action.obj, operations, action.concern)


async def _write_json_patch(
    ctx: Context, resource: Resource, obj: JsonObject, operations: Operations, concern: str
) -> None:
    """Write a JSON patch and observe the answer; does nothing if the object no longer exists."""
    try:
        answer = await _send_json_patch(ctx, resource, obj, operations, concern)
    except ApiError as error:
        if error.is_not_found:
            return
        raise
    ctx.observe_write(resource, answer)


async def _send_json_patch(
    ctx: Context, resource: Resource, obj: JsonObject, operations: Operations, concern: str
) -> dict[str, Any]:
    """Send a JSON patch and return the patched object.

    Raises:
        ApiError: a conflict if a test of the patch failed; other errors as they come.
    """
    metadata = obj["metadata"]
    try:
        return await ctx.client.json_patch(
            resource,
            metadata["name"],
            operations,
            namespace=metadata.get("namespace"),
            field_manager=ctx.names.field_manager(concern),
        )
    except ApiError as error:
        # An error about an invalid object names the object. An error about a failed test names the patch.
        if error.is_invalid and not error.concerns(metadata["name"]):
            raise ApiError(409, "Conflict", error.message) from error
        raise


async def _delete_object(ctx: Context, action: Delete) -> Mapping[str, str]:
    """Delete an object.

    Returns its version by UID if it still exists, waiting for a finalizer or grace period.
    """
    resource, metadata = action.resource, action.obj["metadata"]
    try:
        answer = await ctx.client.delete(
            resource,
            metadata["name"],
            namespace=metadata.get("namespace"),
            uid=metadata["uid"],
            resource_version=metadata["resourceVersion"] if action.as_seen else None,
            propagation="Background",
            grace_seconds=0 if action.by_force else None,
        )
    except ApiError as error:
        if error.is_not_found or (error.is_conflict and not action.as_seen):
            return {}
        raise
    version: str | None = value_at(answer, ("metadata", "resourceVersion"))
    # The API server answers with an object without version if the object was removed during the call.
    if value_at(answer, ("metadata", "uid")) != metadata["uid"] or version is None:
        return {}
    # The object waits for a finalizer or its grace period. Observe it at once, so that it is not deleted
    # twice.
    ctx.observe_write(resource, answer)
    return {metadata["uid"]: version}
